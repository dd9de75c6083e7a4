//! Which kind of server a store belongs to. The kinds keep different contents, and none can read that of another.

use std::fmt;

use bytes::Bytes;
use meta::Embedded;
use model::{Error, ErrorKind, Result};
use store::{EssentialRows, RowChanges, Store};

use crate::local_cluster::BRICKS_ROW;
use crate::member;

/// The row that marks a store with a catalogue and a brick.
const WHOLE_ROW: &[u8] = b"whole";

/// Rows without which the store of a server is of no use.
pub const ESSENTIAL_ROWS: [EssentialRows; 4] = [
    EssentialRows { from: Embedded::ROWS.0, to: Embedded::ROWS.1, what: "the catalogue" },
    EssentialRows { from: member::IDENTITY_ROW, to: b"member\0", what: "the number of the brick" },
    EssentialRows { from: WHOLE_ROW, to: b"whole\0", what: "the mark of a whole cluster" },
    EssentialRows { from: BRICKS_ROW, to: b"directories\0", what: "the list of the bricks' directories" },
];

/// The kind of server that a store belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A brick of a cluster.
    Brick,
    /// The catalogue of a cluster.
    Catalogue,
    /// The catalogue and a brick of a cluster (`mortar dev`).
    Whole,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Brick => "a brick's",
            Self::Catalogue => "a meta-server's",
            Self::Whole => "that of a whole cluster (`mortar dev`)",
        })
    }
}

impl Purpose {
    /// Checks that a store belongs to this kind of server. A new store belongs to any; one of a whole cluster is marked as such, as its
    /// catalogue and its brick are made one after the other.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it belongs to another kind; the errors of reading and writing it.
    pub fn check(self, store: &Store) -> Result<()> {
        match Self::detect(store)? {
            None if self == Self::Whole => Self::mark_whole(store),
            Some(found) if found != self => {
                let what =
                    format!("this data directory is {found}, not {self}: name the right one; nothing was changed");
                Err(Error::new(ErrorKind::Invalid, what))
            }
            _ => Ok(()),
        }
    }

    /// Marks a store as that of a whole cluster.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn mark_whole(store: &Store) -> Result<()> {
        let mut changes = RowChanges::new();
        changes.put(WHOLE_ROW, Bytes::from_static(b"1"));
        store.commit_rows(changes).map(drop)
    }

    /// Makes the store of a whole cluster that of its first brick: the catalogue, which was moved to another store, is removed.
    ///
    /// # Errors
    /// Those of the store.
    pub fn keep_brick_only(store: &Store) -> Result<()> {
        let mut changes = RowChanges::new();
        changes.remove(WHOLE_ROW);
        Embedded::remove_from(store, changes)
    }

    /// The kind of server that a store belongs to; `None` for a new one.
    ///
    /// # Errors
    /// Those of the store.
    pub fn of(store: &Store) -> Result<Option<Self>> {
        Self::detect(store)
    }

    fn detect(store: &Store) -> Result<Option<Self>> {
        if store.row(WHOLE_ROW)?.is_some() {
            return Ok(Some(Self::Whole));
        }
        if store.row(member::IDENTITY_ROW)?.is_some() {
            return Ok(Some(Self::Brick));
        }
        Ok(Embedded::exists_in(store)?.then_some(Self::Catalogue))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use meta::catalog::{CatalogEditor, Parameters};
    use store::Options;

    use super::*;

    #[tokio::test]
    async fn each_kind_of_server_takes_its_own_store_and_new_ones() {
        let new = || Store::in_memory(Options::default()).unwrap();
        let (brick, catalogue, whole) = (new(), new(), new());
        let mut changes = RowChanges::new();
        changes.put(member::IDENTITY_ROW, "1 cluster 7".into());
        brick.commit_rows(changes).unwrap();
        CatalogEditor::new(Arc::new(Embedded::open(&catalogue).unwrap()))
            .set_up(&Parameters::generate())
            .await
            .unwrap();
        Purpose::Whole.check(&whole).unwrap();
        let stores = [(Purpose::Brick, brick), (Purpose::Catalogue, catalogue), (Purpose::Whole, whole)];
        for (is, store) in &stores {
            assert!(is.check(&new()).is_ok());
            for (other, _) in &stores {
                let checked = other.check(store);
                assert_eq!(checked.is_ok(), is == other, "{is:?} taken for {other:?}");
                assert!(checked.is_ok() || checked.is_err_and(|error| error.message().contains(&is.to_string())));
            }
        }
    }
}
