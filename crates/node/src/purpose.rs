//! Which kind of server a store belongs to. The kinds keep different contents, and none can read that of another.

use std::fmt;

use meta::Embedded;
use model::{Error, ErrorKind, Result};
use store::Store;

use crate::member;

/// The kind of server that a store belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A brick of a cluster.
    Brick,
    /// The catalogue of a cluster.
    Catalogue,
    /// Objects of its own.
    Standalone,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Brick => "a brick's",
            Self::Catalogue => "a meta-server's",
            Self::Standalone => "that of a store of its own (`mortar dev`)",
        })
    }
}

impl Purpose {
    /// Checks that a store belongs to this kind of server. A new store belongs to any.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it belongs to another kind; the errors of reading it.
    pub fn check(self, store: &Store) -> Result<()> {
        match Self::detect(store)? {
            Some(found) if found != self => {
                let what =
                    format!("this data directory is {found}, not {self}: name the right one; nothing was changed");
                Err(Error::new(ErrorKind::Invalid, what))
            }
            _ => Ok(()),
        }
    }

    fn detect(store: &Store) -> Result<Option<Self>> {
        if store.row(member::IDENTITY_ROW)?.is_some() {
            return Ok(Some(Self::Brick));
        }
        if Embedded::exists_in(store)? {
            return Ok(Some(Self::Catalogue));
        }
        for (space, _) in store.spaces()? {
            if !store.objects(space, None, 1)?.is_empty() {
                return Ok(Some(Self::Standalone));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use meta::catalog::{CatalogEditor, Parameters};
    use model::{ClassId, Kind, Oid, Op, Transaction};
    use store::{Options, RowChanges};

    use super::*;

    #[tokio::test]
    async fn each_kind_of_server_takes_its_own_store_and_new_ones() {
        let new = || Store::in_memory(Options::default()).unwrap();
        let (brick, catalogue, alone) = (new(), new(), new());
        let mut changes = RowChanges::new();
        changes.put(member::IDENTITY_ROW, "1 cluster 7".into());
        brick.commit_rows(changes).unwrap();
        CatalogEditor::new(Arc::new(Embedded::open(&catalogue).unwrap()))
            .set_up(&Parameters::generate())
            .await
            .unwrap();
        let (space, _) = alone.spaces().unwrap().remove(0);
        let oid = Oid::temporary(space, ClassId::NONE, 0);
        let object = Op::Create { oid, kind: Kind::Blob, data: "an object".into(), near: None };
        let _ = alone.commit(Transaction { ops: vec![object] }).unwrap();
        let stores = [(Purpose::Brick, brick), (Purpose::Catalogue, catalogue), (Purpose::Standalone, alone)];
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
