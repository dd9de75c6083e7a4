//! Finds the objects that have the names of a tree's entries.

use std::collections::HashMap;

use client::Client;
use model::{Object, Oid, Result};

use super::attributes::Attributes;
use super::walk::{Entry, Prefix};

/// An object that has the name of an entry.
#[derive(Clone, Debug)]
pub(super) struct BoundObject {
    /// The identifier.
    pub(super) oid: Oid,
    /// The object; `None` if it was deleted and its name was not.
    pub(super) object: Option<Object>,
}

impl BoundObject {
    /// The attributes of the file that it was imported from.
    pub(super) fn attributes(&self) -> Attributes {
        self.object.as_ref().map(Attributes::of).unwrap_or_default()
    }
}

/// How an object is found.
pub(super) enum Lookup {
    /// By a name in a directory.
    Entry(Oid, String),
    /// By a path.
    Path(String),
}

impl Lookup {
    /// The look-up of an entry: in its directory, if that is known.
    pub(super) fn new(entry: &Entry, directories: &HashMap<String, Oid>) -> Self {
        match entry.parent.as_ref().and_then(|parent| directories.get(parent)) {
            Some(directory) => Self::Entry(*directory, entry.component().to_owned()),
            None => Self::Path(entry.name.clone()),
        }
    }

    /// Finds the object, if there is one.
    pub(super) async fn find(self, cluster: Client) -> Result<Option<BoundObject>> {
        let oid = match &self {
            Self::Entry(directory, name) => cluster.entry(*directory, name).await?,
            Self::Path(path) => cluster.resolve(path).await?,
        };
        let Some(oid) = oid else { return Ok(None) };
        let object = cluster.stat(oid).await?.map(|stat| stat.object);
        Ok(Some(BoundObject { oid, object }))
    }
}

/// The number of names below a prefix, directories included.
pub(super) async fn count_names(cluster: &Client, prefix: &Prefix) -> Result<u64> {
    let mut names = cluster.names(&prefix.below()).with_directories();
    let mut count = 0;
    while let Some(portion) = names.next().await? {
        count += portion.len() as u64;
    }
    Ok(count)
}
