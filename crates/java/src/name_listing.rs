//! A listing of names whose damaged ones are errors.

use std::collections::VecDeque;

use client::{ListedName, Names};
use model::{Error, ErrorKind, Result};

/// Names in portions. A damaged name is an error of the call that reaches it, and the next call continues behind it.
#[derive(Debug)]
pub(crate) struct NameListing {
    names: Names,
    /// What was listed and not returned.
    rest: VecDeque<ListedName>,
}

impl NameListing {
    pub(crate) fn new(names: Names) -> Self {
        Self { names: names.below_damage(), rest: VecDeque::new() }
    }

    /// The next names, up to a damaged one; `None` at the end.
    ///
    /// # Errors
    /// Those of [`Names::next`]; [`ErrorKind::Corrupt`] for a damaged name.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<ListedName>>> {
        if self.rest.is_empty() {
            match self.names.next().await? {
                Some(portion) => self.rest = portion.into(),
                None => return Ok(None),
            }
        }
        take_undamaged(&mut self.rest).map(Some)
    }
}

/// Takes the names up to a damaged one.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the first is damaged. It is taken, too.
fn take_undamaged(names: &mut VecDeque<ListedName>) -> Result<Vec<ListedName>> {
    if let Some(ListedName { path, damage: Some(why), .. }) = names.pop_front_if(|name| name.damage.is_some()) {
        return Err(Error::new(ErrorKind::Corrupt, format!("{path}: {why}")));
    }
    let damaged = names.iter().position(|name| name.damage.is_some());
    Ok(names.drain(..damaged.unwrap_or(names.len())).collect())
}

#[cfg(test)]
mod tests {
    use model::{ClassId, NodeId, Oid, PageId, SpaceId};

    use super::*;

    #[test]
    fn damaged_name_is_an_error_and_those_beside_it_are_listed() {
        let name = |(path, damage): (&str, Option<&str>)| {
            let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(3), number: 1 }, 1);
            ListedName { path: path.to_owned(), oid, is_directory: false, damage: damage.map(str::to_owned) }
        };
        let listed =
            [("/a", None), ("/b", None), ("/c", Some("its row is damaged")), ("/d", Some("lost")), ("/e", None)];
        let mut names: VecDeque<ListedName> = listed.map(name).into();
        let mut take = || match take_undamaged(&mut names) {
            Ok(taken) => taken.into_iter().map(|name| name.path).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!([take(), take(), take(), take()], ["/a /b", "/c: its row is damaged", "/d: lost", "/e"]);
    }
}
