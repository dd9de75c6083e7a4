//! The trait of stores for the catalogue: ordered keys to values, with revisions.
//!
//! It offers what etcd, an embedded store and a remote meta-server have in common, and no more than the catalogue needs. Every
//! implementation runs the suite in `conformance`.
//!
//! 1. Every write that changes something has a *revision* of its own, larger than all before. An entry has the revision of the
//!    write that last put it.
//! 2. A write takes effect whole or not at all, and only if all its expectations hold. Reads and writes are
//!    linearizable: a read sees every write that ended before the read began.
//! 3. A watch returns every write that touches its keys, once, in order and whole; or it reports that it cannot.
//! 4. A session that is renewed within its time to live lasts; otherwise it ends and its keys are removed together.
//! 5. The loss of a server causes a pause, never a wrong answer. [`ErrorKind::Unknown`] is returned if and only if the outcome of a
//!    write could not be determined.
//! 6. A catalogue with the entry `moved` is sealed: it refuses every write with [`ErrorKind::Denied`], except the one that removes only this
//!    entry. The check and the write are one step.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, Result};

use crate::limits;
use crate::{Key, Prefix};

/// A pending result. Dropping it stops waiting; a request that was sent may still take effect.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The number of a write. It increases from one write to the next, not always by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The number of a session, to which keys can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaSessionId(pub u64);

/// A session that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSession {
    /// Its number, which is never reused.
    pub id: MetaSessionId,
    /// The session ends when it is not renewed for this long, which is at least the requested time. Its holder counts from when it
    /// *sent* the last renewal, so it stops relying on the session first.
    pub ttl: Duration,
}

/// The entry of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaEntry {
    /// The value.
    pub value: Bytes,
    /// The revision of the write that last put it.
    pub revision: Revision,
    /// The session with which it is removed; `None` if it stays.
    pub session: Option<MetaSessionId>,
}

/// The result of a read, as of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaSnapshot {
    /// The revision of the read. Later writes up to it have not changed the entries.
    pub revision: Revision,
    /// The entries in the order of their keys.
    pub entries: Vec<(Key, MetaEntry)>,
}

/// A condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The key.
    pub key: Key,
    /// The revision of its entry; `None` if it must have no entry.
    pub revision: Option<Revision>,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Sets the value, and attaches the key to a session or, with `None`, to none.
    Put {
        /// The key.
        key: Key,
        /// The value.
        value: Bytes,
        /// The session with which the key is removed.
        session: Option<MetaSessionId>,
    },
    /// Removes the entry, if there is one.
    Remove {
        /// The key.
        key: Key,
    },
}

/// The outcome of a write.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write took effect with this revision. If it changed nothing, this is the revision as of which that holds.
    Done(Revision),
    /// An expectation does not hold. Nothing was changed: read again.
    Conflict,
}

/// A change of a key, as watches report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The new entry; `None` if it was removed.
    pub key: Key,
    /// What it has now; `None` if that was taken away.
    pub entry: Option<MetaEntry>,
}

/// All changes of one write to the watched keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// The write's revision.
    pub revision: Revision,
    /// The changed keys, each once.
    pub changes: Vec<ChangedKey>,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The next write.
    Changed(WatchBatch),
    /// Later changes are no longer known: read again, and watch from the revision of that read.
    Compacted,
}

/// A stream of the writes to some keys.
pub trait Watch: Send {
    /// Waits for the next write, also while no server is reachable. After [`WatchEvent::Compacted`] every call returns it again.
    ///
    /// Dropping the pending result loses no event: the next call returns it. But the time after which a silent server is given up may begin
    /// again with each call.
    ///
    /// # Errors
    /// Permanent errors, such as [`ErrorKind::Denied`].
    fn next(&mut self) -> Pending<'_, WatchEvent>;
}

/// A store for the catalogue. The module's documentation has the rules.
///
/// All calls fail with [`ErrorKind::Unavailable`] if no server was reachable, and nothing was changed then; with
/// [`ErrorKind::TooLarge`] and [`ErrorKind::Invalid`] if they violate the [`limits`].
pub trait MetaStore: Send + Sync {
    /// Reads the entries whose keys have a prefix.
    fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot>;

    /// Reads the entries of these keys as of one revision, in the order of the keys. Keys without an entry are left out.
    fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot>;

    /// Makes all changes if all expectations hold. Changes and expectations name each key at most once.
    ///
    /// Fails with [`ErrorKind::NotFound`] if a key is attached to a session that has ended, and with [`ErrorKind::Unknown`] if the
    /// outcome could not be determined.
    fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome>;

    /// Watches the writes after a revision to keys with a prefix.
    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>>;

    /// Opens a session with a time to live within [`limits::TTL`].
    fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession>;

    /// Renews a session for its whole time to live.
    ///
    /// Fails with [`ErrorKind::NotFound`] if it has ended: open another one.
    fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()>;

    /// Ends a session and removes its keys together. Succeeds if the session has ended already.
    fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()>;
}

impl Expect {
    /// Expects that the key has no entry.
    #[must_use]
    pub fn absent(key: Key) -> Self {
        Self { key, revision: None }
    }

    /// Expects that the key's entry has this revision.
    #[must_use]
    pub fn at(key: Key, revision: Revision) -> Self {
        Self { key, revision: Some(revision) }
    }
}

impl KeyChange {
    /// Sets the value of a key that stays.
    #[must_use]
    pub fn put(key: Key, value: impl Into<Bytes>) -> Self {
        Self::Put { key, value: value.into(), session: None }
    }

    /// Sets the value of a key that is removed with a session.
    #[must_use]
    pub fn attach(key: Key, value: impl Into<Bytes>, session: MetaSessionId) -> Self {
        Self::Put { key, value: value.into(), session: Some(session) }
    }

    /// Removes the entry of a key.
    #[must_use]
    pub fn remove(key: Key) -> Self {
        Self::Remove { key }
    }

    /// The key that changes.
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

/// Checks a write against the limits, for implementations of [`MetaStore::write`].
///
/// # Errors
/// [`ErrorKind::TooLarge`] and [`ErrorKind::Invalid`].
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

/// Checks the number of keys of one [`MetaStore::get`].
///
/// # Errors
/// [`ErrorKind::TooLarge`].
pub fn check_get(keys: &[Key]) -> Result<()> {
    if keys.len() > limits::CHANGES {
        let limit = limits::CHANGES;
        return Err(too_large(format!("a read of the catalogue may name {limit} keys; this one names {}", keys.len())));
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
        let message = format!("the time to live of a session must be {least:?} to {most:?}, not {ttl:?}");
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// The error for a session that does not exist.
#[must_use]
pub fn session_ended(session: MetaSessionId) -> Error {
    let message =
        format!("session {} has ended: it was not renewed in time, or was closed; open another one", session.0);
    Error::new(ErrorKind::NotFound, message)
}

/// The error for a read of more than [`limits::READ`].
#[must_use]
pub fn read_too_large(prefix: &Prefix) -> Error {
    let (prefix, limit) = (prefix.as_str(), limits::READ);
    too_large(format!(
        "the entries of the catalogue with prefix {prefix:?} have more than {limit} bytes: read them in parts"
    ))
}

fn too_large(message: String) -> Error {
    Error::new(ErrorKind::TooLarge, message)
}
