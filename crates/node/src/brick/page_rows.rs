//! The rows of the pages and transactions of a logical node.
//!
//! | key | value |
//! | --- | --- |
//! | `P` node space page | head: version and largest commit timestamp of the page |
//! | `P` node space page slot | an object: class, code, the checksum of its encoding, its encoding |
//! | `E` node space class page slot | nothing: the extent of a class |
//! | `F` node space | the lowest page number that was never reserved |
//! | `K` node transaction piece | a record of the protocol about a transaction, in pieces if it is large |
//! | `B` node | the bound of promises (V4) |
//! | `H` node | the horizon (C3) |
//! | `M` node client | what a client has heard (C3) |
//! | `L` node | a position above all positions used |
//! | `N` node | how many objects it has, and their bytes: [`super::node_usage`] |
//! | `U` content | a staged content, which begins with its node: its size |
//! | `I`, `D` | indexes: [`super::index_rows`] |
//! | `C`, `R` | entries of collections: [`super::entry_rows`] |
//! | `S` node | the seal: no map up to this epoch makes the brick serve the node, see [`super::node_manager`] |
//!
//! All numbers are big-endian, so a page is one range of keys that begins with its head, and an extent is ordered by page.

use std::cell::RefCell;
use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};
use model::checksum::crc32c_parts;
use model::{ClassId, ContentId, Error, ErrorKind, Kind, NodeId, Object, Oid, PageId, Result, SpaceId, limits};
use protocol::ident::{ClientId, HlcTimestamp, TxnId, Version};
use protocol::page_cache::PageImage;
use smallvec::SmallVec;
use store::{KeyRange, Snapshot, Store};
use wire::cluster::{ListNodeObjects, ListedObject, NodeObjects};

use super::passed_damage::PassedDamage;
use super::plant::{Bug, planted};

/// A source of rows: the newest durable state, or a snapshot.
pub(crate) trait Rows {
    /// The value of a row.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;
    /// Calls `show` with the value of a row, in place.
    fn get_with<T>(&self, key: &[u8], show: impl FnMut(&[u8]) -> T) -> Result<Option<T>>;
    /// Visits rows in order.
    fn each(&self, from: &[u8], to: &[u8], visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()>;
}

macro_rules! rows_of {
    ($($place:ty),*) => {$(
        impl Rows for $place {
            fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
                self.row(key)
            }

            fn get_with<T>(&self, key: &[u8], mut show: impl FnMut(&[u8]) -> T) -> Result<Option<T>> {
                self.row_with(key, |row| show(row.bytes()))
            }

            fn each(&self, from: &[u8], to: &[u8], visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
                self.rows(from, to, visit)
            }
        }
    )*};
}

rows_of!(Store, Snapshot);

/// A key; all fit inline.
pub(crate) type Key = SmallVec<[u8; 24]>;

/// Bytes of the number of a page.
pub(crate) const PAGE_LEN: usize = 6;
/// Bytes of the key of a page's head.
const HEAD_KEY: usize = 1 + 4 + 2 + PAGE_LEN;
/// Bytes of the key of an object in an extent.
const EXTENT_KEY: usize = 1 + 4 + 2 + 4 + PAGE_LEN + 2;
/// Bytes of a page's head.
const HEAD: usize = 4 + 8 + 8;
/// Bytes before an object's encoding: class, code, and the CRC-32C of the encoding. Readers receive the checksum and verify it.
const OBJECT_HEAD: usize = 4 + 1 + 4;
/// Bytes of the row of a page's head, with its key.
pub(crate) const HEAD_ROW: usize = HEAD_KEY + HEAD;
/// Bytes of the row of an object without its encoding, with its key.
pub(crate) const OBJECT_ROW: usize = HEAD_KEY + 2 + OBJECT_HEAD;

fn key(table: u8, parts: &[&[u8]]) -> Key {
    let mut key = Key::new();
    key.push(table);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

pub(crate) fn encode_page_number(page: u64) -> [u8; PAGE_LEN] {
    let [_, _, number @ ..] = page.to_be_bytes();
    number
}

/// The key of a page's head, before those of its objects.
pub(crate) fn head_key(page: PageId) -> Key {
    Key::from_slice(&object_bytes(page, 0)[..HEAD_KEY])
}

/// The key of an object.
pub(crate) fn object_key(page: PageId, slot: u16) -> Key {
    Key::from_slice(&object_bytes(page, slot))
}

/// Builds the key in one step, because objects are read most often.
fn object_bytes(PageId { space, node, number }: PageId, slot: u16) -> [u8; HEAD_KEY + 2] {
    let [n0, n1, n2, n3] = node.0.to_be_bytes();
    let [s0, s1] = space.0.to_be_bytes();
    let [p0, p1, p2, p3, p4, p5] = self::encode_page_number(number);
    let [o0, o1] = slot.to_be_bytes();
    [b'P', n0, n1, n2, n3, s0, s1, p0, p1, p2, p3, p4, p5, o0, o1]
}

/// The page of a key, and the slot if it is that of an object and not that of the page's head; `None` for another key.
pub(crate) fn parse_key(key: &[u8]) -> Option<(PageId, Option<u16>)> {
    let ([b'P', n0, n1, n2, n3, s0, s1, p0, p1, p2, p3, p4, p5], slot) = key.split_first_chunk::<HEAD_KEY>()? else {
        return None;
    };
    let page = PageId {
        space: SpaceId(u16::from_be_bytes([*s0, *s1])),
        node: NodeId(u32::from_be_bytes([*n0, *n1, *n2, *n3])),
        number: u64::from_be_bytes([0, 0, *p0, *p1, *p2, *p3, *p4, *p5]),
    };
    if page.space > SpaceId::MAX || page.node > NodeId::MAX {
        return None;
    }
    match slot {
        [] => Some((page, None)),
        [high, low] => Some((page, Some(u16::from_be_bytes([*high, *low])))),
        _ => None,
    }
}

/// The page of which this is a key, or behind whose first key it is before the next page's.
pub(crate) fn page_at(key: &[u8]) -> Option<PageId> {
    parse_key(key.get(..HEAD_KEY)?).map(|(page, _)| page)
}

/// The end of the keys of a page.
pub(crate) fn page_end(page: PageId) -> Key {
    let mut key = head_key(page);
    key.extend_from_slice(&[0xff; 3]);
    key
}

/// The key of an object in the extent of its class.
pub(crate) fn extent_key(class: ClassId, page: PageId, slot: u16) -> Key {
    let mut key = extent_prefix(page.node, page.space, class);
    key.extend_from_slice(&encode_page_number(page.number));
    key.extend_from_slice(&slot.to_be_bytes());
    key
}

/// The page number and slot of an object in an extent.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for a key of another length.
pub(crate) fn extent_place(key: &[u8]) -> Result<(u64, u16)> {
    let place = key.last_chunk::<{ PAGE_LEN + 2 }>().filter(|_| key.len() == EXTENT_KEY);
    let Some([p0, p1, p2, p3, p4, p5, s0, s1]) = place else {
        return Err(Error::new(ErrorKind::Corrupt, format!("row {key:02x?} is damaged: it is no place in an extent")));
    };
    Ok((u64::from_be_bytes([0, 0, *p0, *p1, *p2, *p3, *p4, *p5]), u16::from_be_bytes([*s0, *s1])))
}

/// The object in the key of a row of an extent of a logical node.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for a key of another form.
pub(crate) fn parse_extent(node: NodeId, key: &[u8]) -> Result<Oid> {
    let (number, slot) = extent_place(key)?;
    let space = SpaceId(u16::from_be_bytes([key[5], key[6]]));
    let class = ClassId(u32::from_be_bytes([key[7], key[8], key[9], key[10]]));
    let page = PageId { space, node, number };
    if space > SpaceId::MAX || class > ClassId::MAX {
        let what = format!("row {key:02x?} is damaged: it is no object of an extent");
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    Ok(Oid::new(class, page, slot))
}

/// The prefix of the keys of an extent.
pub(crate) fn extent_prefix(node: NodeId, space: SpaceId, class: ClassId) -> Key {
    key(b'E', &[&node.0.to_be_bytes(), &space.0.to_be_bytes(), &class.0.to_be_bytes()])
}

/// The keys of the extent of a class after a place.
pub(crate) fn extent_range(node: NodeId, space: SpaceId, class: ClassId, after: Option<(u64, u16)>) -> (Key, Key) {
    let (mut from, mut to) = (extent_prefix(node, space, class), extent_prefix(node, space, class));
    if let Some((page, slot)) = after {
        from.extend_from_slice(&encode_page_number(page));
        from.extend_from_slice(&slot.to_be_bytes());
        from.push(0);
    }
    to.extend_from_slice(&[0xff; PAGE_LEN + 3]);
    (from, to)
}

/// The key of the lowest page number that is free.
pub(crate) fn free_key(node: NodeId, space: SpaceId) -> Key {
    key(b'F', &[&node.0.to_be_bytes(), &space.0.to_be_bytes()])
}

/// The range of the free page numbers of all spaces.
pub(crate) fn free_range(node: NodeId) -> (Key, Key) {
    // Node numbers have 24 bits, so adding one does not overflow.
    (key(b'F', &[&node.0.to_be_bytes()]), key(b'F', &[&(node.0 + 1).to_be_bytes()]))
}

/// The key of a piece of the record of a transaction.
pub(crate) fn txn_key(node: NodeId, txn: TxnId, piece: u16) -> Key {
    let (start, client) = (txn.start.0.to_be_bytes(), txn.client.0.to_be_bytes());
    key(b'K', &[&node.0.to_be_bytes(), &start, &client, &piece.to_be_bytes()])
}

/// The transaction and the number of the piece in the key of a row of table `K`.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn parse_txn(key: &[u8]) -> Result<(TxnId, u16)> {
    let parts = key.get(5..).and_then(|rest| rest.split_first_chunk::<8>());
    let parsed = parts.and_then(|(start, rest)| {
        let (client, piece) = rest.split_first_chunk::<8>()?;
        let txn =
            TxnId { start: HlcTimestamp(u64::from_be_bytes(*start)), client: ClientId(u64::from_be_bytes(*client)) };
        Some((txn, u16::from_be_bytes(piece.try_into().ok()?)))
    });
    parsed.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("row {key:02x?} is damaged: it is not the record of a transaction"))
    })
}

/// The client in the key of a row of table `M`.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn parse_mark(key: &[u8]) -> Result<ClientId> {
    let client = key.get(5..).and_then(|client| client.try_into().ok());
    client.map(|client| ClientId(u64::from_be_bytes(client))).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("row {key:02x?} is damaged: it is not the mark of a client"))
    })
}

/// The range of the records of all transactions.
pub(crate) fn txn_range(node: NodeId) -> (Key, Key) {
    (key(b'K', &[&node.0.to_be_bytes()]), key(b'K', &[&node.0.to_be_bytes(), &[0xff; 19]]))
}

/// The key of the bound of promises.
pub(crate) fn bound_key(node: NodeId) -> Key {
    key(b'B', &[&node.0.to_be_bytes()])
}

/// The key of the horizon.
pub(crate) fn horizon_key(node: NodeId) -> Key {
    key(b'H', &[&node.0.to_be_bytes()])
}

/// The key of what a client has heard.
pub(crate) fn mark_key(node: NodeId, client: ClientId) -> Key {
    key(b'M', &[&node.0.to_be_bytes(), &client.0.to_be_bytes()])
}

/// The range of what clients have heard.
pub(crate) fn mark_range(node: NodeId) -> (Key, Key) {
    (key(b'M', &[&node.0.to_be_bytes()]), key(b'M', &[&(node.0 + 1).to_be_bytes()]))
}

/// The key of the position above all positions used.
pub(crate) fn limit_key(node: NodeId) -> Key {
    key(b'L', &[&node.0.to_be_bytes()])
}

/// The range of the rows of a logical node in a table.
pub(crate) fn table_range(table: u8, node: NodeId) -> (Key, Key) {
    // Node numbers have 24 bits, so adding one does not overflow.
    (key(table, &[&node.0.to_be_bytes()]), key(table, &[&(node.0 + 1).to_be_bytes()]))
}

/// The tables whose rows move with a logical node, in order.
const TABLES: [u8; 14] = *b"BCDEFHIKLMNPRU";

/// The tables whose rows move with a logical node.
fn tables() -> impl Iterator<Item = u8> {
    let is_left = |table| match table {
        b'C' | b'R' => planted(Bug::EntriesNotMoved),
        b'N' => planted(Bug::UsageNotMoved),
        _ => false,
    };
    TABLES.into_iter().filter(move |table| !is_left(*table))
}

/// The ranges of all rows that move with a logical node, in order.
pub(crate) fn ranges(node: NodeId) -> impl Iterator<Item = (Key, Key)> {
    tables().map(move |table| table_range(table, node))
}

/// Whether a row moves with a logical node.
pub(crate) fn belongs_to(node: NodeId, key: &[u8]) -> bool {
    key.split_first()
        .is_some_and(|(table, rest)| tables().any(|one| one == *table) && rest.starts_with(&node.0.to_be_bytes()))
}

/// The key of the number of objects of a logical node, and of their bytes.
pub(crate) fn usage_key(node: NodeId) -> Key {
    key(b'N', &[&node.0.to_be_bytes()])
}

/// The key of the row that marks a staged content.
pub(crate) fn staged_key(id: ContentId) -> Key {
    key(b'U', &[&id.node().0.to_be_bytes(), &id.0.to_be_bytes()])
}

/// The range of the rows that mark staged contents.
pub(crate) fn staged_range(node: NodeId) -> (Key, Key) {
    (key(b'U', &[&node.0.to_be_bytes()]), key(b'U', &[&(node.0 + 1).to_be_bytes()]))
}

/// A staged content and its size, from its row.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the row is not that of a staged content.
pub(crate) fn parse_staged(key: &[u8], row: &[u8]) -> Result<(ContentId, u64)> {
    let id = key.get(5..).and_then(|id| id.try_into().ok()).map(|id| ContentId(u128::from_be_bytes(id)));
    let size = row.try_into().map(u64::from_be_bytes).ok();
    let parsed = id.zip(size).filter(|(id, _)| *staged_key(*id) == *key);
    parsed.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("row {key:02x?} is damaged: it does not mark a staged content"))
    })
}

/// The key of the seal of a logical node.
pub(crate) fn seal_key(node: NodeId) -> Key {
    key(b'S', &[&node.0.to_be_bytes()])
}

/// The seals of all logical nodes.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if a row is not a seal.
pub(crate) fn read_seals(store: &impl Rows) -> Result<Vec<(NodeId, u64)>> {
    let mut found = Vec::new();
    store.each(b"S", b"T", |key, row| {
        let parsed = (key[1..].try_into().map(u32::from_be_bytes), row.try_into().map(u64::from_be_bytes));
        found.push(match parsed {
            (Ok(node), Ok(epoch)) => Ok((NodeId(node), epoch)),
            _ => Err(Error::new(
                ErrorKind::Corrupt,
                format!("row {key:02x?} is damaged: it is not the seal of a logical node"),
            )),
        });
        ControlFlow::Continue(())
    })?;
    found.into_iter().collect()
}

/// The version of a page and its largest commit timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: Version,
    pub(crate) timestamp: HlcTimestamp,
}

impl Head {
    /// The value of the row of a head.
    pub(crate) fn encode(self) -> Bytes {
        let mut row = BytesMut::with_capacity(HEAD);
        row.put_u32(self.version.moves);
        row.put_u64(self.version.position);
        row.put_u64(self.timestamp.0);
        row.freeze()
    }

    /// The head in a row.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the row has another length.
    pub(crate) fn decode(page: PageId, row: &[u8]) -> Result<Self> {
        let row: &[u8; HEAD] = row.try_into().map_err(|_| damage_error(page, "its head has the wrong length"))?;
        let [m0, m1, m2, m3, p @ .., t0, t1, t2, t3, t4, t5, t6, t7] = *row;
        let version = Version { moves: u32::from_be_bytes([m0, m1, m2, m3]), position: u64::from_be_bytes(p) };
        Ok(Self { version, timestamp: HlcTimestamp(u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7])) })
    }
}

/// The value of the row of an object.
pub(crate) fn encode_object(object: &Object) -> Bytes {
    let extension = object.encoded_extension().unwrap_or_default();
    let mut row = BytesMut::with_capacity(OBJECT_HEAD + extension.len() + object.data.len());
    row.put_u32(object.class.0);
    row.put_u8(object.code());
    row.put_u32(crc32c_parts(&[&extension, &object.data]));
    row.put_slice(&extension);
    row.put_slice(&object.data);
    row.freeze()
}

/// What a listing and a scrub need of an object.
pub(crate) struct Summary {
    pub(crate) kind: Kind,
    /// Bytes of its data or content.
    pub(crate) size: u64,
    /// The same with its attributes.
    pub(crate) total_size: u64,
    /// The content that is stored beside it.
    pub(crate) content: Option<ContentId>,
}

/// An object in its row.
pub(crate) struct StoredObject<'a> {
    pub(crate) class: ClassId,
    /// The code of its kind and form.
    pub(crate) code: u8,
    /// The CRC-32C of the encoding, computed when it was written.
    pub(crate) checksum: u32,
    /// The encoding: see [`Object::decode`].
    pub(crate) bytes: &'a [u8],
    /// What it is a part of, if it is in memory: a slice of it needs no copy.
    pub(crate) buffer: Option<&'a Bytes>,
}

impl<'a> StoredObject<'a> {
    fn decode(page: PageId, row: &'a [u8]) -> Result<Self> {
        let head = row.split_first_chunk::<OBJECT_HEAD>();
        let ([c0, c1, c2, c3, code, s0, s1, s2, s3], bytes) =
            head.ok_or_else(|| damage_error(page, "an object has no head"))?;
        let class = ClassId(u32::from_be_bytes([*c0, *c1, *c2, *c3]));
        if class > ClassId::MAX {
            return Err(damage_error(page, &format!("an object has class {}, which there cannot be", class.0)));
        }
        let checksum = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
        Ok(Self { class, code: *code, checksum, bytes, buffer: None })
    }

    /// The encoding, copied unless it is in memory.
    pub(crate) fn to_bytes(&self) -> Bytes {
        self.buffer.map_or_else(|| Bytes::copy_from_slice(self.bytes), |buffer| buffer.slice_ref(self.bytes))
    }

    /// What it is, without a copy of its data.
    fn summary(&self, page: PageId) -> Result<Summary> {
        if Object::is_extended(self.code) {
            let object = self.with(page, Bytes::copy_from_slice(self.bytes))?;
            return Ok(Summary {
                kind: object.kind,
                size: object.size(),
                total_size: object.total_size(),
                content: object.content().map(|content| content.id),
            });
        }
        let kind = Object::kind_of(self.code).map_err(|error| damage_error(page, error.message()))?;
        let size = self.bytes.len() as u64;
        Ok(Summary { kind, size, total_size: size, content: None })
    }

    /// The object, with `bytes` as its encoding.
    fn with(&self, page: PageId, bytes: Bytes) -> Result<Object> {
        Object::decode(self.class, self.code, bytes).map_err(|error| damage_error(page, error.message()))
    }
}

fn decode_object(page: PageId, row: &[u8]) -> Result<Object> {
    let stored = StoredObject::decode(page, row)?;
    stored.with(page, Bytes::copy_from_slice(stored.bytes))
}

pub(crate) fn damage_error(page: PageId, why: &str) -> Error {
    let what = format!(
        "page {:x} of logical node {:x} is damaged: {why}; see \"Mend\" in docs/operations.md",
        page.number, page.node.0
    );
    Error::new(ErrorKind::Corrupt, what)
}

/// Reads the head of a page; the default if the page was never changed.
pub(crate) fn read_head(state: &impl Rows, page: PageId) -> Result<Head> {
    let head = state.get_with(&head_key(page), |row| Head::decode(page, row))?;
    head.unwrap_or(Ok(Head::default()))
}

/// Reads an object of a page; `None` if the slot is free. The data shares the row's buffer.
pub(crate) fn read_object(state: &impl Rows, page: PageId, slot: u16) -> Result<Option<Object>> {
    let Some(row) = state.get(&object_key(page, slot))? else { return Ok(None) };
    let stored = StoredObject::decode(page, &row)?;
    stored.with(page, row.slice_ref(stored.bytes)).map(Some)
}

/// Reads the kind of an object; `None` if there is no such object.
pub(crate) fn read_kind(state: &impl Rows, oid: Oid) -> Result<Option<Kind>> {
    let (page, key) = (oid.page(), object_key(oid.page(), oid.slot()));
    let stored = state.get_with(&key, |row| {
        let stored = StoredObject::decode(page, row)?;
        let kind = Object::kind_of(stored.code).map_err(|error| damage_error(page, error.message()))?;
        Ok((stored.class == oid.class()).then_some(kind))
    })?;
    stored.unwrap_or(Ok(None))
}

/// Calls `show` with an object, in place; with `None` if there is none.
pub(crate) fn show_object<T>(
    store: &Store,
    oid: Oid,
    mut show: impl FnMut(Option<StoredObject<'_>>) -> T,
) -> Result<T> {
    let shown = store.row_with(&object_key(oid.page(), oid.slot()), |row| {
        let stored = StoredObject { buffer: row.buffer(), ..StoredObject::decode(oid.page(), row.bytes())? };
        Ok(show(Some(stored).filter(|stored| stored.class == oid.class())))
    })?;
    shown.unwrap_or_else(|| Ok(show(None)))
}

/// Reads an object and the head of its page. If both change in between, the object is newer than the head, and a transaction that
/// validates it by the head's version conflicts.
pub(crate) fn read_one(store: &impl Rows, oid: Oid) -> Result<(Head, Option<Object>)> {
    let head = read_head(store, oid.page())?;
    let object = read_object(store, oid.page(), oid.slot())?;
    Ok((head, object.filter(|object| object.class == oid.class())))
}

/// Reads a whole page. `store` must be a snapshot for a consistent result.
pub(crate) fn read_page(store: &impl Rows, page: PageId) -> Result<PageImage<Object>> {
    let mut fetched = PageImage { version: Version::ZERO, timestamp: HlcTimestamp::ZERO, objects: Default::default() };
    let mut failed = None;
    store.each(&head_key(page), &page_end(page), |key, row| {
        let taken = match key.get(HEAD_KEY..) {
            Some([]) => Head::decode(page, row).map(|head| {
                (fetched.version, fetched.timestamp) = (head.version, head.timestamp);
            }),
            Some([high, low]) => decode_object(page, row).map(|object| {
                fetched.objects.insert(u16::from_be_bytes([*high, *low]), object);
            }),
            _ => Err(damage_error(page, "it has a row of the wrong length")),
        };
        match taken {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(fetched), Err)
}

/// Whether a whole page can probably be read without waiting for the disk.
pub(crate) fn is_page_resident(store: &Store, page: PageId) -> bool {
    store.are_rows_resident(&head_key(page), &page_end(page))
}

/// Most rows that are examined for one answer of a listing.
const MAX_LISTED_ROWS: usize = 20_000;

/// Lists the objects of a space at a logical node in the order of their places. The rows of a page's head are passed over, and so is what
/// is damaged, which the answer tells.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(crate) fn list_objects(state: &Snapshot, wanted: &ListNodeObjects) -> Result<NodeObjects> {
    let ListNodeObjects { space, node, from: (number, slot), limit } = *wanted;
    let page = |number| PageId { space, node, number };
    let (from, to) = (
        object_key(page(number), slot),
        key(b'P', &[&node.0.to_be_bytes(), &space.0.to_be_bytes(), &[0xff; PAGE_LEN + 3]]),
    );
    let (mut found, mut examined, damage) = (NodeObjects::default(), 0, RefCell::new(PassedDamage::new(true)));
    let visit = |key: &[u8], row: &[u8]| {
        let Some((page, slot)) = parse_key(key) else { return ControlFlow::Continue(()) };
        let is_over = examined == MAX_LISTED_ROWS || damage.borrow().is_full() || found.objects.len() >= limit as usize;
        if is_over {
            found.next = Some((page.number, slot.unwrap_or(0)));
            return ControlFlow::Break(());
        }
        examined += 1;
        let Some(slot) = slot else { return ControlFlow::Continue(()) };
        let listed = StoredObject::decode(page, row).and_then(|stored| {
            let Summary { kind, size, .. } = stored.summary(page)?;
            Ok(ListedObject { oid: Oid::new(stored.class, page, slot), kind, size })
        });
        match listed {
            Ok(object) => found.objects.push(object),
            Err(error) => damage.borrow_mut().add(&error),
        }
        ControlFlow::Continue(())
    };
    state.rows_beside_damage(&from, &to, visit, |_, error| damage.borrow_mut().add(error))?;
    found.damage = damage.into_inner().message();
    Ok(found)
}

/// Calls `visit` with each object of all logical nodes, or with what is wrong with it: a row that is no object, or whose bytes have another
/// checksum. The class in the identifier of a damaged object may be wrong. `visit` may end it. `damaged` gets keys among which rows cannot be
/// read.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(crate) fn each_object(
    state: &Snapshot,
    mut visit: impl FnMut(Oid, usize, Result<Summary>) -> ControlFlow<()>,
    mut damaged: impl FnMut(KeyRange),
) -> Result<()> {
    let visit = |key: &[u8], row: &[u8]| {
        let Some((page, Some(slot))) = parse_key(key) else { return ControlFlow::Continue(()) };
        let stored = StoredObject::decode(page, row);
        let class = stored.as_ref().map_or(ClassId::NONE, |stored| stored.class);
        let checked = stored.and_then(|stored| {
            if crc32c_parts(&[stored.bytes]) != stored.checksum {
                return Err(damage_error(page, &format!("the object in slot {slot} has another checksum")));
            }
            stored.summary(page)
        });
        visit(Oid::new(class, page, slot), row.len(), checked)
    };
    state.rows_beside_damage(b"P", b"Q", visit, |range, _| damaged(range))
}

/// The object in a row, if its bytes have their checksum.
///
/// # Errors
/// Why it is no object, with its class if that is known.
pub(crate) fn verify_object(page: PageId, slot: u16, row: &Bytes) -> std::result::Result<Object, (ClassId, Error)> {
    let stored = StoredObject::decode(page, row).map_err(|error| (ClassId::NONE, error))?;
    let class = stored.class;
    if crc32c_parts(&[stored.bytes]) != stored.checksum {
        return Err((class, damage_error(page, &format!("the object in slot {slot} has another checksum"))));
    }
    stored.with(page, row.slice_ref(stored.bytes)).map_err(|error| (class, error))
}

/// The class and the content of the object in a row, if it has a content.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the row is no object.
pub(crate) fn content_in_row(page: PageId, row: &[u8]) -> Result<Option<(ClassId, ContentId)>> {
    let stored = StoredObject::decode(page, row)?;
    Ok(stored.summary(page)?.content.map(|content| (stored.class, content)))
}

/// The class of the object in a row; `None` if it has none that there can be.
pub(crate) fn class_in_row(row: &[u8]) -> Option<ClassId> {
    row.first_chunk().map(|class| ClassId(u32::from_be_bytes(*class))).filter(|class| *class <= ClassId::MAX)
}

/// The value of a row with one number.
pub(crate) fn encode_number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Reads a row with one number; 0 if there is none.
pub(crate) fn read_number(store: &impl Rows, key: &[u8]) -> Result<u64> {
    let Some(row) = store.get(key)? else { return Ok(0) };
    let bytes = row.as_ref().try_into().map_err(|_| number_damage_error(key, "it is not a number"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Reads a number that is counted up; 0 if there is none.
///
/// # Errors
/// As [`read_number`], also for a number that no count reaches.
pub(crate) fn read_count(store: &impl Rows, key: &[u8]) -> Result<u64> {
    let count = read_number(store, key)?;
    if count <= limits::COUNT {
        Ok(count)
    } else {
        Err(number_damage_error(key, &format!("nothing counts to {count}")))
    }
}

fn number_damage_error(key: &[u8], why: &str) -> Error {
    let what = format!("row {key:02x?} is damaged: {why}; see \"Mend\" in docs/operations.md");
    Error::new(ErrorKind::Corrupt, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The range of a table at a logical node, and its first and last key.
    type Table = (fn(NodeId) -> (Key, Key), fn(NodeId) -> [Key; 2]);

    fn txn(number: u64) -> TxnId {
        TxnId { start: HlcTimestamp(number), client: ClientId(number) }
    }

    #[test]
    fn keys_of_extents_that_name_no_object_are_damage() {
        let page = PageId { space: SpaceId(7), node: NodeId(8), number: 9 };
        let key = extent_key(ClassId(5), page, 6);
        assert_eq!(parse_extent(page.node, &key).unwrap(), Oid::new(ClassId(5), page, 6));
        // Space and class have fewer bits in an identifier than in the key.
        for at in [5, 7] {
            let mut damaged = key.clone();
            damaged[at] = 0xff;
            assert_eq!(parse_extent(page.node, &damaged).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        }
    }

    #[test]
    fn object_of_the_last_class_there_can_be_is_no_damage() {
        let page = PageId { space: SpaceId(7), node: NodeId(8), number: 9 };
        let object = Object::record(ClassId::MAX, "data".into());
        assert_eq!(verify_object(page, 6, &encode_object(&object)).unwrap(), object);
    }

    #[test]
    fn range_of_a_table_has_the_rows_of_one_logical_node() {
        let tables: [Table; 3] = [
            (free_range, |node| [0, u16::MAX].map(|space| free_key(node, SpaceId(space)))),
            (txn_range, |node| [(0, 0), (u64::MAX, u16::MAX)].map(|(number, piece)| txn_key(node, txn(number), piece))),
            (mark_range, |node| [0, u64::MAX].map(|client| mark_key(node, ClientId(client)))),
        ];
        for (range, bounds) in tables {
            let (from, to) = range(NodeId(0x0100));
            assert!(bounds(NodeId(0x0100)).iter().all(|key| (&from..&to).contains(&key)), "{from:02x?}..{to:02x?}");
            for other in [0x00ff, 0x0101] {
                assert!(!bounds(NodeId(other)).iter().any(|key| (&from..&to).contains(&key)), "{from:02x?}..{to:02x?}");
            }
        }
    }
}
