//! Applying a transaction: computes the rows that its steps change in a given state.
//!
//! The same code applies new transactions and replays logged ones, so recovery restores what was acknowledged. It does
//! not change the state: it returns the changes only if every step succeeds.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use model::{Conflict, Error, ErrorKind, Kind, Name, NodeId, Oid, PageId, Result, SpaceId, limits};
use parking_lot::MutexGuard;

use super::contents::content_exists;
use crate::error::{corrupt, corrupt_row, invalid, no_object, too_large};
use crate::log::entry::{StagedContent, Step};
use crate::plant::{ContentBug, OperationBug, planted};
use crate::read::layers::{FoundRow, Layers, StoredObject};
use crate::rows::changes::Changes;
use crate::rows::key::{DataId, Key, oid_at};
use crate::rows::mob::{Row, Seq};
use crate::rows::row::{self, CHUNK, Extent, ExtentUse, Head, PageUsage};
use crate::rows::slab::Slabs;

mod content;

/// The target size of all objects of a page together.
const PAGE_BYTES: u32 = 8 << 10;

/// The result of applying a transaction.
pub(crate) enum ApplyOutcome {
    Applied(AppliedChanges),
    Conflict(Conflict),
    /// Chunks were staged for an append, and the end of its blob has moved since.
    EndMoved,
}

/// What an applied transaction changes.
pub(crate) struct AppliedChanges {
    pub(crate) changes: Changes,
    pub(crate) created: Vec<Oid>,
}

/// Why a step failed.
enum StepError {
    Conflict(Conflict),
    EndMoved,
    Error(Error),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

type StepResult<T = ()> = std::result::Result<T, StepError>;

/// A transaction that is being applied.
pub(crate) struct Applier<'a> {
    /// The state before the transaction; `changes` is filled in for each look-up.
    below: Layers<'a>,
    changes: Changes,
    seq: Seq,
    time_us: i64,
    /// The identifiers of created objects, if a logged transaction is replayed.
    assigned_oids: Option<std::vec::IntoIter<Oid>>,
    created: Vec<Oid>,
    /// Temporary identifiers and the identifiers that were assigned to them.
    real_oids: HashMap<Oid, Oid>,
    /// Contents that the transaction has started.
    content_count: u16,
    /// The page for new objects, and the number of the next page.
    open_page: Option<OpenPage>,
    /// Memory for the rows.
    slabs: MutexGuard<'a, Slabs>,
}

/// A page that is being filled.
#[derive(Clone, Copy)]
struct OpenPage {
    page: PageId,
    usage: PageUsage,
    next_page: u64,
    /// What `next_page` was before.
    next_page_before: u64,
}

impl<'a> Applier<'a> {
    /// Applies `steps` at position `seq` to the state `below`. `given` has the identifiers of a logged transaction.
    pub(crate) fn run(
        below: Layers<'a>,
        seq: Seq,
        time_us: i64,
        given: Option<Vec<Oid>>,
        steps: &[Step],
    ) -> Result<ApplyOutcome> {
        let slabs = below.active.slabs.lock();
        let mut apply = Self {
            below,
            changes: Changes::default(),
            seq,
            time_us,
            assigned_oids: given.map(Vec::into_iter),
            created: Vec::new(),
            real_oids: HashMap::new(),
            content_count: 0,
            open_page: None,
            slabs,
        };
        for (i, step) in steps.iter().enumerate() {
            match apply.step(step) {
                Ok(()) => {}
                Err(StepError::Conflict(conflict)) => return Ok(ApplyOutcome::Conflict(conflict)),
                Err(StepError::EndMoved) => return Ok(ApplyOutcome::EndMoved),
                Err(StepError::Error(error)) if steps.len() > 1 => {
                    let message = format!("operation {}: {}", i + 1, error.message());
                    return Err(Error::new(error.kind(), message).caused_by(error));
                }
                Err(StepError::Error(error)) => return Err(error),
            }
        }
        apply.write_open_page();
        Ok(ApplyOutcome::Applied(AppliedChanges { changes: apply.changes, created: apply.created }))
    }

    fn step(&mut self, step: &Step) -> StepResult {
        match step {
            Step::Create { oid, kind, near, content } => self.create(*oid, *kind, *near, content)?,
            Step::CreateContent { id, content } => self.create_content(*id, content)?,
            Step::ResizeContent { id, size } => {
                if self.layers().object(*id)?.is_none() {
                    self.create_content(*id, &StagedContent::default())?;
                }
                self.truncate(*id, *size)?;
            }
            Step::DeleteContent { id } => {
                if self.layers().object(*id)?.is_some() {
                    self.delete(*id)?;
                }
            }
            Step::Put { oid, content } => {
                let oid = self.resolve(*oid)?;
                self.replace(oid, content)?;
            }
            Step::PutStaged { oid, data, size, first, tail } => {
                let oid = self.resolve(*oid)?;
                self.put_staged(oid, *data, *size, first, tail)?;
            }
            Step::Write { oid, offset, bytes } => {
                let oid = self.resolve(*oid)?;
                self.write(oid, *offset, bytes)?;
            }
            Step::WriteChunks { oid, index, extents } => {
                let oid = self.resolve(*oid)?;
                self.write_chunks(oid, *index, extents)?;
            }
            Step::Append { oid, at, content } => {
                let oid = self.resolve(*oid)?;
                let size = self.blob(oid)?.head.size;
                if at.is_some_and(|at| at != size) && !planted(OperationBug::MovedEndIgnored) {
                    return Err(StepError::EndMoved);
                }
                if !content.extents.is_empty() {
                    self.write_chunks(oid, size / CHUNK as u64, &content.extents)?;
                }
                self.write(oid, size + (content.extents.len() * CHUNK) as u64, &content.bytes)?;
            }
            Step::Truncate { oid, size } => {
                let oid = self.resolve(*oid)?;
                self.truncate(oid, *size)?;
            }
            Step::Zero { oid, offset, len } => {
                let oid = self.resolve(*oid)?;
                self.zero(oid, *offset, *len)?;
            }
            Step::Clone { from, to } => {
                let (from, to) = (self.resolve(*from)?, self.resolve(*to)?);
                self.clone_content(from, to)?;
            }
            Step::Delete { oid } => {
                let oid = self.resolve(*oid)?;
                self.delete(oid)?;
            }
            Step::SetAttribute { oid, key, value } => {
                let oid = self.mark_changed(*oid)?;
                let key = Key::attribute(oid, key);
                self.put_sealed(key, value);
            }
            Step::RemoveAttribute { oid, key } => {
                let oid = self.mark_changed(*oid)?;
                self.changes.insert(Key::attribute(oid, key), Row::Tombstone);
            }
            Step::Add { collection, member } => self.set_membership(*collection, *member, true)?,
            Step::Remove { collection, member } => self.set_membership(*collection, *member, false)?,
            Step::Bind { name, oid } => self.bind(name, *oid)?,
            Step::Unbind { name } => self.unbind(name)?,
            Step::Expect { oid, version } => self.expect(*oid, *version)?,
            Step::ExpectName { name, oid } => self.expect_name(name, *oid)?,
            Step::Stage { data, index, extents } => self.stage(*data, *index, extents)?,
            Step::Reclaim { data, from, to, done } => self.reclaim(*data, *from, *to, *done)?,
            Step::CreateSpace { id, name } => {
                self.put_sealed(Key::space(name), &id.to_be_bytes());
            }
            Step::Open { incarnation } => {
                self.put(Key::system("incarnation"), &incarnation.to_be_bytes());
            }
            Step::Rows(changes) => {
                for change in changes {
                    let (key, row) = change.clone().into_row(&mut self.slabs);
                    self.changes.insert(key, row);
                }
            }
        }
        Ok(())
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

    fn resolve(&self, oid: Oid) -> Result<Oid> {
        if !oid.is_temporary() {
            return Ok(oid);
        }
        if let Some(real) = self.real_oids.get(&oid) {
            return Ok(*real);
        }
        // Contents have keys that no object has.
        if self.layers().object(oid)?.is_some() {
            return Ok(oid);
        }
        let what = "is temporary, and neither a content nor created by an earlier operation of the transaction";
        Err(invalid(format!("{oid} {what}")))
    }

    fn object(&self, oid: Oid) -> Result<StoredObject<'_>> {
        self.layers().object(oid)?.ok_or_else(|| no_object(oid))
    }

    fn blob(&self, oid: Oid) -> Result<StoredObject<'_>> {
        let object = self.object(oid)?;
        match object.head.kind {
            Kind::Blob => Ok(object),
            other => Err(invalid(format!("{oid} is a {}; this needs a blob", other.name()))),
        }
    }

    /// A number for new content, never used before in this store.
    fn next_content(&mut self) -> Result<DataId> {
        self.content_count =
            self.content_count.checked_add(1).ok_or_else(|| invalid("too many contents in one transaction"))?;
        let number = if planted(OperationBug::ContentNumberReused) { 1 } else { self.content_count };
        Ok(DataId(self.seq << 16 | u64::from(number)))
    }

    fn create(&mut self, temporary: Oid, kind: Kind, near: Option<Oid>, content: &StagedContent) -> Result<()> {
        if !temporary.is_temporary() {
            return Err(invalid(format!("{temporary} is not a temporary identifier; the commit assigns the real one")));
        }
        if self.real_oids.contains_key(&temporary) {
            return Err(invalid(format!("{temporary} is created twice in one transaction")));
        }
        let size = (content.extents.len() * CHUNK + content.bytes.len()) as u64;
        if kind == Kind::Collection && size > 0 {
            return Err(invalid(format!("{temporary} is a collection, which cannot have content")));
        }
        let oid = self.allocate_oid(temporary, near, size.min(u64::from(PAGE_BYTES)) as u32)?;
        self.real_oids.insert(temporary, oid);
        self.created.push(oid);
        let data = self.next_content()?;
        let head = Head { kind, size, version: self.seq, modified_us: self.time_us, data };
        self.put_content(oid, head, content)
    }

    fn create_content(&mut self, id: Oid, content: &StagedContent) -> Result<()> {
        if self.layers().object(id)?.is_some() {
            return Err(content_exists(id));
        }
        let size = (content.extents.len() * CHUNK + content.bytes.len()) as u64;
        let data = self.next_content()?;
        let head = Head { kind: Kind::Blob, size, version: self.seq, modified_us: self.time_us, data };
        self.put_content(id, head, content)
    }

    /// Chooses the page and slot of a new object: next to `near` if there is room, otherwise in the open page.
    fn allocate_oid(&mut self, temporary: Oid, near: Option<Oid>, size: u32) -> Result<Oid> {
        let (space, class) = (temporary.space(), temporary.class());
        if let Some(given) = &mut self.assigned_oids {
            let missing = || Error::new(ErrorKind::Corrupt, "a logged transaction names too few created objects");
            let oid = given.next().ok_or_else(missing)?;
            self.switch_page(oid.page())?;
            self.occupy(oid.slot(), size);
            return Ok(oid);
        }
        let near = near.map(|near| self.resolve(near)).transpose()?.filter(|near| near.space() == space);
        if let Some(near) = near
            && self.layers().object(near)?.is_some()
        {
            let page = near.page();
            self.switch_page(page)?;
            if let Some(slot) = self.take_slot(size) {
                return Ok(Oid::new(class, page, slot));
            }
        }
        if self.open_page.is_none_or(|open| open.page.space != space || open.page.number + 1 != open.next_page) {
            let next = self.next_page(space)?;
            if next == 0 && !self.space_exists(space)? {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no space {}", space.0)));
            }
            self.switch_page(PageId { space, node: NodeId(0), number: next.max(2) - 1 })?;
        }
        loop {
            let Some(open) = self.open_page else {
                return Err(Error::new(ErrorKind::Internal, "no page is filled"));
            };
            if let Some(slot) = self.take_slot(size) {
                return Ok(Oid::new(class, open.page, slot));
            }
            if open.next_page >= PageId::MAX_NUMBER {
                return Err(Error::new(ErrorKind::Full, format!("space {} has no page numbers left", space.0)));
            }
            self.switch_page(PageId { number: open.next_page, ..open.page })?;
        }
    }

    /// A slot of the open page, if it has room.
    fn take_slot(&mut self, size: u32) -> Option<u16> {
        let usage = self.open_page?.usage;
        let fits = usage.next_slot < u16::MAX && (usage.used == 0 || usage.used + size <= PAGE_BYTES);
        fits.then(|| {
            self.occupy(usage.next_slot, size);
            usage.next_slot
        })
    }

    /// Makes `page` the open page.
    fn switch_page(&mut self, page: PageId) -> Result<()> {
        if self.open_page.is_none_or(|open| open.page != page) {
            self.write_open_page();
            let next = self.next_page(page.space)?;
            self.open_page =
                Some(OpenPage { page, usage: self.page_usage(page)?, next_page: next, next_page_before: next });
        }
        Ok(())
    }

    /// Records a slot of the open page as used.
    fn occupy(&mut self, slot: u16, size: u32) {
        if let Some(OpenPage { page, usage, next_page: next, .. }) = &mut self.open_page {
            usage.next_slot = usage.next_slot.max(slot.saturating_add(1));
            usage.used = usage.used.saturating_add(size.max(1));
            *next = (*next).max(page.number + 1);
        }
    }

    /// Writes the row of the open page.
    fn write_open_page(&mut self) {
        let Some(OpenPage { page, usage, next_page: next, next_page_before: was }) = self.open_page.take() else {
            return;
        };
        if usage.used > 0 {
            self.put(Key::page(page), &usage.encode());
        }
        if next != was {
            self.put(Key::next_page(page.space), &next.to_be_bytes());
        }
    }

    /// Sets a row.
    fn put(&mut self, key: Key, bytes: &[u8]) {
        let mut row = self.slabs.row(bytes.len());
        row.extend_from_slice(bytes);
        self.changes.insert(key, Row::Value(row.freeze()));
    }

    /// Sets a row with a checksum.
    fn put_sealed(&mut self, key: Key, bytes: &[u8]) {
        let mut row = self.slabs.row(row::sealed_len(bytes.len()));
        row::put_sealed(&mut row, &key, bytes);
        self.changes.insert(key, Row::Value(row.freeze()));
    }

    /// Sets the row of an object: its head and the encoded first chunk, which takes `len` bytes.
    fn put_object(&mut self, oid: Oid, head: &Head, len: usize, chunk: impl FnOnce(&mut BytesMut)) {
        let mut row = self.slabs.row(row::HEAD + len);
        row.extend_from_slice(&head.encode(oid));
        chunk(&mut row);
        self.changes.insert(Key::object(oid), Row::Value(row.freeze()));
    }

    fn space_exists(&self, space: SpaceId) -> Result<bool> {
        let mut found = false;
        let prefix = Key::system("space:");
        self.layers().scan(&prefix, &prefix.prefix_end(), &mut |_, row| {
            found |= row.value().is_some_and(|row| row.starts_with(&space.0.to_be_bytes()));
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    fn next_page(&self, space: SpaceId) -> Result<u64> {
        let found = self.layers().find(&Key::next_page(space))?;
        let number = found.value().map(|row| row.try_into().map(u64::from_be_bytes));
        number.transpose().map_err(|_| corrupt_row("a page counter", row::RowError::Short)).map(|n| n.unwrap_or(0))
    }

    fn page_usage(&self, page: PageId) -> Result<PageUsage> {
        let found = self.layers().find(&Key::page(page))?;
        let usage = found.value().map(PageUsage::decode).transpose();
        Ok(usage.map_err(|e| corrupt_row("the usage of a page", e))?.unwrap_or(PageUsage { next_slot: 0, used: 0 }))
    }

    fn delete(&mut self, oid: Oid) -> Result<()> {
        let head = self.release_content(oid)?;
        for key in self.keys_under(&Key::attribute(oid, b""))? {
            self.changes.insert(key, Row::Tombstone);
        }
        if head.kind == Kind::Collection {
            for key in self.keys_under(&Key::members(oid))? {
                if let Some(member) = oid_at(&key, 1 + Oid::LEN) {
                    self.changes.insert(Key::back_member(member, oid), Row::Tombstone);
                }
                self.changes.insert(key, Row::Tombstone);
            }
        }
        for key in self.keys_under(&Key::back_references(oid))? {
            let reference = &key[1 + Oid::LEN..];
            match reference.split_first() {
                Some((b'm', collection)) => {
                    if let Some(collection) = oid_at(collection, 0) {
                        if !planted(OperationBug::MembershipKept) {
                            self.changes.insert(Key::member(collection, oid), Row::Tombstone);
                        }
                        let removed = if planted(OperationBug::MemberCountKept) { 0 } else { -1 };
                        self.change_member_count(collection, removed)?;
                    }
                }
                Some((b'n', path)) => {
                    let path = String::from_utf8_lossy(path);
                    self.changes.insert(Key::name(oid.space(), &path), Row::Tombstone);
                }
                _ => {}
            }
            self.changes.insert(key, Row::Tombstone);
        }
        self.changes.insert(Key::object(oid), Row::Tombstone);
        Ok(())
    }

    fn keys_under(&self, prefix: &Key) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        self.layers().scan(prefix, &prefix.prefix_end(), &mut |key, _| {
            keys.push(Key::from(key));
            ControlFlow::Continue(())
        })?;
        Ok(keys)
    }

    fn set_membership(&mut self, collection: Oid, member: Oid, present: bool) -> Result<()> {
        let (collection, member) = (self.resolve(collection)?, self.resolve(member)?);
        let kind = self.object(collection)?.head.kind;
        if kind != Kind::Collection {
            return Err(invalid(format!("{collection} is a {}; this needs a collection", kind.name())));
        }
        if present {
            self.object(member)?;
        }
        let key = Key::member(collection, member);
        let was = !matches!(self.layers().find(&key)?, FoundRow::Nothing | FoundRow::Row(Row::Tombstone, _));
        if was == present {
            return Ok(());
        }
        let row = |present| if present { Row::Value(Bytes::new()) } else { Row::Tombstone };
        self.changes.insert(key, row(present));
        self.changes.insert(Key::back_member(member, collection), row(present));
        self.change_member_count(collection, if present { 1 } else { -1 })
    }

    /// The object to which a name is bound.
    fn lookup_name(&self, name: &Name) -> Result<Option<Oid>> {
        let key = Key::name(name.space, &name.path);
        let value = self.layers().get_sealed(&key, &|| format!("name {:?}", name.path))?;
        Ok(value.and_then(|value| oid_at(&value, 0)))
    }

    fn bind(&mut self, name: &Name, oid: Oid) -> Result<()> {
        let oid = self.resolve(oid)?;
        self.object(oid)?;
        if oid.space() != name.space {
            let message = format!("{oid} is not in space {}, where name {:?} is", name.space.0, name.path);
            return Err(invalid(message));
        }
        if let Some(before) = self.lookup_name(name)?
            && !planted(OperationBug::BackReferenceKept)
        {
            self.changes.insert(Key::back_name(before, &name.path), Row::Tombstone);
        }
        self.put_sealed(Key::name(name.space, &name.path), &oid.to_bytes());
        self.changes.insert(Key::back_name(oid, &name.path), Row::Value(Bytes::new()));
        Ok(())
    }

    fn unbind(&mut self, name: &Name) -> Result<()> {
        if let Some(before) = self.lookup_name(name)? {
            self.changes.insert(Key::back_name(before, &name.path), Row::Tombstone);
            self.changes.insert(Key::name(name.space, &name.path), Row::Tombstone);
        }
        Ok(())
    }

    fn expect(&self, oid: Oid, read: Option<u64>) -> StepResult {
        let oid = self.resolve(oid)?;
        let current = self.layers().object(oid)?.map(|object| object.head.version);
        if current == read || (read.is_none() && planted(OperationBug::ExpectedAbsenceIgnored)) {
            return Ok(());
        }
        Err(StepError::Conflict(Conflict::Object { oid, read, current }))
    }

    fn expect_name(&self, name: &Name, read: Option<Oid>) -> StepResult {
        let read = read.map(|oid| self.resolve(oid)).transpose()?;
        let current = self.lookup_name(name)?;
        if current == read {
            return Ok(());
        }
        Err(StepError::Conflict(Conflict::Name { name: name.clone(), read, current }))
    }

    /// Adds `by` to the number of users of an extent.
    fn adjust_extent_users(&mut self, extent: &Extent, by: i64) -> Result<()> {
        let key = Key::extent(extent.file, extent.offset);
        let found = self.layers().find(&key)?;
        let used = found.value().map(ExtentUse::decode).transpose();
        let used = used.map_err(|e| corrupt_row("an extent", e))?.map_or(0, |used| used.users);
        match u32::try_from(i64::from(used) + by) {
            Ok(0) => self.changes.insert(key, Row::Tombstone),
            Ok(_) if by < 0 && planted(ContentBug::SharedChunkFreed) => self.changes.insert(key, Row::Tombstone),
            Ok(users) => self.put(key, &ExtentUse { len: extent.len, users }.encode()),
            Err(_) => return Err(corrupt_row("the use of an extent", row::RowError::Value)),
        }
        Ok(())
    }
}

/// Checks the new size of a blob.
fn check_blob_size(oid: Oid, size: u64) -> Result<()> {
    if size > limits::BLOB {
        return Err(too_large(&format!("blob {oid}"), size, limits::BLOB));
    }
    Ok(())
}

fn damaged(oid: Oid) -> impl Fn(row::RowError) -> Error {
    move |e| corrupt(oid, e)
}
