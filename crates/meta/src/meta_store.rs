//! The trait of stores for the catalogue: ordered keys to values, with revisions.
//!
//! It offers what etcd, an embedded store and a remote meta-server have in common, and no more than the catalogue needs. Every
//! implementation runs the suite in `conformance`.
//!
//! 1. Every write that changes something has a *revision* of its own, larger than all before. An entry has the revision of the
//!    write that last put it.
//! 2. A write takes effect whole or not at all, and only if all its expectations hold. Reads and writes are linearizable: a read sees
//!    every write that ended before the read began.
//! 3. A watch returns every write that touches its keys, once, in order and whole; or it reports that it cannot.
//! 4. A session that is renewed within its time to live lasts; otherwise it ends and its keys are removed together.
//! 5. The loss of a server causes a pause, never a wrong answer. [`ErrorKind::Unknown`] is returned if and only if the outcome of a
//!    write could not be determined.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, Result};

use crate::limits;
use crate::{Key, Prefix};

/// An answer to come. Dropping it gives up waiting: what was sent may still happen.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Counts the writes. It only grows, by one or more from one write to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A session: a life that keys are attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaSessionId(pub u64);

/// A session that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSession {
    /// Its number; no other session has it.
    pub id: MetaSessionId,
    /// It ends when it is not kept for so long: at least what was asked for. Its holder counts from when it *sent* the
    /// last call that kept it, so it stops to rely on the session first.
    pub ttl: Duration,
}

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaEntry {
    /// The value.
    pub value: Bytes,
    /// Which write has put it.
    pub revision: Revision,
    /// The session that it vanishes with.
    pub session: Option<MetaSessionId>,
}

/// What was read, all of it as of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaSnapshot {
    /// The last write that is in it, or a later one that changed nothing of it.
    pub revision: Revision,
    /// The entries in the order of their keys.
    pub entries: Vec<(Key, MetaEntry)>,
}

/// What a write expects of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The key.
    pub key: Key,
    /// The revision of its entry; `None` if it shall have no entry.
    pub revision: Option<Revision>,
}

/// What a write does to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Gives it a value, and attaches it to a session or, with `None`, to none.
    Put {
        /// The key.
        key: Key,
        /// Its value from now on.
        value: Bytes,
        /// What it vanishes with.
        session: Option<MetaSessionId>,
    },
    /// Takes its entry away, if it has one.
    Remove {
        /// The key.
        key: Key,
    },
}

/// How a write ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It happened, as this revision; if it changed nothing, as of this revision.
    Done(Revision),
    /// Something is not as it expected. Nothing was changed: read again.
    Conflict,
}

/// A key that a write has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The key.
    pub key: Key,
    /// What it has now; `None` if that was taken away.
    pub entry: Option<MetaEntry>,
}

/// All that one write has changed of what is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// The write's revision.
    pub revision: Revision,
    /// The changed keys, each once.
    pub changes: Vec<ChangedKey>,
}

/// What a watch has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The next write.
    Changed(WatchBatch),
    /// What comes next is no longer known: read again, and watch from there.
    Compacted,
}

/// The writes to some keys, one after the other.
pub trait Watch: Send {
    /// Waits for the next write. Waits as long as nobody can be asked. After [`WatchEvent::Compacted`] it says that again.
    ///
    /// Dropping the answer to come loses nothing: the next call gives it.
    ///
    /// # Errors
    /// Those that waiting does not mend, such as [`ErrorKind::Denied`].
    fn next(&mut self) -> Pending<'_, WatchEvent>;
}

/// What keeps the catalogue. The module's documentation has the rules.
///
/// All calls fail with [`ErrorKind::Unavailable`] if nobody could be asked, and nothing was
/// changed then; with [`ErrorKind::TooLarge`] and
/// [`ErrorKind::Invalid`] if they are against the [`limits`].
pub trait MetaStore: Send + Sync {
    /// All entries whose keys begin so.
    fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot>;

    /// The entries of these keys, as of one revision: those that have one, in the order of the keys.
    fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot>;

    /// Does all changes, if everything is as expected. No key may be named twice by the changes, nor by the expectations.
    ///
    /// Fails with [`ErrorKind::NotFound`] if a key is to be attached to a session that has
    /// ended, and with [`ErrorKind::Unknown`] if the answer was lost and could not be found out.
    fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome>;

    /// The writes to keys that begin so, after a revision.
    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>>;

    /// Opens a session with a time to live within [`limits::TTL`].
    fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession>;

    /// Gives a session its whole time to live again.
    ///
    /// Fails with [`ErrorKind::NotFound`] if it has ended: open another.
    fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()>;

    /// Ends a session: its keys vanish together. One that has ended already is no error.
    fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()>;
}

impl Expect {
    /// The key has no entry.
    #[must_use]
    pub fn absent(key: Key) -> Self {
        Self { key, revision: None }
    }

    /// The key's entry is the one of this revision.
    #[must_use]
    pub fn at(key: Key, revision: Revision) -> Self {
        Self { key, revision: Some(revision) }
    }
}

impl KeyChange {
    /// Gives a key a value that stays.
    #[must_use]
    pub fn put(key: Key, value: impl Into<Bytes>) -> Self {
        Self::Put { key, value: value.into(), session: None }
    }

    /// Gives a key a value that vanishes with a session.
    #[must_use]
    pub fn attach(key: Key, value: impl Into<Bytes>, session: MetaSessionId) -> Self {
        Self::Put { key, value: value.into(), session: Some(session) }
    }

    /// Takes a key's entry away.
    #[must_use]
    pub fn remove(key: Key) -> Self {
        Self::Remove { key }
    }

    /// The key that is changed.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Remove { key } => key,
        }
    }

    fn byte_len(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.as_str().len() + value.len(),
            Self::Remove { key } => key.as_str().len(),
        }
    }
}

impl MetaSnapshot {
    /// The entry of a key.
    #[must_use]
    pub fn entry(&self, key: &Key) -> Option<&MetaEntry> {
        let at = self.entries.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        Some(&self.entries[at].1)
    }
}

/// Checks a write against the limits, for those who implement [`MetaStore::write`].
///
/// # Errors
/// [`ErrorKind::TooLarge`] and [`ErrorKind::Invalid`], with words.
pub fn check_write(expects: &[Expect], changes: &[KeyChange]) -> Result<()> {
    if expects.len() > limits::EXPECTS || changes.len() > limits::CHANGES {
        let (most_expects, most_changes) = (limits::EXPECTS, limits::CHANGES);
        return Err(too_large(format!(
            "a write to the catalogue may expect {most_expects} keys and change {most_changes}; \
             this one expects {} and changes {}: split it",
            expects.len(),
            changes.len()
        )));
    }
    for change in changes {
        if let KeyChange::Put { key, value, .. } = change
            && value.len() > limits::VALUE
        {
            let limit = limits::VALUE;
            return Err(too_large(format!(
                "a value of the catalogue has up to {limit} bytes; that of {key} has {}",
                value.len()
            )));
        }
    }
    let bytes: usize = changes.iter().map(KeyChange::byte_len).sum();
    if bytes > limits::WRITE {
        let limit = limits::WRITE;
        return Err(too_large(format!(
            "a write to the catalogue has up to {limit} bytes; this one has {bytes}: split it"
        )));
    }
    let expected: BTreeSet<&Key> = expects.iter().map(|expect| &expect.key).collect();
    let changed: BTreeSet<&Key> = changes.iter().map(KeyChange::key).collect();
    if expected.len() != expects.len() || changed.len() != changes.len() {
        return Err(Error::new(ErrorKind::Invalid, "a write to the catalogue names a key twice"));
    }
    Ok(())
}

/// Checks how many keys are to be got.
///
/// # Errors
/// [`ErrorKind::TooLarge`].
pub fn check_get(keys: &[Key]) -> Result<()> {
    if keys.len() > limits::CHANGES {
        let limit = limits::CHANGES;
        return Err(too_large(format!("{limit} keys of the catalogue can be got at a time, not {}", keys.len())));
    }
    Ok(())
}

/// Checks a session's time to live.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub fn check_ttl(ttl: Duration) -> Result<()> {
    if !limits::TTL.contains(&ttl) {
        let (least, most) = (limits::TTL.start(), limits::TTL.end());
        let message = format!("a session lives {least:?} to {most:?} without being kept, not {ttl:?}");
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// The error for a session that is not there.
#[must_use]
pub fn session_ended(session: MetaSessionId) -> Error {
    let message = format!("session {} has ended: it was not kept in time, or was closed; open another", session.0);
    Error::new(ErrorKind::NotFound, message)
}

/// The error for a read of more than [`limits::READ`].
#[must_use]
pub fn read_too_large(prefix: &Prefix) -> Error {
    let (prefix, limit) = (prefix.as_str(), limits::READ);
    too_large(format!("what begins with {prefix:?} in the catalogue has more than {limit} bytes: read it in parts"))
}

fn too_large(message: String) -> Error {
    Error::new(ErrorKind::TooLarge, message)
}
