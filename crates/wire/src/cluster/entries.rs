//! Entries of collections: changes of transactions, look-ups and listings.

use bytes::Bytes;
use model::{Entry, EntryKey, Error, ErrorKind, Kind, NodeId, Oid, Result, SpaceId, limits};
use protocol::commit::EntryChanges;
use protocol::ident::HlcTimestamp;
use protocol::validate::Read;

use super::ids;
use super::states::{self, MAX_MESSAGE_WRITES, split_chunks};
use crate::convert::{self, invalid, missing};
use crate::proto::cluster as proto;
use crate::proto::entries as messages;

/// Most keys of one look-up.
pub const MAX_LOOK_UP_KEYS: usize = 512;

// ------------------------------------------------------------------------------------------------ changes

pub(super) fn changes_to_proto<'a>(
    changes: impl Iterator<Item = (&'a Entry, &'a Option<Oid>)>,
) -> Option<proto::Entries> {
    let mut list = proto::Entries::default();
    let (mut lengths, mut keys) = (Vec::new(), Vec::new());
    for (Entry { collection, key }, target) in changes {
        let collection = crate::proto::Oid::from(*collection);
        let target = target.map(crate::proto::Oid::from).unwrap_or_default();
        list.oids.extend([collection.high, collection.low, target.high, target.low]);
        push_key(key, &mut lengths, &mut keys);
    }
    (list.lengths, list.keys) = (lengths.into(), keys.into());
    (!list.oids.is_empty()).then_some(list)
}

pub(super) fn changes(list: Option<proto::Entries>) -> Result<EntryChanges> {
    let Some(list) = list else { return Ok(EntryChanges::new()) };
    let oids = split_chunks::<4, _>(&list.oids, MAX_MESSAGE_WRITES, "entries")?;
    let keys = keys(&list.lengths, &list.keys, oids.len())?;
    let mut all: Vec<(Entry, Option<Oid>)> = Vec::with_capacity(oids.len());
    for ([c0, c1, t0, t1], key) in oids.iter().zip(keys) {
        let entry = Entry { collection: ids::oid_from_halves([*c0, *c1])?, key };
        if let Some((last, _)) = all.last().filter(|(last, _)| *last >= entry) {
            return Err(invalid(format!("the entry {entry:?} follows {last:?}: out of order, or repeated")));
        }
        let target = if [*t0, *t1] == [0, 0] { None } else { Some(ids::oid_from_halves([*t0, *t1])?) };
        all.push((entry, target));
    }
    // Collected in order, so that the map is built at once.
    Ok(all.into_iter().collect())
}

// ------------------------------------------------------------------------------------------------ keys

fn push_key(key: &EntryKey, lengths: &mut Vec<u8>, keys: &mut Vec<u8>) {
    // A key has at most 255 bytes.
    lengths.push(key.as_bytes().len() as u8);
    keys.extend_from_slice(key.as_bytes());
}

/// Splits concatenated keys. Each is a copy, so that none keeps the message in memory.
fn keys(lengths: &[u8], keys: &[u8], count: usize) -> Result<Vec<EntryKey>> {
    let total: usize = lengths.iter().map(|length| usize::from(*length)).sum();
    if lengths.len() != count || total != keys.len() {
        let (found, bytes) = (lengths.len(), keys.len());
        return Err(invalid(format!(
            "a list of {count} entries has {found} lengths of keys, of {total} bytes together, and {bytes} bytes of keys"
        )));
    }
    let mut rest = keys;
    let mut all = Vec::with_capacity(count);
    for length in lengths {
        let (key, behind) = rest.split_at(usize::from(*length));
        all.push(EntryKey::new(Bytes::copy_from_slice(key))?);
        rest = behind;
    }
    Ok(all)
}

fn oid_pairs(halves: &[u64]) -> Result<Vec<Oid>> {
    let oids = split_chunks::<2, _>(halves, limits::LISTING.max(MAX_LOOK_UP_KEYS), "identifiers")?;
    oids.iter().map(|oid| ids::oid_from_halves(*oid)).collect()
}

fn halves<'a>(oids: impl IntoIterator<Item = &'a Oid>) -> Vec<u64> {
    let oids = oids.into_iter().map(|oid| crate::proto::Oid::from(*oid));
    oids.flat_map(|oid| [oid.high, oid.low]).collect()
}

/// The collection or target of a request, which is on a page of this space, and of this node if that is given.
fn place(field: Option<crate::proto::Oid>, space: SpaceId, node: Option<NodeId>) -> Result<Oid> {
    let oid = ids::permanent_oid(convert::oid(field, "object")?)?;
    if oid.space() != space || node.is_some_and(|node| oid.page().node != node) {
        return Err(invalid(format!("{oid} is not of the space and the logical node of the request")));
    }
    Ok(oid)
}

fn check_limit(limit: u32) -> Result<u32> {
    if limit as usize > limits::LISTING {
        let what = format!("a listing of {limit} entries is requested; the limit is {}", limits::LISTING);
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    Ok(limit)
}

// ------------------------------------------------------------------------------------------------ look-ups

/// A request to follow keys from a collection, as long as the collections are at one logical node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The collection with the first key.
    pub collection: Oid,
    /// The keys: each is looked up in the target of the previous one.
    pub keys: Vec<EntryKey>,
}

/// The answer to a look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// The targets of the first keys. There are fewer than keys if one was not found, or if a target is at another logical node.
    pub targets: Vec<Oid>,
    /// The guards of the keys that were looked up, with their versions: one more than targets if the last key was not found.
    pub guards: Vec<Read>,
    /// A time at or after all changes that were read.
    pub seen: HlcTimestamp,
}

impl LookUp {
    /// The logical node of the request.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.collection.page().node
    }

    /// Encodes the request.
    #[must_use]
    pub fn into_proto(self) -> Box<messages::LookUp> {
        let (space, node) = (u32::from(self.collection.space().0), self.node().0);
        let keys = self.keys.iter().map(EntryKey::to_bytes).collect();
        Box::new(messages::LookUp { space, node, collection: Some(self.collection.into()), keys })
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(look_up: messages::LookUp) -> Result<Self> {
        if look_up.keys.is_empty() || look_up.keys.len() > MAX_LOOK_UP_KEYS {
            let count = look_up.keys.len();
            return Err(invalid(format!("a look-up has {count} keys; it may have 1 to {MAX_LOOK_UP_KEYS}")));
        }
        let (space, node) = (convert::space(look_up.space)?, ids::node(look_up.node)?);
        let collection = place(look_up.collection, space, Some(node))?;
        Ok(Self { collection, keys: look_up.keys.into_iter().map(EntryKey::new).collect::<Result<_>>()? })
    }
}

impl LookedUp {
    /// Encodes the answer.
    #[must_use]
    pub fn into_proto(self) -> Box<messages::LookedUp> {
        let guards = states::read_slice_to_proto(&self.guards);
        Box::new(messages::LookedUp { targets: halves(&self.targets), guards, seen: self.seen.0 })
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(found: messages::LookedUp) -> Result<Self> {
        let (targets, guards) = (oid_pairs(&found.targets)?, states::read_vec(found.guards)?);
        if guards.len() != targets.len() && guards.len() != targets.len() + 1 {
            let (targets, guards) = (targets.len(), guards.len());
            return Err(invalid(format!("an answer to a look-up has {targets} targets and {guards} guards")));
        }
        Ok(Self { targets, guards, seen: ids::timestamp(found.seen)? })
    }
}

// ------------------------------------------------------------------------------------------------ listings

/// A request to list entries of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntries {
    /// The collection.
    pub collection: Oid,
    /// Only keys after this one; in descending order, keys before it.
    pub after: Option<EntryKey>,
    /// Only keys that begin with these bytes.
    pub prefix: Bytes,
    /// Maximum entries; 0: only the count and the time of the last change.
    pub limit: u32,
    /// Whether to list in descending order.
    pub reverse: bool,
    /// Whether to return the kinds of the targets, where the brick knows them.
    pub kinds: bool,
    /// Whether to pass over entries that cannot be read, in ascending order. Else they are an error.
    pub passes_damage: bool,
}

/// An entry in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The key.
    pub key: EntryKey,
    /// The object.
    pub target: Oid,
    /// The kind of the object, if it was requested and is known.
    pub kind: Option<Kind>,
}

/// The answer to a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryList {
    /// The entries, in the requested order.
    pub entries: Vec<ListedEntry>,
    /// Whether there may be more entries behind the last one.
    pub more: bool,
    /// The guard of the collection, with its version.
    pub guards: Vec<Read>,
    /// A time at or after all changes that were read.
    pub seen: HlcTimestamp,
    /// The number of entries of the collection.
    pub count: u64,
    /// The largest commit timestamp of a change of an entry; zero if there was none.
    pub modified: HlcTimestamp,
    /// What was passed over because it cannot be read. Guard, number and time may be missing then.
    pub damage: Option<String>,
}

impl ListEntries {
    /// The logical node of the request.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.collection.page().node
    }

    /// Encodes the request.
    #[must_use]
    pub fn into_proto(self) -> Box<messages::ListEntries> {
        let (space, node) = (u32::from(self.collection.space().0), self.node().0);
        let after = self.after.map(|key| key.to_bytes());
        let Self { collection, prefix, limit, reverse, kinds, passes_damage, .. } = self;
        let collection = Some(collection.into());
        Box::new(messages::ListEntries { space, node, collection, after, prefix, limit, reverse, kinds, passes_damage })
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(list: messages::ListEntries) -> Result<Self> {
        let (space, node) = (convert::space(list.space)?, ids::node(list.node)?);
        let messages::ListEntries { prefix, limit, reverse, kinds, passes_damage, .. } = list;
        if prefix.len() > limits::ENTRY_KEY {
            let (len, most) = (prefix.len(), limits::ENTRY_KEY);
            return Err(Error::new(ErrorKind::TooLarge, format!("a prefix has {len} bytes; it may have {most}")));
        }
        if reverse && passes_damage {
            return Err(invalid("a listing in descending order cannot pass over damage".to_owned()));
        }
        let after = list.after.map(EntryKey::new).transpose()?;
        let (collection, limit) = (place(list.collection, space, Some(node))?, check_limit(limit)?);
        Ok(Self { collection, after, prefix, limit, reverse, kinds, passes_damage })
    }
}

impl EntryList {
    /// Encodes the answer and its raw part.
    #[must_use]
    pub fn into_proto(self, with_kinds: bool) -> (Box<messages::EntryList>, Bytes) {
        let (mut lengths, mut keys) = (Vec::with_capacity(self.entries.len()), Vec::new());
        self.entries.iter().for_each(|entry| push_key(&entry.key, &mut lengths, &mut keys));
        let kinds = self.entries.iter().filter(|_| with_kinds).map(|entry| entry.kind.map_or(0, |kind| kind as u8));
        let list = messages::EntryList {
            lengths: lengths.into(),
            targets: halves(self.entries.iter().map(|entry| &entry.target)),
            kinds: kinds.collect(),
            more: self.more,
            guards: states::read_slice_to_proto(&self.guards),
            seen: self.seen.0,
            count: self.count,
            modified: self.modified.0,
            damage: self.damage,
        };
        (Box::new(list), keys.into())
    }

    /// Decodes an answer and its raw part.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(list: messages::EntryList, raw: &[u8]) -> Result<Self> {
        let targets = oid_pairs(&list.targets)?;
        let keys = keys(&list.lengths, raw, targets.len())?;
        if !list.kinds.is_empty() && list.kinds.len() != targets.len() {
            let (entries, kinds) = (targets.len(), list.kinds.len());
            return Err(invalid(format!("a listing has {entries} entries and {kinds} kinds")));
        }
        let kind = |at: usize| list.kinds.get(at).and_then(|code| Kind::from_code(*code));
        let entries = keys.into_iter().zip(targets).enumerate();
        let entries = entries.map(|(at, (key, target))| ListedEntry { key, target, kind: kind(at) }).collect();
        Ok(Self {
            entries,
            more: list.more,
            guards: states::read_vec(list.guards)?,
            seen: ids::timestamp(list.seen)?,
            count: list.count,
            modified: ids::timestamp(list.modified)?,
            damage: list.damage,
        })
    }
}

// ------------------------------------------------------------------------------------------------ reverse look-ups

/// A request to list the entries that have a target, at one logical node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntriesOf {
    /// The logical node of the collections.
    pub node: NodeId,
    /// The target.
    pub target: Oid,
    /// Only entries after this one.
    pub after: Option<Entry>,
    /// Maximum entries.
    pub limit: u32,
}

/// The answer: entries that have the target, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntriesOf {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether there may be more entries behind the last one.
    pub more: bool,
}

impl ListEntriesOf {
    /// Encodes the request.
    #[must_use]
    pub fn into_proto(self) -> Box<messages::ListEntriesOf> {
        let (after_collection, after_key) = match self.after {
            Some(Entry { collection, key }) => (Some(collection.into()), key.to_bytes()),
            None => (None, Bytes::new()),
        };
        let (space, target) = (u32::from(self.target.space().0), Some(self.target.into()));
        let (node, limit) = (self.node.0, self.limit);
        Box::new(messages::ListEntriesOf { space, node, target, after_collection, after_key, limit })
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(list: messages::ListEntriesOf) -> Result<Self> {
        let (space, node) = (convert::space(list.space)?, ids::node(list.node)?);
        let after = match list.after_collection {
            Some(collection) => Some(Entry {
                collection: place(Some(collection), space, Some(node))?,
                key: EntryKey::new(list.after_key)?,
            }),
            None if list.after_key.is_empty() => None,
            None => return Err(missing("collection of the key to continue after")),
        };
        Ok(Self { node, target: place(list.target, space, None)?, after, limit: check_limit(list.limit)? })
    }
}

impl EntriesOf {
    /// Encodes the answer and its raw part.
    #[must_use]
    pub fn into_proto(self) -> (Box<messages::EntriesOf>, Bytes) {
        let (mut lengths, mut keys) = (Vec::with_capacity(self.entries.len()), Vec::new());
        self.entries.iter().for_each(|entry| push_key(&entry.key, &mut lengths, &mut keys));
        let collections = halves(self.entries.iter().map(|entry| &entry.collection));
        (Box::new(messages::EntriesOf { collections, lengths: lengths.into(), more: self.more }), keys.into())
    }

    /// Decodes an answer and its raw part.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(list: messages::EntriesOf, raw: &[u8]) -> Result<Self> {
        let collections = oid_pairs(&list.collections)?;
        let keys = keys(&list.lengths, raw, collections.len())?;
        let entries = collections.into_iter().zip(keys).map(|(collection, key)| Entry { collection, key }).collect();
        Ok(Self { entries, more: list.more })
    }
}

// ------------------------------------------------------------------------------------------------ objects

/// A request to list the objects of a logical node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNodeObjects {
    /// The space.
    pub space: SpaceId,
    /// The logical node.
    pub node: NodeId,
    /// Only objects at this place and behind it: a page number and a slot.
    pub from: (u64, u16),
    /// Maximum objects.
    pub limit: u32,
}

/// An object in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its identifier.
    pub oid: Oid,
    /// Its kind.
    pub kind: Kind,
    /// Bytes of the object; 0 for a collection.
    pub size: u64,
}

/// The answer: objects in the order of their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeObjects {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// The place to continue from; `None` at the end.
    pub next: Option<(u64, u16)>,
    /// What was passed over because it cannot be read.
    pub damage: Option<String>,
}

fn place_to_number((page, slot): (u64, u16)) -> u64 {
    page << 16 | u64::from(slot)
}

fn place_of_number(number: u64) -> (u64, u16) {
    // The lower half is the slot.
    (number >> 16, number as u16)
}

impl ListNodeObjects {
    /// Encodes the request.
    #[must_use]
    pub fn into_proto(self) -> messages::ListNodeObjects {
        let Self { space, node, from, limit } = self;
        messages::ListNodeObjects { space: u32::from(space.0), node: node.0, from: place_to_number(from), limit }
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(list: messages::ListNodeObjects) -> Result<Self> {
        let (space, node) = (convert::space(list.space)?, ids::node(list.node)?);
        Ok(Self { space, node, from: place_of_number(list.from), limit: check_limit(list.limit)? })
    }
}

impl NodeObjects {
    /// Encodes the answer.
    #[must_use]
    pub fn into_proto(self) -> messages::NodeObjects {
        let oids = halves(self.objects.iter().map(|object| &object.oid));
        let kinds: Vec<u8> = self.objects.iter().map(|object| object.kind as u8).collect();
        let sizes = self.objects.iter().map(|object| object.size).collect();
        let (next, damage) = (self.next.map(place_to_number), self.damage);
        messages::NodeObjects { oids, kinds: kinds.into(), sizes, next, damage }
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(list: messages::NodeObjects) -> Result<Self> {
        let oids = oid_pairs(&list.oids)?;
        if list.kinds.len() != oids.len() || list.sizes.len() != oids.len() {
            let (kinds, sizes) = (list.kinds.len(), list.sizes.len());
            return Err(invalid(format!("{} objects with {kinds} kinds and {sizes} sizes", oids.len())));
        }
        let objects = oids.into_iter().zip(&list.kinds).zip(list.sizes).map(|((oid, code), size)| {
            let kind = Kind::from_code(*code).ok_or_else(|| invalid(format!("no object has the kind {code}")))?;
            Ok(ListedObject { oid, kind, size })
        });
        let (next, damage) = (list.next.map(place_of_number), list.damage);
        Ok(Self { objects: objects.collect::<Result<_>>()?, next, damage })
    }
}
