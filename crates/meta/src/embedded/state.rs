//! The catalogue in memory. A write changes the rows first and becomes visible when they are durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::time::Instant;

use super::history::History;
use super::rows::{self, Row, RowChange};
use crate::catalogue_move;
use crate::plant::{Bug, planted};
use crate::{
    ChangedKey, Expect, Key, KeyChange, MetaEntry, MetaSession, MetaSessionId, MetaSnapshot, Prefix, Revision,
    WatchBatch, limits, meta_store,
};

/// The visible state. It contains only durable writes.
pub(super) struct EmbeddedState {
    revision: Revision,
    keys: BTreeMap<Key, StoredEntry>,
    bytes: usize,
    last_row: u64,
    last_session: u64,
    sessions: BTreeMap<MetaSessionId, OpenSession>,
    history: History,
}

/// An entry, and the number of its row.
struct StoredEntry {
    entry: MetaEntry,
    row: u64,
}

/// An open session.
struct OpenSession {
    ttl: Duration,
    /// When it ends unless it is renewed.
    deadline: Instant,
    /// Whether it has expired. Its keys are removed when that can be made durable.
    is_ending: bool,
    keys: BTreeSet<Key>,
}

/// A write that was validated against all earlier ones, with its effects.
pub(super) struct PreparedWrite {
    batch: WatchBatch,
    rows: Vec<RowChange>,
    /// Row numbers of keys that had no row.
    new_rows: BTreeMap<Key, u64>,
    last_row: u64,
    last_session: u64,
    opened: Option<MetaSession>,
    ended: Option<MetaSessionId>,
}

impl PreparedWrite {
    /// Takes the rows that must be durable before the write is applied.
    pub(super) fn take_rows(&mut self) -> Vec<RowChange> {
        std::mem::take(&mut self.rows)
    }

    /// The revision of the write.
    pub(super) fn revision(&self) -> Revision {
        self.batch.revision
    }
}

impl EmbeddedState {
    /// Loads the state from rows. All sessions are renewed, because their holders could not renew them while this process was down.
    pub(super) fn load(rows: &dyn rows::Rows, now: Instant) -> Result<Self> {
        let mut catalogue = Self {
            revision: Revision(0),
            keys: BTreeMap::new(),
            bytes: 0,
            last_row: 0,
            last_session: 0,
            sessions: BTreeMap::new(),
            history: History::after(Revision(0)),
        };
        rows.load(&mut |name, value| {
            match rows::parse(name, value)? {
                Row::Header { revision, last_row, last_session } => {
                    (catalogue.revision, catalogue.last_row, catalogue.last_session) =
                        (revision, last_row, last_session);
                    catalogue.history = History::after(revision);
                }
                Row::Entry { row, key, entry } => {
                    catalogue.bytes += bytes(&key, &entry);
                    catalogue.keys.insert(key, StoredEntry { entry, row });
                }
                Row::Session { id, ttl } => {
                    catalogue.sessions.insert(id, OpenSession::new(ttl, now));
                }
            }
            Ok(())
        })?;
        for (key, kept) in &catalogue.keys {
            let Some(session) = kept.entry.session else { continue };
            let life = catalogue.sessions.get_mut(&session).ok_or_else(|| {
                let message = format!("the catalogue's key {key} belongs to session {}, which has no row", session.0);
                Error::new(ErrorKind::Corrupt, message)
            })?;
            life.keys.insert(key.clone());
        }
        Ok(catalogue)
    }

    // ------------------------------------------------------------------------------------------ reading

    pub(super) fn read(&self, prefix: &Prefix) -> Result<MetaSnapshot> {
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let covered = self.keys.range::<str, _>(from).take_while(|(key, _)| prefix.covers(key));
        let mut total = 0;
        let mut entries = Vec::new();
        for (key, kept) in covered {
            total += bytes(key, &kept.entry);
            if total > limits::READ {
                return Err(meta_store::read_too_large(prefix));
            }
            entries.push((key.clone(), kept.entry.clone()));
        }
        Ok(MetaSnapshot { revision: self.revision, entries })
    }

    pub(super) fn get(&self, mut keys: Vec<Key>) -> MetaSnapshot {
        keys.sort_unstable();
        keys.dedup();
        let found = keys.into_iter().filter_map(|key| self.keys.get(&key).map(|kept| (key, kept.entry.clone())));
        MetaSnapshot { revision: self.revision, entries: found.collect() }
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn forget(&mut self, up_to: Revision) {
        self.history.forget(up_to);
    }

    // ------------------------------------------------------------------------------------------ writing

    /// Validates a write and computes its effects; `None` if an expectation does not hold.
    pub(super) fn prepare(&self, expects: &[Expect], changes: Vec<KeyChange>) -> Result<Option<PreparedWrite>> {
        if let Some(seal) = self.keys.get(&catalogue_move::seal_key()?)
            && !catalogue_move::is_cancellation(&changes)
            && !planted(Bug::SealIgnored)
        {
            return Err(catalogue_move::sealed_error(&seal.entry.value));
        }
        let is_as_expected =
            |expect: &Expect| self.keys.get(&expect.key).map(|kept| kept.entry.revision) == expect.revision;
        if !expects.iter().all(is_as_expected) {
            return Ok(None);
        }
        let revision = Revision(self.revision.0 + 1);
        let mut prepared = self.prepare_empty();
        let mut total = self.bytes;
        for change in changes {
            let known = self.keys.get(change.key());
            total -= known.map_or(0, |kept| bytes(change.key(), &kept.entry));
            match change {
                KeyChange::Put { key, value, session } => {
                    if let Some(session) = session {
                        let life = self.require_session(session)?;
                        if life.keys.len() + prepared.rows.len() >= limits::SESSION_KEYS {
                            return Err(too_many_keys(session));
                        }
                    }
                    let row = known.map_or(prepared.last_row + 1, |kept| kept.row);
                    if known.is_none() {
                        prepared.last_row = row;
                        prepared.new_rows.insert(key.clone(), row);
                    }
                    let entry = MetaEntry { value, revision, session };
                    total += bytes(&key, &entry);
                    prepared.rows.push(rows::entry(row, &key, &entry));
                    prepared.batch.changes.push(ChangedKey { key, entry: Some(entry) });
                }
                KeyChange::Remove { key } => {
                    if let Some(kept) = known {
                        prepared.rows.push(rows::entry_removal(kept.row));
                        prepared.batch.changes.push(ChangedKey { key, entry: None });
                    }
                }
            }
        }
        if total > limits::TOTAL {
            let limit = limits::TOTAL;
            let message = format!("the catalogue would have {total} bytes; {limit} are allowed: remove unused entries");
            return Err(Error::new(ErrorKind::Full, message));
        }
        self.finish(&mut prepared);
        Ok(Some(prepared))
    }

    pub(super) fn prepare_opening(&self, ttl: Duration) -> Result<(MetaSession, PreparedWrite)> {
        if self.sessions.len() >= limits::SESSIONS {
            let message = format!("there are {} sessions, the maximum: try again later", limits::SESSIONS);
            return Err(Error::new(ErrorKind::Full, message));
        }
        let mut prepared = self.prepare_empty();
        prepared.last_session += 1;
        let session = MetaSession { id: MetaSessionId(prepared.last_session), ttl };
        prepared.rows.push(rows::session(session.id, Some(ttl)));
        prepared.opened = Some(session);
        self.finish(&mut prepared);
        Ok((session, prepared))
    }

    /// Computes the effects of the end of a session; `None` if there is no such session.
    pub(super) fn prepare_end(&self, session: MetaSessionId) -> Option<PreparedWrite> {
        let life = self.sessions.get(&session)?;
        let mut prepared = self.prepare_empty();
        for key in &life.keys {
            // Every key of a session has an entry.
            prepared.rows.extend(self.keys.get(key).map(|kept| rows::entry_removal(kept.row)));
            prepared.batch.changes.push(ChangedKey { key: key.clone(), entry: None });
        }
        prepared.rows.push(rows::session(session, None));
        prepared.ended = Some(session);
        self.finish(&mut prepared);
        Some(prepared)
    }

    fn prepare_empty(&self) -> PreparedWrite {
        PreparedWrite {
            batch: WatchBatch { revision: self.revision, changes: Vec::new() },
            rows: Vec::new(),
            new_rows: BTreeMap::new(),
            last_row: self.last_row,
            last_session: self.last_session,
            opened: None,
            ended: None,
        }
    }

    fn finish(&self, prepared: &mut PreparedWrite) {
        if !prepared.batch.changes.is_empty() {
            prepared.batch.revision = Revision(self.revision.0 + 1);
        }
        if !prepared.rows.is_empty() {
            prepared.rows.push(rows::header(prepared.batch.revision, prepared.last_row, prepared.last_session));
        }
    }

    /// Makes a prepared and durable write visible. No other write was applied since it was prepared.
    pub(super) fn apply(&mut self, prepared: PreparedWrite, now: Instant) {
        (self.last_row, self.last_session) = (prepared.last_row, prepared.last_session);
        if let Some(session) = prepared.opened {
            self.sessions.insert(session.id, OpenSession::new(session.ttl, now));
        }
        for changed in &prepared.batch.changes {
            let before = self.keys.remove(&changed.key);
            if let Some(before) = &before {
                self.bytes -= bytes(&changed.key, &before.entry);
                self.detach(&changed.key, before.entry.session);
            }
            let Some(entry) = changed.entry.clone() else { continue };
            let row = before.map(|kept| kept.row).or_else(|| prepared.new_rows.get(&changed.key).copied());
            let Some(row) = row else { continue };
            self.bytes += bytes(&changed.key, &entry);
            if let Some(life) = entry.session.and_then(|session| self.sessions.get_mut(&session)) {
                life.keys.insert(changed.key.clone());
            }
            self.keys.insert(changed.key.clone(), StoredEntry { entry, row });
        }
        if let Some(session) = prepared.ended {
            self.sessions.remove(&session);
        }
        if !prepared.batch.changes.is_empty() {
            self.revision = prepared.batch.revision;
            self.history.push(prepared.batch);
        }
    }

    fn detach(&mut self, key: &Key, session: Option<MetaSessionId>) {
        if let Some(life) = session.and_then(|session| self.sessions.get_mut(&session)) {
            life.keys.remove(key);
        }
    }

    // ------------------------------------------------------------------------------------------ sessions

    fn require_session(&self, session: MetaSessionId) -> Result<&OpenSession> {
        let life = self.sessions.get(&session).filter(|life| !life.is_ending);
        life.ok_or_else(|| meta_store::session_ended(session))
    }

    pub(super) fn renew_session(&mut self, session: MetaSessionId, now: Instant) -> Result<()> {
        let life = self.sessions.get_mut(&session).filter(|life| !life.is_ending);
        let life = life.ok_or_else(|| meta_store::session_ended(session))?;
        life.deadline = now + life.ttl;
        Ok(())
    }

    /// When the next session expires, or its end is tried again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sessions.values().map(|life| life.deadline).min()
    }

    /// Renews all sessions, because this process could not receive renewals.
    pub(super) fn renew_all_sessions(&mut self, now: Instant) {
        for life in self.sessions.values_mut() {
            life.deadline = now + life.ttl;
        }
    }

    /// Returns the sessions that have expired, which cannot be renewed any more. Those whose end fails are returned again after the
    /// pause `again`.
    pub(super) fn expire(&mut self, now: Instant, again: Duration) -> Vec<MetaSessionId> {
        let mut over = Vec::new();
        for (id, life) in &mut self.sessions {
            if life.deadline <= now {
                life.is_ending = true;
                life.deadline = now + again;
                over.push(*id);
            }
        }
        over
    }
}

impl OpenSession {
    fn new(ttl: Duration, now: Instant) -> Self {
        Self { ttl, deadline: now + ttl, is_ending: false, keys: BTreeSet::new() }
    }
}

fn bytes(key: &Key, entry: &MetaEntry) -> usize {
    key.as_str().len() + entry.value.len()
}

fn too_many_keys(session: MetaSessionId) -> Error {
    let limit = limits::SESSION_KEYS;
    Error::new(ErrorKind::Full, format!("session {} has the {limit} keys that a session may have", session.0))
}
