//! Applying a transaction: computes the rows that its steps change in a given state.
//!
//! The same code applies new transactions and replays logged ones, so recovery restores what was acknowledged. It does not
//! change the state: it returns the changed rows only if every step succeeds.

use model::Result;
use parking_lot::MutexGuard;

use crate::log::entry::Step;
use crate::read::layers::Layers;
use crate::rows::changes::Changes;
use crate::rows::key::{self, Key};
use crate::rows::mob::{Row, Seq};
use crate::rows::slab::Slabs;

mod contents;

/// A transaction that is being applied.
pub(crate) struct Applier<'a> {
    /// The state before the transaction; `changes` is filled in for each look-up.
    below: Layers<'a>,
    changes: Changes,
    seq: Seq,
    /// Contents that the transaction has created.
    content_count: u16,
    /// Memory for the rows.
    slabs: MutexGuard<'a, Slabs>,
}

impl<'a> Applier<'a> {
    /// The rows that `steps` change, applied at position `seq` to the state `below`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) and [`ErrorKind::Exists`](model::ErrorKind::Exists), naming the
    /// content; [`ErrorKind::Corrupt`](model::ErrorKind::Corrupt) if a row that the steps need is damaged.
    pub(crate) fn run(below: Layers<'a>, seq: Seq, steps: &[Step]) -> Result<Changes> {
        let slabs = below.active.slabs.lock();
        let mut applier = Self { below, changes: Changes::default(), seq, content_count: 0, slabs };
        steps.iter().try_for_each(|step| applier.step(step))?;
        Ok(applier.changes)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::CreateContent { id, content } => self.create(*id, content),
            Step::TakeUpload { id, data, size, first, tail } => self.take_upload(*id, *data, *size, first, tail),
            Step::Write { id, offset, bytes } => self.write(*id, *offset, bytes),
            Step::WriteChunks { id, index, extents } => self.write_chunks(*id, *index, extents),
            Step::Truncate { id, size } => self.truncate(*id, *size),
            Step::Zero { id, offset, len } => self.zero(*id, *offset, *len),
            Step::Resize { id, size } => self.resize(*id, *size),
            Step::Delete { id } => self.delete(*id),
            Step::Stage { data, index, extents } => {
                self.stage(*data, *index, extents);
                Ok(())
            }
            Step::Reclaim { data, from, to, done } => self.reclaim(*data, *from, *to, *done),
            Step::Open { incarnation } => {
                self.put(Key::system(key::INCARNATION), &incarnation.to_be_bytes());
                Ok(())
            }
            Step::Rows(rows) => {
                for change in rows {
                    let (key, row) = change.clone().into_row(&mut self.slabs);
                    self.changes.insert(key, row);
                }
                Ok(())
            }
        }
    }

    /// The state as the transaction has changed it so far.
    fn layers(&self) -> Layers<'_> {
        Layers {
            changes: Some(&self.changes),
            active: self.below.active,
            frozen: self.below.frozen,
            at: self.below.at,
            engine: self.below.engine,
            files: self.below.files,
        }
    }

    /// Sets a row.
    fn put(&mut self, key: Key, bytes: &[u8]) {
        let mut row = self.slabs.row(bytes.len());
        row.extend_from_slice(bytes);
        self.changes.insert(key, Row::Value(row.freeze()));
    }
}
