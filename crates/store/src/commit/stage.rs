//! Staging: turns the operations of a transaction into steps for the log. Checks every limit and writes whole chunks to
//! a blob file, so that their bytes do not go through the log.

use bytes::Bytes;
use model::{Kind, Name, Op, Result, Transaction, limits};

use super::Core;
use crate::content::blob_file::BlobFiles;
use crate::error::{invalid, too_large};
use crate::log::entry::{StagedContent, Step};
use crate::rows::key::DataId;
use crate::rows::row::{CHUNK, Extent};

/// Steps and the chunks that were staged for them. The chunks are freed unless the transaction is logged.
pub(crate) struct StagedTransaction<'a> {
    pub(crate) steps: Vec<Step>,
    pub(crate) extents: Vec<Extent>,
    files: Option<&'a BlobFiles>,
    /// Uploads whose content is not garbage until this is dropped.
    pub(super) taken_uploads: Vec<DataId>,
    core: &'a Core,
}

impl StagedTransaction<'_> {
    /// The steps, chunks and uploads. The caller becomes responsible for them.
    pub(crate) fn take_parts(&mut self) -> (Vec<Step>, Vec<Extent>, Vec<DataId>) {
        let uploads = std::mem::take(&mut self.taken_uploads);
        (std::mem::take(&mut self.steps), std::mem::take(&mut self.extents), uploads)
    }
}

impl Drop for StagedTransaction<'_> {
    fn drop(&mut self) {
        if let Some(files) = self.files {
            files.discard(&self.extents);
        }
        self.core.uploads.release(&self.taken_uploads);
    }
}

/// Checks a transaction and stages its whole chunks. The committer forces them before the transaction is logged. Chunks
/// of an append are staged for the current end of the blob.
pub(crate) fn stage<'a>(core: &'a Core, transaction: Transaction) -> Result<StagedTransaction<'a>> {
    check(&transaction)?;
    let mut staged = StagedTransaction::new(core);
    staged.steps.reserve(transaction.ops.len());
    for op in transaction.ops {
        staged.stage_op(core, op)?;
    }
    Ok(staged)
}

impl<'a> StagedTransaction<'a> {
    /// Without steps.
    pub(super) fn new(core: &'a Core) -> Self {
        let (steps, extents, taken_uploads) = (Vec::new(), Vec::new(), Vec::new());
        Self { steps, extents, files: core.state.files(), taken_uploads, core }
    }
}

impl StagedTransaction<'_> {
    pub(super) fn stage_op(&mut self, core: &Core, op: Op) -> Result<()> {
        let step = match op {
            Op::Create { oid, kind, data, near } => {
                Step::Create { oid, kind, near, content: self.stage_content(data)? }
            }
            Op::Put { oid, data } => Step::Put { oid, content: self.stage_content(data)? },
            Op::PutUpload { oid, upload } => {
                let finished = core.finish_upload(upload)?;
                self.taken_uploads.push(finished.data);
                self.extents.extend_from_slice(&finished.unlogged);
                self.steps.extend(finished.into_steps(oid));
                return Ok(());
            }
            Op::Write { oid, offset, data } => return self.stage_write(oid, offset, data),
            Op::Append { oid, data } => {
                let end = aligned_end(core, oid, data.len())?;
                let content = match end {
                    Some(_) => self.stage_content(data)?,
                    None => StagedContent { extents: Vec::new(), bytes: data },
                };
                Step::Append { oid, at: end, content }
            }
            Op::Truncate { oid, size } => Step::Truncate { oid, size },
            Op::Zero { oid, offset, len } => Step::Zero { oid, offset, len },
            Op::Clone { from, to } => Step::Clone { from, to },
            Op::Delete { oid } => Step::Delete { oid },
            Op::SetAttribute { oid, key, value } => Step::SetAttribute { oid, key, value },
            Op::RemoveAttribute { oid, key } => Step::RemoveAttribute { oid, key },
            Op::Add { collection, member } => Step::Add { collection, member },
            Op::Remove { collection, member } => Step::Remove { collection, member },
            Op::Bind { name, oid } => Step::Bind { name, oid },
            Op::Unbind { name } => Step::Unbind { name },
            Op::Expect { oid, version } => Step::Expect { oid, version },
            Op::ExpectName { name, oid } => Step::ExpectName { name, oid },
        };
        self.steps.push(step);
        Ok(())
    }

    /// Stages the whole chunks at the beginning of `data`.
    pub(super) fn stage_content(&mut self, mut data: Bytes) -> Result<StagedContent> {
        let whole = data.len() / CHUNK * CHUNK;
        let extents = match self.files {
            Some(files) if whole > 0 => files.append(&data.split_to(whole))?,
            _ => Vec::new(),
        };
        self.extents.extend_from_slice(&extents);
        Ok(StagedContent { extents, bytes: data })
    }

    /// Splits a write into the bytes before its first whole chunk, the whole chunks, and the bytes after them.
    pub(super) fn stage_write(&mut self, oid: model::Oid, offset: u64, mut data: Bytes) -> Result<()> {
        let before = (offset.next_multiple_of(CHUNK as u64) - offset) as usize;
        if self.files.is_none() || data.len() < before + CHUNK {
            self.steps.push(Step::Write { oid, offset, bytes: data });
            return Ok(());
        }
        let head = data.split_to(before);
        let StagedContent { extents, bytes } = self.stage_content(data)?;
        let index = (offset + before as u64) / CHUNK as u64;
        let behind = (index + extents.len() as u64) * CHUNK as u64;
        if !head.is_empty() {
            self.steps.push(Step::Write { oid, offset, bytes: head });
        }
        self.steps.push(Step::WriteChunks { oid, index, extents });
        if !bytes.is_empty() {
            self.steps.push(Step::Write { oid, offset: behind, bytes });
        }
        Ok(())
    }
}

/// The end of a blob, if it is the beginning of a chunk and `len` more bytes contain a whole chunk.
fn aligned_end(core: &Core, oid: model::Oid, len: usize) -> Result<Option<u64>> {
    if len < CHUNK || oid.is_temporary() || !core.is_durable() {
        return Ok(None);
    }
    let size = core.state.read_row(|layers| Ok(layers.object(oid)?.map(|object| object.head.size)))?;
    Ok(size.filter(|size| size.is_multiple_of(CHUNK as u64)))
}

/// Checks limits that do not depend on stored objects.
fn check(transaction: &Transaction) -> Result<()> {
    if transaction.ops.len() > limits::OPERATIONS {
        let (found, limit) = (transaction.ops.len(), limits::OPERATIONS);
        let message = format!("a transaction has {found} operations; the limit is {limit}: split it");
        return Err(model::Error::new(model::ErrorKind::TooLarge, message));
    }
    let mut total = 0;
    for op in &transaction.ops {
        total += check_op(op)?;
    }
    if total > limits::TRANSACTION {
        return Err(too_large("a transaction", total as u64, limits::TRANSACTION as u64));
    }
    Ok(())
}

/// Checks one operation; returns the number of bytes that it contains.
fn check_op(op: &Op) -> Result<usize> {
    match op {
        Op::Create { kind: Kind::Record, data, .. } if data.len() > limits::RECORD => {
            Err(too_large("a record", data.len() as u64, limits::RECORD as u64))
        }
        Op::Create { data, .. } | Op::Put { data, .. } | Op::Append { data, .. } => Ok(data.len()),
        Op::Write { offset, data, .. } => {
            let end = offset.saturating_add(data.len() as u64);
            if end > limits::BLOB { Err(too_large("a blob", end, limits::BLOB)) } else { Ok(data.len()) }
        }
        Op::SetAttribute { key, value, .. } => {
            check_attribute_key(key)?;
            if value.len() > limits::ATTRIBUTE_VALUE {
                return Err(too_large("an attribute's value", value.len() as u64, limits::ATTRIBUTE_VALUE as u64));
            }
            Ok(key.len() + value.len())
        }
        Op::RemoveAttribute { key, .. } => check_attribute_key(key).map(|()| key.len()),
        Op::Bind { name, .. } | Op::Unbind { name } | Op::ExpectName { name, .. } => {
            check_name(name).map(|()| name.path.len())
        }
        _ => Ok(0),
    }
}

fn check_attribute_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0 => Err(invalid("an attribute's key is empty")),
        1..=limits::ATTRIBUTE_KEY => Ok(()),
        len => Err(too_large("an attribute's key", len as u64, limits::ATTRIBUTE_KEY as u64)),
    }
}

fn check_name(name: &Name) -> Result<()> {
    match name.path.len() {
        0 => Err(invalid("a name is empty")),
        1..=limits::NAME if name.path.contains('\0') => Err(invalid(format!("name {:?} has a NUL in it", name.path))),
        1..=limits::NAME => Ok(()),
        len => Err(too_large("a name", len as u64, limits::NAME as u64)),
    }
}
