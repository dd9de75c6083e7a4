//! The operations that change the catalogue.
//!
//! Each reads what it rests on, works out what to write, and writes it if nothing of that has changed; otherwise it begins
//! again. So any number of processes may change the catalogue at once, and none waits for another that has died.

use std::ops::Range;
use std::sync::Arc;

use model::SpaceId;

use crate::{MetaStore, Revision};

use super::catalog_draft::CatalogDraft;
use super::error::CatalogError;
use super::ident::StartNumber;
use super::parameters::Parameters;
use super::path::Path;
use super::{limits, names};

mod accounts;
mod adopt;
mod classes;
mod indexes;
mod members;
mod moves;
mod spaces;

pub use accounts::hash_password;

type Result<T, E = CatalogError> = std::result::Result<T, E>;

/// Changes the catalogue. Clones change the same one.
///
/// An operation whose outcome could not be found out fails with [`CatalogError::Store`] of the kind
/// [`Unknown`](model::ErrorKind::Unknown): look at the catalogue before trying again.
#[derive(Clone)]
pub struct CatalogEditor {
    store: Arc<dyn MetaStore>,
    certified: bool,
}

/// What an operation has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited<T> {
    /// What was made or changed, as it is now.
    pub value: T,
    /// Whoever has the catalogue at this revision or a later one sees it.
    pub revision: Revision,
}

/// Works a draft out and writes it, again and again until nobody gets in the way: the value of the block is what the draft
/// makes.
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
    /// One that changes the catalogue which is kept there.
    #[must_use]
    pub fn new(store: Arc<dyn MetaStore>) -> Self {
        Self { store, certified: false }
    }

    /// The same for somebody who has come by a certificate, and so shown that administrators need no passwords.
    #[must_use]
    pub fn with_certificate(&self) -> Self {
        Self { certified: true, ..self.clone() }
    }

    /// What keeps the catalogue.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn MetaStore> {
        &self.store
    }

    pub(super) fn draft(&self) -> CatalogDraft<'_> {
        CatalogDraft::new(&*self.store)
    }

    /// Gives an empty catalogue these parameters; one that has some keeps them. Says which it has now.
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

    /// The parameters of the cluster.
    ///
    /// # Errors
    /// [`CatalogError::NotSetUp`], [`CatalogError::Newer`].
    pub async fn parameters(&self) -> Result<Parameters> {
        self.draft().get(&Path::Parameters).await?.ok_or(CatalogError::NotSetUp)
    }

    /// Changes the parameters; which cluster it is stays. Processes that run keep what they have read.
    ///
    /// # Errors
    /// [`CatalogError::NotSetUp`], [`CatalogError::Invalid`].
    pub async fn set_parameters(&self, parameters: &Parameters) -> Result<Edited<Parameters>> {
        edit!(self, |draft| {
            let known: Parameters = draft.get(&Path::Parameters).await?.ok_or(CatalogError::NotSetUp)?;
            if known.cluster != parameters.cluster {
                return Err(CatalogError::invalid("the number of a cluster", &parameters.cluster, "it never changes"));
            }
            draft.put(&Path::Parameters, parameters)?;
            parameters.clone()
        })
    }

    /// The last change of the placement map.
    ///
    /// # Errors
    /// If what keeps the catalogue cannot be asked.
    pub async fn placement_revision(&self) -> Result<Revision> {
        let state = self.store.get(vec![Path::PlacementMap.key()?]).await?;
        Ok(state.entries.first().map(|(_, entry)| entry.revision).unwrap_or_default())
    }

    /// The last change of a space's classes and indexes.
    ///
    /// # Errors
    /// If what keeps the catalogue cannot be asked.
    pub async fn schema_revision(&self, space: SpaceId) -> Result<Revision> {
        let state = self.store.get(vec![Path::Schema(space).key()?]).await?;
        Ok(state.entries.first().map(|(_, entry)| entry.revision).unwrap_or_default())
    }

    /// Takes numbers that nobody else gets, of a counter with this name; they begin with 1. If the answer is lost, so are
    /// the numbers.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] for no numbers or too many at once.
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
            edit!(self, |draft| { draft.reserve_numbers(name, count, u64::MAX - 1).await? });
        taken.map(|Edited { value: first, .. }| first..first + count)
    }

    /// A number for the start of a process: larger than those of all starts before.
    ///
    /// # Errors
    /// What keeps the catalogue may fail.
    pub async fn start_number(&self) -> Result<StartNumber> {
        Ok(StartNumber(self.take_numbers("starts", 1).await?.start))
    }
}

/// A name that a record cannot be found by is as good as one that is not there.
fn require<T>(record: Option<T>, what: &'static str, name: impl ToString) -> Result<T> {
    record.ok_or_else(|| CatalogError::missing(what, name))
}

#[cfg(test)]
mod tests;
