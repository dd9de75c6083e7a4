//! Lists of reads, of writes and of the objects of a page, with their data.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::{ClassId, ContentPatch, Error, ErrorKind, Kind, NodeId, Object, Oid, Result, limits};
use protocol::commit::{AppendOffsets, Part, Writes};
use protocol::page_cache::{ObjectState, SlotStates};
use protocol::read_list::{ReadList, ReadRun};
use protocol::validate::{Read, ReadVersion};

use super::entries;
use super::ids;
use crate::convert::invalid;
use crate::frame::Raw;
use crate::proto::cluster as proto;

/// Most objects in the read set of one message.
pub const MAX_MESSAGE_READS: usize = limits::READS;
/// Most objects that one message can write.
pub const MAX_MESSAGE_WRITES: usize = limits::OPERATIONS;

/// Most bytes of a raw part whose objects share one copy of it: about the size of a page.
const MAX_SHARED_COPY: usize = 16 << 10;

/// Bits of a state for the length of the encoded object; the others hold its code.
const LENGTH_BITS: u32 = 24;
const MAX_LENGTH: u32 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(limits::OBJECT < MAX_LENGTH as usize);
/// Marks a state that is a change: the object's data describes it.
const CHANGED: u32 = 0x40 << LENGTH_BITS;

/// Whether records are validated, which costs about as much as copying them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Validate: they come from below, perhaps from a client.
    Records,
    /// Check lengths only: they come from above or from this machine's disk, and were validated on their way there.
    Lengths,
}

/// Takes the data of objects from a raw part, in order.
pub(super) struct Data<'a> {
    rest: Rest<'a>,
    check: Check,
}

enum Rest<'a> {
    /// A buffer that is soon overwritten.
    Borrowed(&'a [u8]),
    /// A large buffer that short pieces should not keep in memory.
    Large(Bytes),
    /// A small buffer that the objects share.
    Shared(Bytes),
}

impl<'a> Data<'a> {
    pub(super) fn new(raw: Raw<'a>, check: Check) -> Self {
        let rest = match raw {
            Raw::Borrowed([]) => Rest::Shared(Bytes::new()),
            Raw::Borrowed(bytes) if bytes.len() <= MAX_SHARED_COPY => Rest::Shared(Bytes::copy_from_slice(bytes)),
            Raw::Borrowed(bytes) => Rest::Borrowed(bytes),
            Raw::Owned(bytes) if bytes.len() <= MAX_SHARED_COPY => Rest::Shared(bytes),
            Raw::Owned(bytes) => Rest::Large(bytes),
        };
        Self { rest, check }
    }

    fn len(&self) -> usize {
        match &self.rest {
            Rest::Borrowed(bytes) => bytes.len(),
            Rest::Large(bytes) | Rest::Shared(bytes) => bytes.len(),
        }
    }

    fn take(&mut self, length: usize) -> Result<Bytes> {
        if length > self.len() {
            return Err(invalid("the lengths in a message exceed its raw part"));
        }
        Ok(match &mut self.rest {
            Rest::Borrowed(bytes) => {
                let (piece, rest) = bytes.split_at(length);
                *bytes = rest;
                Bytes::copy_from_slice(piece)
            }
            Rest::Large(bytes) => {
                let piece = bytes.split_to(length);
                if length > MAX_SHARED_COPY { piece } else { Bytes::copy_from_slice(&piece) }
            }
            Rest::Shared(bytes) => bytes.split_to(length),
        })
    }

    /// Takes the object with this state, if there is one.
    pub(super) fn object(&mut self, class: ClassId, state: u32) -> Result<Option<Object>> {
        if state == 0 {
            return Ok(None);
        }
        let (code, length) = ((state >> LENGTH_BITS) as u8, (state & MAX_LENGTH) as usize);
        if length > limits::OBJECT {
            let what = format!("an object has {length} bytes, and may have {}: split it", limits::OBJECT);
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let object = Object::decode(class, code, self.take(length)?)?;
        let kind = object.kind;
        if kind != Kind::Record && class != ClassId::NONE {
            return Err(invalid(format!("a {} has class {}, and must have none", kind.name(), class.0)));
        }
        if matches!(kind, Kind::Collection | Kind::Directory) && !object.data.is_empty() {
            return Err(invalid(format!("a {} has {} bytes, and must have none", kind.name(), object.data.len())));
        }
        if self.check == Check::Records {
            object.check()?;
        }
        Ok(Some(object))
    }

    /// Takes all bytes that are left.
    pub(super) fn take_rest(mut self) -> Result<Bytes> {
        let length = self.len();
        self.take(length)
    }

    /// Checks that no bytes are left.
    pub(super) fn finish(self) -> Result<()> {
        if self.len() == 0 {
            return Ok(());
        }
        Err(invalid("the raw part of a message is longer than its lengths"))
    }
}

/// The state of an object or of its absence. Adds its data to the raw part.
pub(super) fn state(object: Option<&Object>, raw: &mut Vec<Bytes>) -> u32 {
    let Some(object) = object else { return 0 };
    raw.extend(object.encoded_extension());
    if !object.data.is_empty() {
        raw.push(object.data.clone());
    }
    state_of(object.code(), object.encoded_len())
}

/// The state of an object of this code and encoded length. Lengths that do not fit become the largest one, which exceeds the size limit
/// and is refused.
pub(super) fn state_of(code: u8, length: usize) -> u32 {
    let length = u32::try_from(length).unwrap_or(u32::MAX).min(MAX_LENGTH);
    u32::from(code) << LENGTH_BITS | length
}

// ------------------------------------------------------------------------------------------------ reads

pub(super) fn reads_to_proto<'a>(runs: impl Iterator<Item = ReadRun<'a>>) -> Option<proto::Reads> {
    let mut list = proto::Reads::default();
    let mut slots = Vec::new();
    for (index, run) in runs.enumerate() {
        let ReadRun { page, class, seen, slots: of_run } = run;
        let [first, more @ ..] = of_run else { unreachable!("a run of reads has at least one") };
        let oid = crate::proto::Oid::from(Oid::new(class, page, *first));
        list.oids.extend([oid.high, oid.low]);
        list.more.push(more.len() as u32);
        slots.extend(more.iter().flat_map(|slot| slot.to_le_bytes()));
        match seen {
            ReadVersion::At(version) => {
                list.seen.push(version.position);
                if version.moves > 0 {
                    list.moves.resize(index, 0);
                    list.moves.push(version.moves);
                }
            }
            ReadVersion::Written(txn) => {
                list.seen.push(txn.start.0);
                list.written.push(index as u32);
                list.writers.push(txn.client.0);
            }
        }
    }
    if !list.moves.is_empty() {
        list.moves.resize(list.seen.len(), 0);
    }
    if slots.is_empty() {
        list.more.clear();
    }
    list.slots = slots.into();
    (!list.seen.is_empty()).then_some(list)
}

/// The same for single reads.
pub(super) fn read_slice_to_proto(reads: &[Read]) -> Option<proto::Reads> {
    reads_to_proto(reads.iter().copied().collect::<ReadList>().runs())
}

pub(super) fn reads(list: Option<proto::Reads>) -> Result<ReadList> {
    let Some(list) = list else { return Ok(ReadList::default()) };
    let oids = split_chunks::<2, _>(&list.oids, MAX_MESSAGE_READS, "reads")?;
    let moves = (!list.moves.is_empty()).then_some(&list.moves);
    let fits = oids.len() == list.seen.len() && moves.is_none_or(|moves| moves.len() == oids.len());
    if !fits || list.written.len() != list.writers.len() {
        return Err(invalid(format!("a list of reads has {} runs and another number of states", oids.len())));
    }
    let mut slots = SlotsOfRuns::new(&list, oids.len())?;
    let mut written = list.written.iter().zip(&list.writers).peekable();
    let mut reads = ReadList::with_capacity(oids.len() + slots.rest.len());
    for (index, (oid, seen)) in oids.iter().zip(&list.seen).enumerate() {
        let moves = moves.map_or(0, |moves| moves[index]);
        let seen = match written.next_if(|(at, _)| **at as usize == index) {
            Some((_, writer)) if moves == 0 => ReadVersion::Written(ids::txn_from_parts(*seen, *writer)?),
            Some(_) => return Err(invalid("a read of a transaction's write has a move count")),
            None => ReadVersion::At(ids::version_from_parts(moves, *seen)?),
        };
        let oid = ids::oid_from_halves(*oid)?;
        let of_run = slots.take(oid.slot(), index)?;
        reads.push_run(ReadRun { page: oid.page(), class: oid.class(), seen, slots: of_run });
    }
    match written.next() {
        None => slots.finish().map(|()| reads),
        Some((index, _)) => {
            Err(invalid(format!("run {index} of a transaction's write does not exist, or is out of order")))
        }
    }
}

/// The same as single reads.
pub(super) fn read_vec(list: Option<proto::Reads>) -> Result<Vec<Read>> {
    Ok(reads(list)?.iter().collect())
}

/// Takes the slots of the runs of a list of reads, in order.
struct SlotsOfRuns<'a> {
    more: &'a [u32],
    rest: &'a [[u8; 2]],
    of_run: Vec<u16>,
}

impl<'a> SlotsOfRuns<'a> {
    fn new(list: &'a proto::Reads, runs: usize) -> Result<Self> {
        let rest = split_chunks::<2, _>(&list.slots[..], MAX_MESSAGE_READS - runs, "reads")?;
        if !list.more.is_empty() && list.more.len() != runs {
            let what = format!("a list of reads has {runs} runs and {} lengths", list.more.len());
            return Err(invalid(what));
        }
        Ok(Self { more: &list.more, rest, of_run: Vec::new() })
    }

    /// The slots of the run at `index`, whose first slot is `first`.
    fn take(&mut self, first: u16, index: usize) -> Result<&[u16]> {
        let more = self.more.get(index).map_or(0, |more| *more as usize);
        let Some((of_run, rest)) = self.rest.split_at_checked(more) else {
            return Err(invalid(format!("run {index} of a list of reads has fewer slots than it says")));
        };
        self.rest = rest;
        self.of_run.clear();
        self.of_run.push(first);
        self.of_run.extend(of_run.iter().map(|slot| u16::from_le_bytes(*slot)));
        Ok(&self.of_run)
    }

    /// Checks that no slots are left.
    fn finish(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(invalid(format!("a list of reads has {left} slots more than its runs"))),
        }
    }
}

/// Splits a list of numbers into chunks of `N`.
pub(super) fn split_chunks<'a, const N: usize, T>(numbers: &'a [T], most: usize, what: &str) -> Result<&'a [[T; N]]> {
    let (things, []) = numbers.as_chunks::<N>() else {
        return Err(invalid(format!("{} numbers are not a whole number of {what}", numbers.len())));
    };
    if things.len() > most {
        let found = things.len();
        let what = format!("a message has {found} {what}; it may have {most}: use smaller transactions");
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    Ok(things)
}

// ------------------------------------------------------------------------------------------------ writes

pub(super) fn writes_to_proto<'a>(
    writes: impl Iterator<Item = (&'a Oid, &'a ObjectState<Object>)>,
    raw: &mut Vec<Bytes>,
) -> Option<proto::Writes> {
    let mut list = proto::Writes::default();
    let (most, _) = writes.size_hint();
    list.oids.reserve(2 * most);
    list.states.reserve(most);
    for (oid, content) in writes {
        let state = content_state(content, raw);
        let oid = crate::proto::Oid::from(*oid);
        list.oids.extend([oid.high, oid.low]);
        list.states.push(state);
    }
    (!list.oids.is_empty()).then_some(list)
}

/// The state of what is written.
fn content_state(content: &ObjectState<Object>, raw: &mut Vec<Bytes>) -> u32 {
    match content {
        ObjectState::Value(object) => state(Some(object), raw),
        ObjectState::Absent => 0,
        ObjectState::Changed(change) => state(Some(change), raw) | CHANGED,
    }
}

/// What is written with this state.
fn content(class: ClassId, state: u32, data: &mut Data<'_>) -> Result<ObjectState<Object>> {
    let object = data.object(class, state & !CHANGED)?;
    match (object, state & CHANGED != 0) {
        (Some(object), false) => Ok(ObjectState::Value(object)),
        (None, false) => Ok(ObjectState::Absent),
        (Some(change), true) => {
            ContentPatch::decode(&change)?;
            Ok(ObjectState::Changed(change))
        }
        (None, true) => Err(invalid("a change of an object has no content")),
    }
}

fn each_write(
    list: Option<proto::Writes>,
    data: &mut Data<'_>,
    mut each: impl FnMut(Oid, ObjectState<Object>),
) -> Result<()> {
    let Some(list) = list else { return Ok(()) };
    let oids = split_chunks::<2, _>(&list.oids, MAX_MESSAGE_WRITES, "writes")?;
    if oids.len() != list.states.len() {
        return Err(invalid(format!("a list of writes has {} objects and {} states", oids.len(), list.states.len())));
    }
    let mut last = Oid::MIN;
    for (oid, state) in oids.iter().zip(&list.states) {
        let oid = ids::oid_from_halves(*oid)?;
        if oid <= last {
            return Err(invalid(format!("the write of {oid} follows that of {last}: out of order, or repeated")));
        }
        last = oid;
        each(oid, content(oid.class(), *state, data)?);
    }
    Ok(())
}

pub(super) fn writes(list: Option<proto::Writes>, data: &mut Data<'_>) -> Result<Writes<Object>> {
    // Collected in order, so that the map is built at once.
    let mut all = Vec::new();
    each_write(list, data, |oid, content| all.push((oid, content)))?;
    Ok(all.into_iter().collect())
}

// ------------------------------------------------------------------------------------------------ touches

pub(super) fn touches_to_proto(touches: &BTreeSet<Oid>) -> Vec<u64> {
    let oids = touches.iter().map(|oid| crate::proto::Oid::from(*oid));
    oids.flat_map(|oid| [oid.high, oid.low]).collect()
}

pub(super) fn touches(oids: &[u64]) -> Result<BTreeSet<Oid>> {
    let oids = split_chunks::<2, _>(oids, MAX_MESSAGE_WRITES, "touches")?;
    let oids: Vec<Oid> = oids.iter().map(|oid| ids::oid_from_halves(*oid)).collect::<Result<_>>()?;
    match oids.is_sorted_by(|one, next| one < next) {
        true => Ok(oids.into_iter().collect()),
        false => Err(invalid("touches are out of order, or repeated")),
    }
}

// ------------------------------------------------------------------------------------------------ offsets of appends

pub(super) fn offsets_to_proto(offsets: &AppendOffsets) -> Vec<u64> {
    let halves = |(oid, offset): (&Oid, &u64)| {
        let oid = crate::proto::Oid::from(*oid);
        [oid.high, oid.low, *offset]
    };
    offsets.iter().flat_map(halves).collect()
}

pub(super) fn offsets(numbers: &[u64]) -> Result<AppendOffsets> {
    let mut offsets = Vec::new();
    for [high, low, offset] in split_chunks::<3, _>(numbers, MAX_MESSAGE_WRITES, "offsets of appends")? {
        let oid = ids::oid_from_halves([*high, *low])?;
        if offsets.last().is_some_and(|(last, _)| *last >= oid) {
            return Err(invalid(format!("the offset in {oid} is out of order, or repeated")));
        }
        if *offset > limits::BLOB {
            return Err(invalid(format!("the offset {offset} in {oid} is beyond the largest size of a blob")));
        }
        offsets.push((oid, *offset));
    }
    Ok(offsets.into_iter().collect())
}

// ------------------------------------------------------------------------------------------------ parts

/// Encodes the parts of all participants in one list. The identifiers tell which participant an entry belongs to.
pub(super) fn parts_to_proto(parts: &BTreeMap<NodeId, Part<Object>>, raw: &mut Vec<Bytes>) -> proto::Parts {
    let reads = parts.values().flat_map(|part| part.reads.runs());
    // Identifiers are ordered by space and class before node, so writes of several nodes must be sorted.
    let mut writes: Vec<_> = parts.values().flat_map(|part| &part.writes).collect();
    writes.sort_by_key(|(oid, _)| **oid);
    let is_idle = |part: &Part<Object>| part.reads.is_empty() && part.only_reads();
    let idle = parts.iter().filter(|(_, part)| is_idle(part));
    let mut changed: Vec<_> = parts.values().flat_map(|part| &part.entries).collect();
    changed.sort_by_key(|(entry, _)| *entry);
    let touches: BTreeSet<Oid> = parts.values().flat_map(|part| &part.touches).copied().collect();
    proto::Parts {
        reads: reads_to_proto(reads),
        writes: writes_to_proto(writes.into_iter(), raw),
        idle: ids::numbers(idle.map(|(node, _)| node)),
        touches: touches_to_proto(&touches),
        entries: entries::changes_to_proto(changed.into_iter()),
    }
}

pub(super) fn parts(list: Option<proto::Parts>, data: &mut Data<'_>) -> Result<BTreeMap<NodeId, Part<Object>>> {
    let list = list.unwrap_or_default();
    let mut parts = BTreeMap::new();
    for node in ids::nodes(list.idle)? {
        part(&mut parts, node);
    }
    for run in reads(list.reads)?.runs() {
        part(&mut parts, run.page.node).reads.push_run(run);
    }
    each_write(list.writes, data, |oid, content| {
        part(&mut parts, oid.page().node).writes.insert(oid, content);
    })?;
    for oid in touches(&list.touches)? {
        part(&mut parts, oid.page().node).touches.insert(oid);
    }
    for (entry, target) in entries::changes(list.entries)? {
        part(&mut parts, entry.collection.page().node).entries.insert(entry, target);
    }
    if parts.len() > ids::MAX_PARTICIPANTS {
        let (found, most) = (parts.len(), ids::MAX_PARTICIPANTS);
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("a transaction has {found} logical nodes; it may have {most}"),
        ));
    }
    Ok(parts)
}

fn part(parts: &mut BTreeMap<NodeId, Part<Object>>, node: NodeId) -> &mut Part<Object> {
    parts.entry(node).or_default()
}

// ------------------------------------------------------------------------------------------------ pages

fn slots_to_proto(count: usize, objects: impl Iterator<Item = (u16, ClassId, u32)>) -> Option<proto::Slots> {
    let mut states = Vec::with_capacity(3 * count);
    for (slot, class, state) in objects {
        states.extend([u32::from(slot), class.0, state]);
    }
    Some(proto::Slots { states })
}

pub(super) fn objects_to_proto(objects: &BTreeMap<u16, Object>, raw: &mut Vec<Bytes>) -> Option<proto::Slots> {
    raw.reserve(objects.len());
    slots_to_proto(objects.len(), objects.iter().map(|(slot, object)| (*slot, object.class, state(Some(object), raw))))
}

pub(super) fn contents_to_proto(contents: &SlotStates<Object>, raw: &mut Vec<Bytes>) -> Option<proto::Slots> {
    let each = contents.iter().map(|(slot, content)| {
        let class = match content {
            ObjectState::Value(object) | ObjectState::Changed(object) => object.class,
            ObjectState::Absent => ClassId::NONE,
        };
        (*slot, class, content_state(content, raw))
    });
    slots_to_proto(contents.len(), each)
}

fn slots<V>(
    list: Option<proto::Slots>,
    data: &mut Data<'_>,
    value: impl Fn(ClassId, u32, &mut Data<'_>) -> Result<Option<V>>,
) -> Result<BTreeMap<u16, V>> {
    let list = list.unwrap_or_default();
    let states = split_chunks::<3, _>(&list.states, usize::from(u16::MAX) + 1, "slots")?;
    let mut all: Vec<(u16, V)> = Vec::with_capacity(states.len());
    for [slot, class, state] in states {
        let slot = ids::slot(*slot)?;
        if let Some((last, _)) = all.last().filter(|(last, _)| *last >= slot) {
            return Err(invalid(format!("slot {slot} follows slot {last}: out of order, or repeated")));
        }
        let value = value(ids::class(*class)?, *state, data)?;
        all.push((slot, value.ok_or_else(|| invalid(format!("slot {slot} of a page has no object")))?));
    }
    Ok(all.into_iter().collect())
}

pub(super) fn objects(list: Option<proto::Slots>, data: &mut Data<'_>) -> Result<BTreeMap<u16, Object>> {
    slots(list, data, |class, state, data| data.object(class, state))
}

pub(super) fn contents(list: proto::Slots, data: &mut Data<'_>) -> Result<SlotStates<Object>> {
    slots(Some(list), data, |class, state, data| content(class, state, data).map(Some))
}
