//! Reading: the same calls on the newest state and on a snapshot.

pub(crate) mod layers;
pub(crate) mod listing_cache;
pub(crate) mod rows;
pub(crate) mod state;
pub(crate) mod view;

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Kind, Name, Oid, Result, SpaceId, Stat, limits};
use smallvec::SmallVec;

use crate::error::{IntoModelResult, corrupt, corrupt_row, invalid, no_object};
use crate::read::layers::{
    FillError, FoundRow, Layers, StoredObject, check_range, decode_stat, has_content, stat as stat_of,
};
use crate::read::state::ReadState;
use crate::read::view::{Pin, PinTable};
use crate::rows::key::{Key, content_of, oid_at, table};
use crate::rows::mob::Row;
use crate::rows::row::{self, CHUNK, Chunk, Extent, HEAD, Head, RowError};

/// A readable state: provides the layers and the position.
pub(crate) trait Readable {
    fn state(&self) -> &ReadState;
    /// Reads single rows. Several rows may be of different states.
    fn read_row<T>(&self, read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T>;
    /// Reads several rows of one state.
    fn read_state<T>(&self, read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T>;
    /// The head of an object.
    fn head(&self, oid: Oid) -> Result<Option<Head>> {
        self.read_state(|layers| Ok(layers.object(oid)?.map(|object| object.head)))
    }
}

/// The head of an object in the newest durable state, decoded in place.
pub(crate) fn newest_head(state: &ReadState, oid: Oid) -> Result<Option<Head>> {
    let key = Key::object(oid);
    let decode = |row: &[u8]| Head::decode(oid, row).map(Some).map_err(|e| corrupt(oid, e));
    let in_buffer = |row: &Row| match row {
        Row::Tombstone | Row::Shared(..) => Ok(None),
        Row::Value(row) => decode(row),
        Row::Patch(patch) => decode(&patch.head),
    };
    let view = state.view.load();
    for mob in [Some(&view.active), view.frozen.as_ref()].into_iter().flatten() {
        if let Some(head) = mob.with_row(&key, || state.visible_seq(), in_buffer) {
            return head;
        }
    }
    state.read_engine(|engine| engine.get(&key).into_model_result()?.map_or(Ok(None), decode))
}

/// A part of an object's content, without a copy.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A whole chunk in a file that will not change while the [`Pieces`] are held.
    File {
        /// The file.
        file: Arc<File>,
        /// Where in it the chunk begins.
        offset: u64,
        /// Bytes in the chunk.
        len: u64,
        /// The CRC-32C of these bytes when they were written. The reader must verify it.
        crc32c: u32,
    },
}

/// The content of a small object in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRef<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The CRC-32C when they were written, if it is stored for exactly these bytes. The reader must verify it.
    pub crc32c: Option<u32>,
}

/// A range of an object's content as pieces that can be sent without copying.
pub struct Pieces {
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
    /// Keeps the ranges of the files from being freed.
    _pin: Pin<Arc<PinTable>>,
}

/// The result of reading an object with one look-up.
pub(crate) enum SmallRead {
    Missing,
    Stat(Stat),
    Whole(Stat, Bytes),
    /// Several rows must be read.
    Parts,
}

/// The content in an object's row, if it is complete.
pub(crate) fn read_small(object: &StoredObject<'_>, max: usize) -> SmallRead {
    let size = object.head.size;
    if size > max as u64 || !has_content(object.head.kind) {
        return SmallRead::Stat(object.stat());
    }
    if size == 0 {
        return SmallRead::Whole(object.stat(), Bytes::new());
    }
    match crate::read::layers::whole_first_chunk(object) {
        Some(bytes) => SmallRead::Whole(object.stat(), bytes),
        None => SmallRead::Parts,
    }
}

/// Calls `show` with a small object in place: in the buffer, or in the B-tree's memory map.
///
/// Returns whether the object exists, or `None` if several rows must be read.
pub(crate) fn visit_small(
    state: &ReadState,
    oid: Oid,
    max: usize,
    show: &mut dyn FnMut(&Stat, Option<ContentRef<'_>>),
) -> Result<Option<bool>> {
    let key = Key::object(oid);
    let view = state.view.load();
    let mut in_buffer = |row: &Row| match row {
        Row::Tombstone | Row::Shared(..) => Ok(Some(false)),
        Row::Value(row) => visit_object_row(oid, row, max, false, show),
        Row::Patch(_) => Ok(None),
    };
    let at = || state.visible_seq();
    if let Some(shown) = view.active.with_row(&key, at, &mut in_buffer) {
        return shown;
    }
    if let Some(shown) = view.frozen.as_ref().and_then(|frozen| frozen.with_row(&key, at, &mut in_buffer)) {
        return shown;
    }
    state.read_engine(|engine| match engine.get(&key).into_model_result()? {
        Some(row) => visit_object_row(oid, row, max, true, show),
        None => Ok(Some(false)),
    })
}

/// Calls `show` with the object of a row, if the row has all that was asked for. Rows from the B-tree are verified.
fn visit_object_row(
    oid: Oid,
    row: &[u8],
    max: usize,
    check: bool,
    show: &mut dyn FnMut(&Stat, Option<ContentRef<'_>>),
) -> Result<Option<bool>> {
    let head = Head::decode(oid, row).map_err(|e| corrupt(oid, e))?;
    let stat = stat_of(oid, &head);
    if head.size > max as u64 || !has_content(head.kind) {
        show(&stat, None);
        return Ok(Some(true));
    }
    let chunk = row.get(HEAD..).ok_or(RowError::Short).and_then(Chunk::decode).map_err(|e| corrupt(oid, e))?;
    match chunk {
        _ if head.size == 0 => show(&stat, Some(ContentRef { bytes: &[], crc32c: None })),
        Chunk::Inline { blocks, bytes } if bytes.len() as u64 >= head.size => {
            let size = head.size as usize;
            if check {
                check_range(blocks, bytes, 0, size, 0).map_err(|e| corrupt(oid, e))?;
            }
            // With a single block, its checksum is that of the whole.
            let lone = blocks.as_array().filter(|_| size == bytes.len());
            show(&stat, Some(ContentRef { bytes: &bytes[..size], crc32c: lone.copied().map(u32::from_le_bytes) }));
        }
        _ => return Ok(None),
    }
    Ok(Some(true))
}

pub(crate) fn get(this: &impl Readable, oid: Oid, max: usize) -> Result<Option<(Stat, Option<Bytes>)>> {
    let found =
        this.read_row(|layers| Ok(layers.object(oid)?.map_or(SmallRead::Missing, |object| read_small(&object, max))))?;
    match found {
        SmallRead::Missing => Ok(None),
        SmallRead::Stat(stat) => Ok(Some((stat, None))),
        SmallRead::Whole(stat, bytes) => Ok(Some((stat, Some(bytes)))),
        SmallRead::Parts => this.read_state(|layers| {
            let Some(object) = layers.object(oid)? else { return Ok(None) };
            if object.head.size > max as u64 {
                return Ok(Some((object.stat(), None)));
            }
            let bytes = layers.read(&object, 0, object.head.size)?;
            Ok(Some((object.stat(), Some(bytes))))
        }),
    }
}

pub(crate) fn stat(this: &impl Readable, oid: Oid) -> Result<Option<Stat>> {
    Ok(this.head(oid)?.map(|head| stat_of(oid, &head)))
}

fn object_with_content<'a>(layers: &Layers<'a>, oid: Oid) -> Result<StoredObject<'a>> {
    let object = layers.object(oid)?.ok_or_else(|| no_object(oid))?;
    if has_content(object.head.kind) {
        return Ok(object);
    }
    Err(invalid(format!("{oid} is a {}; it has no content to read", object.head.kind.name())))
}

pub(crate) fn read(this: &impl Readable, oid: Oid, offset: u64, len: u64) -> Result<Bytes> {
    this.read_state(|layers| {
        let object = object_with_content(layers, oid)?;
        let len = len.min(object.head.size.saturating_sub(offset));
        if len > limits::TRANSACTION as u64 {
            let message =
                format!("a read of {len} bytes at once; the limit is {}: read in pieces", limits::TRANSACTION);
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        if offset % CHUNK as u64 + len <= CHUNK as u64 {
            return layers.read(&object, offset, len);
        }
        let mut out = vec![0; len as usize];
        fill(layers, &object, offset, &mut out)?;
        Ok(out.into())
    })
}

/// As [`read`], into the caller's memory; returns the number of bytes.
pub(crate) fn read_into(this: &impl Readable, oid: Oid, offset: u64, out: &mut [u8]) -> Result<usize> {
    this.read_state(|layers| {
        let object = object_with_content(layers, oid)?;
        let len = object.head.size.saturating_sub(offset).min(out.len() as u64) as usize;
        fill(layers, &object, offset, &mut out[..len])?;
        Ok(len)
    })
}

/// Reads the bytes of an object from `offset` on into `out`. Whole chunks in files are read together.
fn fill(layers: &Layers<'_>, object: &StoredObject<'_>, offset: u64, out: &mut [u8]) -> Result<()> {
    let (mut at, mut rest) = (offset, out);
    while !rest.is_empty() {
        let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
        let mut run: SmallVec<[Extent; 16]> = SmallVec::new();
        while from == 0
            && run.len() < rest.len() / CHUNK
            && let Some(extent) = layers.extent(object, index + run.len() as u64)?
        {
            run.push(extent);
        }
        if let (Some(files), false) = (layers.files, run.is_empty()) {
            let (chunks, behind) = rest.split_at_mut(run.len() * CHUNK);
            files.read_runs(&run, chunks, at).map_err(|e| FillError::from(e).for_object(object.oid))?;
            at += chunks.len() as u64;
            rest = behind;
        }
        // The chunk that ended the run is not a whole chunk in a file.
        let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
        let (piece, behind) = rest.split_at_mut((CHUNK - from).min(rest.len()));
        if !piece.is_empty() {
            layers.fill(object, index, from, piece)?;
        }
        at += piece.len() as u64;
        rest = behind;
    }
    Ok(())
}

pub(crate) fn pieces(this: &impl Readable, oid: Oid, offset: u64, len: u64) -> Result<Pieces> {
    this.read_state(|layers| {
        let object = object_with_content(layers, oid)?;
        let end = offset.saturating_add(len).min(object.head.size);
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            let (index, from) = (at / CHUNK as u64, at % CHUNK as u64);
            let len = (CHUNK as u64 - from).min(end - at);
            let piece = if len == CHUNK as u64 { chunk_in_file(this.state(), layers, &object, index)? } else { None };
            pieces.push(match piece {
                Some(piece) => piece,
                None => Piece::Bytes(layers.read(&object, at, len)?),
            });
            at += len;
        }
        // Pins the position that was read: at the newest one, chunks of these pieces may be freed already.
        let pin = PinTable::pin_again(Arc::clone(&this.state().pins), layers.at.seq());
        Ok(Pieces { pieces, _pin: pin })
    })
}

fn chunk_in_file(
    state: &ReadState,
    layers: &Layers<'_>,
    object: &StoredObject<'_>,
    index: u64,
) -> Result<Option<Piece>> {
    let Some(extent) = layers.extent(object, index)? else { return Ok(None) };
    let file = state.files().map(|files| files.system_file(&extent)).transpose();
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => crate::error::corrupt(object.oid, RowError::File),
        _ => crate::error::io("a blob file", error),
    });
    let file = file?.flatten();
    Ok(file.filter(|_| extent.len as usize == CHUNK).map(|file| Piece::File {
        file,
        offset: extent.offset,
        len: u64::from(extent.len),
        crc32c: extent.crc,
    }))
}

pub(crate) fn attribute(this: &impl Readable, oid: Oid, key: &[u8]) -> Result<Option<Bytes>> {
    this.read_state(|layers| {
        let value = layers.get_sealed(&Key::attribute(oid, key), &|| format!("an attribute of {oid}"))?;
        if value.is_none() && layers.object(oid)?.is_none() {
            return Err(no_object(oid));
        }
        Ok(value)
    })
}

/// Up to `limit` rows under a prefix after `after`, converted by `entry`.
fn list<T>(
    this: &impl Readable,
    prefix: &Key,
    after: Option<Key>,
    limit: usize,
    entry: impl Fn(&[u8], &FoundRow<'_>) -> Result<Option<T>>,
    owner: Option<Oid>,
) -> Result<Vec<T>> {
    let limit = limit.min(limits::LISTING);
    let from = after.map_or_else(|| prefix.clone(), |after| after.successor().max(prefix.clone()));
    this.read_state(|layers| {
        let (mut entries, mut failed) = (Vec::new(), None);
        layers.scan(&from, &prefix.prefix_end(), &mut |key, found| {
            if limit == 0 {
                return ControlFlow::Break(());
            }
            match entry(key, found) {
                Ok(found) => entries.extend(found),
                Err(error) => failed = Some(error),
            }
            let go_on = failed.is_none() && entries.len() < limit;
            if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        // An object with an entry exists. Without entries, its existence is checked.
        if let (Some(oid), true) = (owner, entries.is_empty()) {
            layers.head_and_extent(oid)?.ok_or_else(|| no_object(oid))?;
        }
        failed.map_or(Ok(entries), Err)
    })
}

fn unseal_row(key: &[u8], found: &FoundRow<'_>, what: &str) -> Result<Option<Bytes>> {
    let Some(row) = found.value() else { return Ok(None) };
    let len = row::unseal(key, row).map_err(|e| corrupt_row(what, e))?;
    Ok(Some(match found {
        FoundRow::Row(Row::Value(row), _) => row.slice(..len),
        _ => Bytes::copy_from_slice(&row[..len]),
    }))
}

/// The contents in a range of keys.
pub(crate) fn contents(this: &impl Readable, (from, to): (Oid, Oid), limit: usize) -> Result<Vec<ContentId>> {
    let limit = limit.min(limits::LISTING);
    let mut found = Vec::new();
    this.read_state(|layers| {
        layers.scan(&Key::object(from), &Key::object(to), &mut |key, _| {
            found.extend(oid_at(key, 1).and_then(content_of));
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    })?;
    found.truncate(limit);
    Ok(found)
}

pub(crate) fn attributes(
    this: &impl Readable,
    oid: Oid,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<(Bytes, Bytes)>> {
    let prefix = Key::attribute(oid, b"");
    let after = after.map(|after| Key::attribute(oid, after));
    let entry = |key: &[u8], found: &FoundRow<'_>| {
        let value = unseal_row(key, found, &format!("an attribute of {oid}"))?;
        Ok(value.map(|value| (Bytes::copy_from_slice(&key[1 + Oid::LEN..]), value)))
    };
    list(this, &prefix, after, limit, entry, Some(oid))
}

pub(crate) fn members(this: &impl Readable, oid: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
    let (limit, listings) = (limit.min(limits::LISTING), &this.state().listing_cache);
    let head = this.head(oid)?.ok_or_else(|| no_object(oid))?;
    if let Some(members) = listings.get(oid, head.version, after, limit) {
        return Ok(members);
    }
    let prefix = Key::members(oid);
    let from = after.map_or_else(|| prefix.clone(), |after| Key::member(oid, after).successor());
    let (head, members) = this.read_state(|layers| {
        let head = layers.object(oid)?.ok_or_else(|| no_object(oid))?.head;
        let mut members = Vec::new();
        if head.kind == Kind::Collection && limit > 0 {
            members.reserve((head.size as usize).min(limit));
            layers.scan(&from, &prefix.prefix_end(), &mut |key, _| {
                members.extend(oid_at(key, 1 + Oid::LEN));
                if members.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok((head, members))
    })?;
    if head.kind == Kind::Collection && head.size == members.len() as u64 {
        listings.insert(oid, head.version, &members);
    }
    Ok(members)
}

pub(crate) fn contains(this: &impl Readable, collection: Oid, member: Oid) -> Result<bool> {
    this.read_state(|layers| {
        layers.object(collection)?.ok_or_else(|| no_object(collection))?;
        Ok(layers.find(&Key::member(collection, member))?.value().is_some())
    })
}

pub(crate) fn resolve(this: &impl Readable, name: &Name) -> Result<Option<Oid>> {
    this.read_row(|layers| {
        let value = layers.get_sealed(&Key::name(name.space, &name.path), &|| format!("name {:?}", name.path))?;
        Ok(value.and_then(|value| oid_at(&value, 0)))
    })
}

pub(crate) fn names(
    this: &impl Readable,
    space: SpaceId,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Oid)>> {
    let entry = |key: &[u8], found: &FoundRow<'_>| {
        let value = unseal_row(key, found, "a name")?;
        let path = String::from_utf8(key[3..].to_vec()).map_err(|_| corrupt_row("a name", RowError::Value))?;
        Ok(value.and_then(|value| oid_at(&value, 0)).map(|oid| (path, oid)))
    };
    list(this, &Key::name(space, prefix), after.map(|after| Key::name(space, after)), limit, entry, None)
}

pub(crate) fn names_of(this: &impl Readable, oid: Oid) -> Result<Vec<String>> {
    let prefix = Key::back_names(oid);
    let skip = prefix.len();
    let entry = |key: &[u8], _: &FoundRow<'_>| Ok(String::from_utf8(key[skip..].to_vec()).ok());
    list(this, &prefix, None, limits::LISTING, entry, Some(oid))
}

pub(crate) fn collections_of(this: &impl Readable, oid: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
    let prefix = Key::back_members(oid);
    let skip = prefix.len();
    list(this, &prefix, after.map(|c| Key::back_member(oid, c)), limit, |key, _| Ok(oid_at(key, skip)), Some(oid))
}

pub(crate) fn objects(this: &impl Readable, space: SpaceId, after: Option<Oid>, limit: usize) -> Result<Vec<Stat>> {
    let mut prefix = Key::table(table::OBJECT).to_vec();
    prefix.extend_from_slice(&space.0.to_be_bytes());
    list(this, &Key::from(&prefix[..]), after.map(Key::object), limit, decode_stat, None)
}

pub(crate) fn spaces(this: &impl Readable) -> Result<Vec<(SpaceId, String)>> {
    let prefix = Key::system("space:");
    let skip = prefix.len();
    let entry = |key: &[u8], found: &FoundRow<'_>| {
        let Some(value) = unseal_row(key, found, "a space")? else { return Ok(None) };
        let damaged = || corrupt_row("a space", RowError::Value);
        let id = value[..].try_into().map(u16::from_be_bytes).map_err(|_| damaged())?;
        let name = String::from_utf8(key[skip..].to_vec()).map_err(|_| damaged())?;
        Ok(Some((SpaceId(id), name)))
    };
    let mut spaces = list(this, &prefix, None, limits::LISTING, entry, None)?;
    spaces.sort();
    Ok(spaces)
}
