//! Names of objects on the command line: identifiers and names.

use std::fmt;
use std::str::FromStr;

use client::{Client, ObjectStat};
use model::{Error, ErrorKind, Oid, limits};

use crate::failure::{Failure, Result};
use crate::output::Printable;

/// An object given on the command line.
///
/// - `1.0.0.2a.3`: five hexadecimal numbers separated by dots are an identifier.
/// - `/photos/cat.jpg`: a text that begins with a slash is a name.
///
/// Everything else is refused, so that a forgotten slash is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An object's identifier.
    Oid(Oid),
    /// A name in the space of the connection.
    Path(NamePath),
}

/// The path of a name, checked to be valid in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamePath(String);

impl NamePath {
    /// The path's text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The path with this text, if it is valid.
    pub(crate) fn try_new(text: &str) -> std::result::Result<Self, String> {
        // `ls` shows directories with a slash behind them.
        let text = text.strip_suffix('/').filter(|directory| !directory.is_empty()).unwrap_or(text);
        if text.is_empty() {
            return Err("a name has at least one character".to_owned());
        }
        if text.len() > limits::NAME {
            return Err(format!("a name has at most {} bytes; this one has {}", limits::NAME, text.len()));
        }
        if text.contains('\0') {
            return Err("a name cannot contain the character NUL".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for NamePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Printable(&self.0))
    }
}

/// A name: `/path`.
impl FromStr for NamePath {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.starts_with('/') {
            true => Self::try_new(text),
            false => Err(format!("a name begins with a slash; did you mean /{text} ?")),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text.starts_with('/') {
            return text.parse().map(Self::Path);
        }
        match text.parse::<Oid>() {
            Ok(oid) if oid.is_temporary() => {
                Err("a temporary identifier names nothing outside its transaction".to_owned())
            }
            Ok(oid) => Ok(Self::Oid(oid)),
            Err(_) => Err(format!(
                "neither an identifier (five hexadecimal parts: 1.0.0.2a.3) nor a name (/path); did you mean /{text} ?"
            )),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oid(oid) => oid.fmt(f),
            Self::Path(path) => path.fmt(f),
        }
    }
}

impl Target {
    /// The identifier of the object of a cluster. An identifier is not looked up.
    pub(crate) async fn find(&self, cluster: &Client) -> Result<Oid> {
        match self {
            Self::Oid(oid) => Ok(*oid),
            Self::Path(path) => {
                let found = cluster.resolve(path.as_str()).await.map_err(|error| self.name_damage(error))?;
                found.ok_or_else(|| no_such_name(path))
            }
        }
    }

    /// Puts the target before the description of a damage, which may name a place in a file only.
    fn name_damage(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Corrupt => Error::new(ErrorKind::Corrupt, format!("{self}: {error}")).with_source(error),
            _ => error,
        }
    }

    /// The properties of the object of a cluster.
    pub(crate) async fn stat(&self, cluster: &Client) -> Result<ObjectStat> {
        let oid = self.find(cluster).await?;
        let stat = cluster.stat(oid).await.map_err(|error| self.name_damage(error))?;
        stat.ok_or_else(|| match self {
            Self::Path(path) => Failure::not_found(format!("the name {path} leads to {oid}, which does not exist"))
                .hint(format!("`mortar put` gives it a new object, `mortar name unbind {path}` removes it.")),
            Self::Oid(_) => no_such_object(self),
        })
    }
}

/// The failure for a name that is not bound.
pub(crate) fn no_such_name(path: &NamePath) -> Failure {
    Failure::not_found(format!("nothing has the name {path}")).hint("`mortar ls` shows the names there are.")
}

/// The failure for an object that does not exist.
pub(crate) fn no_such_object(target: &Target) -> Failure {
    match target {
        Target::Path(path) => no_such_name(path),
        Target::Oid(oid) => Failure::not_found(format!("there is no object {oid}"))
            .hint("`mortar ls --objects` lists every object of the space, `mortar query CLASS` those of a class."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_names_are_distinguished() {
        assert!(matches!("1.0.0.2a.3".parse(), Ok(Target::Oid(_))));
        assert_eq!("/photos/".parse::<Target>(), "/photos".parse());
        assert_eq!("/".parse(), Ok(NamePath("/".to_owned())));
        assert_eq!("/1.0.0.2a.3".parse(), Ok(Target::Path(NamePath("/1.0.0.2a.3".into()))));
    }

    #[test]
    fn other_texts_are_refused_with_a_suggestion() {
        let error = "photos/cat.jpg".parse::<Target>().unwrap_err();
        assert!(error.contains("did you mean /photos/cat.jpg"), "{error}");
        for wrong in ["", "inbox", "~1.0.0.0.1", "/a\0b", "1.2.3"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong:?}");
        }
        assert!(format!("/{}", "x".repeat(limits::NAME)).parse::<Target>().is_err());
    }

    #[test]
    fn identifiers_are_not_names() {
        assert!("1.0.0.2a.3".parse::<NamePath>().is_err());
    }
}
