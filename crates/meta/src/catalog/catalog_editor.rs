//! The operations that change the catalogue.
//!
//! Each operation reads the entries that it depends on, computes what to write, and writes it if these entries are unchanged;
//! otherwise it starts again. Any number of processes can change the catalogue at the same time, and none waits for another.

use std::ops::Range;
use std::sync::Arc;

use model::SpaceId;

use crate::{MetaStore, Revision};

use super::catalog_draft::CatalogDraft;
use super::client_number_key::ClientNumberKey;
use super::entry::Path;
use super::error::CatalogError;
use super::ident::StartNumber;
use super::names;
use super::parameters::Parameters;
use crate::limits;

mod accounts;
mod adopt;
mod classes;
mod clones;
mod indexes;
mod jobs;
mod members;
mod moves;
mod openings;
mod removals;
mod spaces;

pub use accounts::hash_password;
pub use removals::Removal;

type Result<T, E = CatalogError> = std::result::Result<T, E>;

/// Changes the catalogue. Clones change the same catalogue.
///
/// An operation whose outcome could not be determined fails with [`CatalogError::Store`] of the kind
/// [`Unknown`](model::ErrorKind::Unknown): look at the catalogue before trying again.
#[derive(Clone)]
pub struct CatalogEditor {
    store: Arc<dyn MetaStore>,
    certified: bool,
    caller: Option<Arc<str>>,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited<T> {
    /// The entry that was created or changed.
    pub value: T,
    /// The revision from which on the change is visible.
    pub revision: Revision,
}

/// Prepares a draft and writes it, repeatedly until no other change interferes. The block prepares the draft; its value is the
/// value of the operation.
macro_rules! edit {
    ($editor:expr, |$draft:ident| $work:block) => {{
        let mut attempts = $crate::catalog::catalog_draft::Attempts::new();
        loop {
            let mut $draft = $editor.draft();
            let value = $work;
            if let Some(revision) = $draft.commit().await? {
                break Ok($crate::catalog::catalog_editor::Edited { value, revision });
            }
            attempts.back_off().await?;
        }
    }};
}
use edit;

impl CatalogEditor {
    /// An editor of the catalogue in a store.
    #[must_use]
    pub fn new(store: Arc<dyn MetaStore>) -> Self {
        Self { store, certified: false, caller: None }
    }

    /// The editor for a caller who has logged in with a certificate, which shows that administrators need no password.
    #[must_use]
    pub fn with_certificate(&self) -> Self {
        Self { certified: true, ..self.clone() }
    }

    /// The editor for a caller of this name, which jobs show.
    #[must_use]
    pub fn with_caller(&self, name: Option<Arc<str>>) -> Self {
        Self { caller: name, ..self.clone() }
    }

    /// The store of the catalogue.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn MetaStore> {
        &self.store
    }

    pub(super) fn draft(&self) -> CatalogDraft<'_> {
        CatalogDraft::new(&*self.store)
    }

    /// Sets the parameters of an empty catalogue. A catalogue that has parameters keeps them. Returns the current ones.
    ///
    /// # Errors
    /// [`CatalogError::Newer`] if a newer program has set it up.
    pub async fn set_up(&self, parameters: &Parameters) -> Result<Edited<Parameters>> {
        edit!(self, |draft| {
            match draft.get(&Path::Parameters).await? {
                Some(known) => known,
                None => {
                    draft.put(&Path::Parameters, parameters)?;
                    parameters.clone()
                }
            }
        })
    }

    /// Gives the cluster another number, so that a brick of the former cluster cannot join, and another key, so that no client of the former
    /// cluster has the number of a client. Returns the new parameters.
    ///
    /// # Errors
    /// [`CatalogError::NotSetUp`], [`CatalogError::Newer`].
    pub async fn begin_lineage(&self) -> Result<Edited<Parameters>> {
        let (cluster, key) = (Parameters::generate().cluster, ClientNumberKey::generate());
        edit!(self, |draft| {
            let known: Parameters = draft.get(&Path::Parameters).await?.ok_or(CatalogError::NotSetUp)?;
            let parameters = Parameters { cluster: cluster.clone(), ..known };
            draft.put(&Path::Parameters, &parameters)?;
            // Numbers that were given after the backup are given again.
            draft.put(&Path::ClientNumberKey, &key)?;
            parameters
        })
    }

    /// The parameters of the cluster.
    ///
    /// # Errors
    /// [`CatalogError::NotSetUp`], [`CatalogError::Newer`].
    pub async fn parameters(&self) -> Result<Parameters> {
        self.draft().get(&Path::Parameters).await?.ok_or(CatalogError::NotSetUp)
    }

    /// The key by which peer servers recognise the numbers of clients. It is made when it is first asked for.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn client_number_key(&self) -> Result<ClientNumberKey> {
        let new = ClientNumberKey::generate();
        let made: Result<Edited<ClientNumberKey>> = edit!(self, |draft| {
            match draft.get(&Path::ClientNumberKey).await? {
                Some(known) => known,
                None => {
                    draft.put(&Path::ClientNumberKey, &new)?;
                    new.clone()
                }
            }
        });
        made.map(|Edited { value, .. }| value)
    }

    /// The revision of the catalogue now.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn revision(&self) -> Result<Revision> {
        Ok(self.store.get(Vec::new()).await?.revision)
    }

    /// The revision of the last change of the placement map.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn placement_revision(&self) -> Result<Revision> {
        let state = self.store.get(vec![Path::PlacementMap.key()?]).await?;
        Ok(state.entries.first().map(|(_, entry)| entry.revision).unwrap_or_default())
    }

    /// The revision of the last change of a space's classes and indexes.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn schema_revision(&self, space: SpaceId) -> Result<Revision> {
        let state = self.store.get(vec![Path::Schema(space).key()?]).await?;
        Ok(state.entries.first().map(|(_, entry)| entry.revision).unwrap_or_default())
    }

    /// Reserves numbers of the counter with this name, which starts with 1. No number is given twice. If the answer is lost, the
    /// numbers are lost too.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] if `count` is 0 or too large.
    pub async fn take_numbers(&self, name: &str, count: u64) -> Result<Range<u64>> {
        names::check_counter(name)?;
        if !(1..=limits::NUMBERS).contains(&count) {
            return Err(CatalogError::invalid(
                "a count of numbers",
                count,
                format!("1 to {} at once", limits::NUMBERS),
            ));
        }
        let taken: Result<Edited<u64>> =
            edit!(self, |draft| { draft.reserve_numbers(name, count, model::limits::CLIENT_NUMBER).await? });
        taken.map(|Edited { value: first, .. }| first..first + count)
    }

    /// A number for the start of a process, larger than those of all earlier starts.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn start_number(&self) -> Result<StartNumber> {
        Ok(StartNumber(self.take_numbers("starts", 1).await?.start))
    }
}

/// The record, or [`CatalogError::Missing`].
fn require<T>(record: Option<T>, what: &'static str, name: impl ToString) -> Result<T> {
    record.ok_or_else(|| CatalogError::missing(what, name))
}

#[cfg(test)]
pub(crate) mod tests;
