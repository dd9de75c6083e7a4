//! Moves logical nodes to another brick: sends their rows.

use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ContentId, NodeId, Result};
use protocol::lease::Ms;
use store::Snapshot;
use wire::cluster::{CopiedRows, CopyRows};

use super::MoveLimits;
use crate::brick::changed_contents::{self, ChangedPart};
use crate::brick::changed_rows::{ChangedRows, changes_unknown_error};
use crate::brick::content_rows;
use crate::brick::page_rows::{self as rows, Key};
use crate::brick::plant::{Bug, planted};

/// A logical node that is sealed and has no rows in flight.
#[derive(Debug)]
pub(super) struct SealedNode {
    pub(super) epoch: u64,
    pub(super) changed_rows: Option<ChangedRows>,
    /// When the new brick last requested rows.
    pub(super) asked_at: Ms,
}

/// Where the changed rows of a node are that another brick copies.
pub(crate) enum CopySource<'a> {
    /// At its driver, which serves it.
    Served,
    /// At the manager: the node is sealed under this epoch.
    Sealed { epoch: u64, changed_rows: &'a mut ChangedRows },
}

/// The changed rows of an attempt: from its first request on, which has no answers.
///
/// # Errors
/// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if they are not known.
pub(crate) fn begin_attempt(changed: &mut Option<ChangedRows>, attempt: u64, got: u64) -> Result<&mut ChangedRows> {
    if got == 0 && changed.as_ref().is_none_or(|changed| !changed.is_of_attempt(attempt)) {
        *changed = Some(ChangedRows::new(attempt));
    }
    changed.as_mut().ok_or_else(changes_unknown_error)
}

/// The answer to a request for rows, while it is made.
///
/// It begins and ends with the changed rows of the node locked, and reads in between.
pub(crate) struct RowCopy<'a> {
    asked: &'a CopyRows,
    /// The epoch of the node's seal, if it is sealed.
    sealed: Option<u64>,
    limits: MoveLimits,
    keys: Vec<Key>,
    /// How many of the keys were read.
    read: usize,
    /// A key of which only a part was read, and that part. The key of the rest is the next one to be read.
    split: Option<(Key, Key)>,
    copied: CopiedRows,
    bytes: usize,
}

impl<'a> RowCopy<'a> {
    /// Takes the keys of changed rows. They are durable, so a snapshot of the store that is made later has their rows.
    ///
    /// # Errors
    /// As [`ChangedRows::begin_answer`].
    pub(crate) fn begin(
        asked: &'a CopyRows,
        sealed: Option<u64>,
        changed: &mut ChangedRows,
        limits: MoveLimits,
    ) -> Result<Self> {
        changed.begin_answer(asked.attempt, asked.number, asked.last_answered)?;
        let unreached = asked.from.as_deref().map(changed_contents::unreached_key).transpose()?;
        let keys = changed.take(unreached.as_deref(), limits.answer_rows);
        Ok(Self { asked, sealed, limits, keys, read: 0, split: None, copied: CopiedRows::default(), bytes: 0 })
    }

    /// Reads as many rows as fit.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn read(&mut self, snapshot: &Snapshot) -> Result<()> {
        while self.read < self.keys.len() && !self.is_full() {
            let key = self.keys[self.read].clone();
            if let Some((id, part)) = ChangedPart::parse(&key)? {
                if let Some(rest) = self.read_part(snapshot, id, part.clone())? {
                    self.keys[self.read] = rest.key(id);
                    self.split = part.before(&rest).map(|part| (key, part.key(id)));
                    break;
                }
            } else {
                self.push(&key, snapshot.row(&key)?);
            }
            self.read += 1;
        }
        match &self.asked.from {
            Some(from) => self.read_range(snapshot, self.asked.node, from),
            None => Ok(()),
        }
    }

    /// Reads as many rows of what has changed of a content as fit. Returns what is left.
    fn read_part(&mut self, snapshot: &Snapshot, id: ContentId, part: ChangedPart) -> Result<Option<ChangedPart>> {
        // The copy reaches the chunks from there on later.
        let end = match content_rows::parse(self.asked.from.as_deref().unwrap_or_default())? {
            Some((reached, chunk)) if reached == id => chunk,
            _ => None,
        };
        part.read((snapshot, id), end, |key, value| {
            self.push(&key, value);
            if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn push(&mut self, key: &[u8], value: Option<Bytes>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        self.copied.rows.push((Bytes::copy_from_slice(key), value));
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.limits.answer_bytes || self.copied.rows.len() >= self.limits.answer_rows
    }

    /// Reads as many rows of a logical node from a key on as fit.
    fn read_range(&mut self, snapshot: &Snapshot, node: NodeId, from: &[u8]) -> Result<()> {
        for (start, end) in rows::ranges(node).filter(|(_, end)| from < &end[..]) {
            let start = if from > &start[..] { from } else { &start[..] };
            snapshot.rows(start, &end, |key, row| {
                if self.is_full() {
                    self.copied.next = Some(Bytes::copy_from_slice(key));
                    return ControlFlow::Break(());
                }
                self.push(key, Some(Bytes::copy_from_slice(row)));
                ControlFlow::Continue(())
            })?;
            if self.copied.next.is_some() {
                return Ok(());
            }
        }
        if planted(Bug::ContentsNotMoved) {
            return Ok(());
        }
        content_rows::each(snapshot, node, from, |key, value| {
            if self.is_full() {
                self.copied.next = Some(Bytes::copy_from_slice(key));
                return ControlFlow::Break(());
            }
            self.push(key, Some(value));
            ControlFlow::Continue(())
        })
    }

    /// Puts back the keys that did not fit, and marks the last rows of a sealed node.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) if another request has arrived in the meantime.
    pub(crate) fn end(mut self, changed: &mut ChangedRows, sealed: Option<u64>) -> Result<CopiedRows> {
        let answer = (self.asked.attempt, self.asked.number);
        self.copied.changed = changed.put_back(answer, &self.keys[self.read..])?;
        if let Some((whole, part)) = self.split {
            changed.split_sent(&whole, part);
        }
        let is_all = self.copied.next.is_none() && (self.copied.changed == 0 || planted(Bug::LastBeforeAll));
        self.copied.sealed = sealed.filter(|epoch| is_all && self.sealed == Some(*epoch));
        Ok(self.copied)
    }
}
