//! Moves a catalogue to another store: from the embedded engine to etcd, or back. Processes that followed the original go on with the copy.
//!
//! ```text
//!   original:  seal: the entry `moved` is put; every other write is refused from then on
//!   target:    copy the entries ─▶ compare them ─▶ put the opening of the copy, which makes it complete
//! ```
//!
//! 1. A sealed catalogue refuses writes (rule 6 of [`meta_store`](crate::meta_store)), so the copy has all that was acknowledged, and an
//!    original that is started again is not served.
//! 2. The copy has an opening of its own, whose number follows those of the original, and its revisions are above all of the original. So rule
//!    K3 holds for every process that has seen the original: the copy is newer, and an older copy of the original is refused.
//! 3. A copy that is not complete is not served. A move that was interrupted goes on when it is repeated.
//! 4. Entries of sessions are left out: every process opens another session.

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use store::Store;

use crate::catalog::CatalogError;
use crate::catalog::entry::{self, Path, Record};
use crate::opening::{Opening, OpeningHistory};
use crate::plant::{Bug, planted};
use crate::{
    Embedded, Etcd, Expect, Key, KeyChange, MetaEntry, MetaSnapshot, MetaStore, Prefix, Revision, WriteOutcome,
};

/// Bytes in the name of the place that a catalogue was moved to.
const MAX_PLACE: usize = 4096;
/// Revisions between the last one of the original and the first one of the copy. The revision of an etcd rises by writes of others, and a
/// process may see it after the copy was made.
const SKIPPED_REVISIONS: u64 = 1 << 32;

/// What a sealed catalogue has about its move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueMove {
    /// Where the copy is, for a person.
    pub to: String,
    /// The opening of the copy.
    pub opening: Opening,
}

impl Record for CatalogueMove {
    fn check(&self) -> Result<(), CatalogError> {
        match self.to.len() {
            0..=MAX_PLACE => Ok(()),
            _ => Err(CatalogError::invalid(
                "the place of a catalogue",
                "a text",
                format!("it has at most {MAX_PLACE} bytes"),
            )),
        }
    }
}

impl CatalogueMove {
    /// Why the original is not served any more.
    #[must_use]
    pub fn explain(&self) -> String {
        format!(
            "the catalogue was moved to {}, or is being moved: start the meta-server there; `mortar cluster move-catalogue --help` says how to \
             finish or to cancel the move",
            self.to
        )
    }
}

/// The key of the entry that seals a catalogue.
pub(crate) fn seal_key() -> Result<Key> {
    Path::Moved.key()
}

/// Whether a write cancels a move: the only one that a sealed catalogue accepts.
pub(crate) fn is_cancellation(changes: &[KeyChange]) -> bool {
    matches!(changes, [KeyChange::Remove { key }] if key.as_str() == Path::Moved.to_string())
}

/// The error for a write to a sealed catalogue, which has this value.
pub(crate) fn sealed_error(value: &[u8]) -> Error {
    let known = seal_key().and_then(|key| Ok(entry::decode::<CatalogueMove>(&key, value)?));
    known.map_or_else(|error| error, |moved| Error::new(ErrorKind::Denied, moved.explain()))
}

/// Seals a catalogue that is to be moved to this place. Returns the move; if it is sealed for this place already, the one that was begun.
///
/// # Errors
/// [`ErrorKind::NotFound`] without a catalogue, [`ErrorKind::Conflict`] if it was moved to another place; those of the store.
pub async fn seal(source: &dyn MetaStore, to: &str) -> Result<CatalogueMove> {
    let [seal, openings, parameters] = [seal_key()?, Path::CatalogueOpenings.key()?, Path::Parameters.key()?];
    loop {
        let known = source.get(vec![seal.clone(), openings.clone(), parameters.clone()]).await?;
        if known.entry(&parameters).is_none() {
            return Err(Error::new(ErrorKind::NotFound, "there is no catalogue to move"));
        }
        if let Some(entry) = known.entry(&seal) {
            let moved: CatalogueMove = entry::decode(&seal, &entry.value)?;
            return match moved.to == to {
                true => Ok(moved),
                false => Err(Error::new(ErrorKind::Conflict, moved.explain())),
            };
        }
        let (history, expected) = match known.entry(&openings) {
            Some(entry) => (entry::decode(&openings, &entry.value)?, Expect::at(openings.clone(), entry.revision)),
            None => (OpeningHistory::default(), Expect::absent(openings.clone())),
        };
        let number = history.last().map_or(0, |last| last.number) + 1;
        let moved = CatalogueMove { to: to.to_owned(), opening: Opening { number, nonce: rand::random() } };
        let put = KeyChange::put(seal.clone(), entry::encode(&moved)?);
        match source.write(vec![Expect::absent(seal.clone()), expected], vec![put]).await? {
            WriteOutcome::Done(_) => return Ok(moved),
            WriteOutcome::Conflict => {}
        }
    }
}

/// Cancels a move, so that the original is served again.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is not being moved; those of the store.
pub async fn cancel(source: &dyn MetaStore) -> Result<CatalogueMove> {
    let seal = seal_key()?;
    let known = source.get(vec![seal.clone()]).await?;
    let none = || Error::new(ErrorKind::NotFound, "the catalogue is not being moved: there is nothing to cancel");
    let entry = known.entry(&seal).ok_or_else(none)?;
    let moved = entry::decode(&seal, &entry.value)?;
    match source.write(vec![Expect::at(seal.clone(), entry.revision)], vec![KeyChange::remove(seal)]).await? {
        WriteOutcome::Done(_) => Ok(moved),
        WriteOutcome::Conflict => Err(Error::new(ErrorKind::Conflict, "the move was changed meanwhile: look again")),
    }
}

/// What is written to the target of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueCopy {
    /// The entries without those of sessions, by key.
    pub entries: Vec<(Key, MetaEntry)>,
    /// The entry with the openings of the copy, which is written last.
    pub openings: (Key, Bytes),
    /// The opening of the copy.
    pub opening: Opening,
    /// The revision of the copy, or a lower bound of it: above all revisions of the original.
    pub revision: Revision,
}

impl CatalogueCopy {
    /// The copy of a sealed catalogue.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is not sealed; damaged entries.
    pub fn of(source: &MetaSnapshot) -> Result<Self> {
        let [seal, openings] = [seal_key()?, Path::CatalogueOpenings.key()?];
        let not_sealed =
            || Error::new(ErrorKind::Invalid, "the catalogue is not sealed, so a copy of it could be incomplete");
        let moved: CatalogueMove = entry::decode(&seal, &source.entry(&seal).ok_or_else(not_sealed)?.value)?;
        let history = match source.entry(&openings) {
            Some(entry) => entry::decode::<OpeningHistory>(&openings, &entry.value)?.with_last_from(entry.revision.0),
            None => OpeningHistory::default(),
        };
        let revision = match planted(Bug::CopyRestartsRevisions) {
            true => source.entries.len() as u64,
            false => source.revision.0.saturating_add(SKIPPED_REVISIONS),
        };
        let history = match planted(Bug::CopyWithoutOpening) {
            true => history,
            false => history.with(moved.opening, revision),
        };
        let is_left_out = |key: &Key, entry: &MetaEntry| {
            *key == seal || *key == openings || entry.session.is_some() && !planted(Bug::SessionsCopied)
        };
        let entries = source.entries.iter().filter(|(key, entry)| !is_left_out(key, entry)).cloned().collect();
        let openings = (openings, entry::encode(&history)?);
        Ok(Self { entries, openings, opening: moved.opening, revision: Revision(revision) })
    }

    /// Bytes of keys and values, with the openings.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let (key, openings) = &self.openings;
        let copied = self.entries.iter().map(|(key, entry)| key.as_str().len() + entry.value.len());
        (copied.sum::<usize>() + key.as_str().len() + openings.len()) as u64
    }

    /// The number of entries, with that of the openings.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.entries.len() as u64 + 1
    }
}

/// Where a copy is made.
pub enum MoveTarget<'a> {
    /// The store of a meta-server.
    Embedded(&'a Store),
    /// A namespace of etcd.
    Etcd(&'a Etcd),
}

/// What the target of a move has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveTargetState {
    /// Nothing.
    Empty,
    /// A copy that was interrupted and is made again.
    Interrupted,
    /// A catalogue with these openings.
    Complete(OpeningHistory),
}

impl MoveTarget<'_> {
    /// What the target has.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if it has something else than a catalogue; those of reading it.
    pub async fn state(&self) -> Result<MoveTargetState> {
        let snapshot = match self {
            Self::Embedded(store) => match Embedded::exists_in(store)? {
                true => Embedded::snapshot_of(store)?,
                false => return Ok(MoveTargetState::Empty),
            },
            Self::Etcd(etcd) => match etcd.copy_state().await? {
                Some(state) => return Ok(state),
                None => etcd.read(Prefix::all()).await?,
            },
        };
        let openings = Path::CatalogueOpenings.key()?;
        let history = snapshot.entry(&openings).map(|entry| entry::decode(&openings, &entry.value)).transpose()?;
        Ok(MoveTargetState::Complete(history.unwrap_or_default()))
    }

    async fn fill(&self, copy: &CatalogueCopy, on_copied: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
        match self {
            Self::Embedded(store) => {
                Embedded::write_copy(store, copy)?;
                on_copied(copy.bytes(), copy.count());
                Ok(())
            }
            Self::Etcd(etcd) => etcd.write_copy(copy, on_copied).await,
        }
    }
}

/// Moves a catalogue to a target that is empty, or goes on with a move to it that was interrupted. Returns the copy.
///
/// `on_sealed` gets the bytes and entries to copy, `on_copied` those that were copied.
///
/// # Errors
/// [`ErrorKind::Exists`] if the target has another catalogue; as [`seal`]; those of both stores.
pub async fn move_catalogue(
    source: &dyn MetaStore,
    target: &MoveTarget<'_>,
    to: &str,
    on_sealed: &(dyn Fn(u64, u64) + Sync),
    on_copied: &(dyn Fn(u64, u64) + Sync),
) -> Result<CatalogueCopy> {
    // Nothing is sealed for a target that cannot be used.
    check_target(&target.state().await?, known_move(source).await?.map(|moved| moved.opening), to)?;
    let moved = seal(source, to).await?;
    let copy = CatalogueCopy::of(&source.read(Prefix::all()).await?)?;
    on_sealed(copy.bytes(), copy.count());
    let state = target.state().await?;
    if !check_target(&state, Some(moved.opening), to)? {
        target.fill(&copy, on_copied).await?;
    }
    Ok(copy)
}

/// The move of a sealed catalogue; `None` if it is not sealed.
///
/// # Errors
/// Those of the store.
pub async fn known_move(source: &dyn MetaStore) -> Result<Option<CatalogueMove>> {
    let seal = seal_key()?;
    let known = source.get(vec![seal.clone()]).await?;
    known.entry(&seal).map(|entry| Ok(entry::decode(&seal, &entry.value)?)).transpose()
}

/// Checks that a target can be filled. Returns whether it has the copy with this opening already.
fn check_target(state: &MoveTargetState, opening: Option<Opening>, to: &str) -> Result<bool> {
    match state {
        MoveTargetState::Empty | MoveTargetState::Interrupted => Ok(false),
        MoveTargetState::Complete(history) if opening.is_some_and(|opening| history.has(opening)) => Ok(true),
        MoveTargetState::Complete(_) => {
            let what =
                format!("{to} has a catalogue already: move to a new directory, or to another namespace of etcd");
            Err(Error::new(ErrorKind::Exists, what))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
