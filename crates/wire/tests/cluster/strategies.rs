//! Any identifiers, objects and messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use model::{
    ClassId, Comparison, Entry, EntryKey, FieldNumber, Filter, Kind, NodeId, Object, Oid, Operand, PageId,
    RecordBuilder, SpaceId, Value, limits,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use protocol::brick::LockedObject;
use protocol::commit::client_mark::{ClientMark, MAX_OPEN};
use protocol::commit::coordinator::{CommitReceipt, CommitReply};
use protocol::commit::{Answer, AppendOffsets, EntryChanges, Outcome, Part, Record, Refusal, Request, Writes};
use protocol::gateway::{Call, Reply};
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId, Version};
use protocol::locks::LockMode;
use protocol::page_cache::{self, FetchId, Invalidation, ObjectState, PageImage, SlotStates};
use protocol::read_list::ReadList;
use protocol::tree::{Down, Up};
use protocol::update_digest::UpdateDigest;
use protocol::validate::{Cause, Read, ReadVersion, ValidationConflict};
use wire::cluster::{EntryList, IndexRange, ListEntries, ListedEntry, LookUp, Message, Scan, ScanPosition, Scanned};

// ------------------------------------------------------------------------------------------------ identifiers

pub(crate) fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![0..4_u32, Just(NodeId::MAX.0)].prop_map(NodeId)
}

pub(crate) fn page(node: NodeId) -> impl Strategy<Value = PageId> {
    let number = prop_oneof![0..100_u64, Just(PageId::MAX_NUMBER)];
    (1..=SpaceId::MAX.0, number).prop_map(move |(space, number)| PageId { space: SpaceId(space), node, number })
}

pub(crate) fn class() -> impl Strategy<Value = ClassId> {
    prop_oneof![Just(ClassId::NONE), (0..=ClassId::MAX.0).prop_map(ClassId)]
}

pub(crate) fn oid() -> BoxedStrategy<Oid> {
    let page = node().prop_flat_map(page);
    (class(), page, any::<u16>()).prop_map(|(class, page, slot)| Oid::new(class, page, slot)).boxed()
}

pub(crate) fn time() -> impl Strategy<Value = HlcTimestamp> {
    prop_oneof![(0..1_u64 << 63), Just((1 << 63) - 1)].prop_map(HlcTimestamp)
}

pub(crate) fn txn() -> impl Strategy<Value = TxnId> {
    (time(), any::<u64>()).prop_map(|(start, client)| TxnId { start, client: ClientId(client) })
}

pub(crate) fn version() -> impl Strategy<Value = Version> {
    (prop_oneof![Just(0), any::<u32>()], 0..1_u64 << 63).prop_map(|(moves, position)| Version { moves, position })
}

pub(crate) fn ms() -> impl Strategy<Value = u64> {
    prop_oneof![0..1_u64 << 48, Just((1 << 48) - 1)]
}

pub(crate) fn fetch() -> impl Strategy<Value = FetchId> {
    any::<u64>().prop_map(FetchId)
}

pub(crate) fn mode() -> impl Strategy<Value = LockMode> {
    prop_oneof![Just(LockMode::Shared), Just(LockMode::Touch), Just(LockMode::Exclusive)]
}

pub(crate) fn participants() -> impl Strategy<Value = Vec<NodeId>> {
    vec(node(), 0..5)
}

// ------------------------------------------------------------------------------------------------ objects

pub(crate) fn record(number: i64, text: &str) -> Bytes {
    let mut record = RecordBuilder::new();
    record.set(FieldNumber(1), number).unwrap();
    record.set(FieldNumber(2), text).unwrap();
    record.build().unwrap()
}

/// An object of this class, or one without a class.
pub(crate) fn object(class: ClassId) -> BoxedStrategy<Object> {
    let small = vec(any::<u8>(), 0..60).prop_map(Bytes::from);
    let large = (any::<u8>(), 16_000..40_000_usize).prop_map(|(byte, len)| Bytes::from([byte].repeat(len)));
    let record = (any::<i64>(), ".{0,20}").prop_map(move |(number, text)| Object::record(class, record(number, &text)));
    if class == ClassId::NONE {
        let blob = prop_oneof![8 => small, 1 => large].prop_map(Object::blob);
        prop_oneof![blob, record].boxed()
    } else {
        record.boxed()
    }
}

pub(crate) fn content(class: ClassId) -> impl Strategy<Value = ObjectState<Object>> {
    prop_oneof![Just(ObjectState::Absent), object(class).prop_map(ObjectState::Value)]
}

pub(crate) fn slots<V: std::fmt::Debug>(value: impl Strategy<Value = V>) -> impl Strategy<Value = BTreeMap<u16, V>> {
    btree_map(any::<u16>(), value, 0..6)
}

pub(crate) fn copy() -> BoxedStrategy<PageImage<Object>> {
    let objects = slots(class().prop_flat_map(object));
    (version(), time(), objects)
        .prop_map(|(version, timestamp, objects)| PageImage { version, timestamp, objects })
        .boxed()
}

pub(crate) fn contents() -> BoxedStrategy<SlotStates<Object>> {
    slots(class().prop_flat_map(content)).boxed()
}

pub(crate) fn writes() -> BoxedStrategy<Writes<Object>> {
    let write = oid().prop_flat_map(|oid| (Just(oid), content(oid.class())));
    vec(write, 0..6).prop_map(|writes| writes.into_iter().collect()).boxed()
}

pub(crate) fn reads() -> BoxedStrategy<ReadList> {
    let seen = prop_oneof![4 => version().prop_map(ReadVersion::At), 1 => txn().prop_map(ReadVersion::Written)];
    let one = (oid(), seen, vec(any::<u16>(), 0..4)).prop_map(|(oid, seen, more)| {
        let others = more.into_iter().map(move |slot| Oid::new(oid.class(), oid.page(), slot));
        [oid].into_iter().chain(others).map(move |oid| Read { oid, seen }).collect::<Vec<_>>()
    });
    vec(one, 0..4).prop_map(|runs| runs.into_iter().flatten().collect()).boxed()
}

pub(crate) fn guards() -> BoxedStrategy<Vec<Read>> {
    reads().prop_map(|reads| reads.iter().collect()).boxed()
}

pub(crate) fn touches() -> BoxedStrategy<BTreeSet<Oid>> {
    vec(oid(), 0..4).prop_map(|oids| oids.into_iter().collect()).boxed()
}

pub(crate) fn key() -> BoxedStrategy<EntryKey> {
    vec(any::<u8>(), 1..=255).prop_map(|bytes| EntryKey::new(bytes).unwrap()).boxed()
}

pub(crate) fn entry() -> BoxedStrategy<Entry> {
    (oid(), key()).prop_map(|(collection, key)| Entry { collection, key }).boxed()
}

pub(crate) fn entries() -> BoxedStrategy<EntryChanges> {
    vec((entry(), option::of(oid())), 0..4).prop_map(|entries| entries.into_iter().collect()).boxed()
}

pub(crate) fn part() -> BoxedStrategy<Part<Object>> {
    (reads(), writes(), touches(), entries())
        .prop_map(|(reads, writes, touches, entries)| Part { reads, writes, touches, entries, ..Part::default() })
        .boxed()
}

pub(crate) fn offsets() -> BoxedStrategy<AppendOffsets> {
    btree_map(oid(), 0..=limits::BLOB, 0..3).boxed()
}

pub(crate) fn receipt() -> BoxedStrategy<CommitReceipt> {
    (time(), offsets()).prop_map(|(timestamp, offsets)| CommitReceipt { timestamp, offsets }).boxed()
}

/// Parts as clients build them: each entry belongs to its node.
pub(crate) fn parts() -> BoxedStrategy<BTreeMap<NodeId, Part<Object>>> {
    (part(), participants())
        .prop_map(|(all, idle)| {
            let mut parts: BTreeMap<NodeId, Part<Object>> = BTreeMap::new();
            for node in idle {
                parts.entry(node).or_default();
            }
            for read in all.reads.iter() {
                parts.entry(read.oid.page().node).or_default().reads.push(read);
            }
            for (oid, content) in all.writes {
                parts.entry(oid.page().node).or_default().writes.insert(oid, content);
            }
            for oid in all.touches {
                parts.entry(oid.page().node).or_default().touches.insert(oid);
            }
            for (entry, target) in all.entries {
                parts.entry(entry.collection.page().node).or_default().entries.insert(entry, target);
            }
            parts
        })
        .boxed()
}

// ------------------------------------------------------------------------------------------------ verdicts

pub(crate) fn conflict() -> BoxedStrategy<ValidationConflict> {
    let cause = prop_oneof![version().prop_map(Cause::Stale), txn().prop_map(Cause::Held)];
    (oid(), cause).prop_map(|(oid, cause)| ValidationConflict { oid, cause }).boxed()
}

pub(crate) fn refusal() -> BoxedStrategy<Refusal> {
    prop_oneof![conflict().prop_map(Refusal::Conflict), Just(Refusal::Aborted), Just(Refusal::TooOld)].boxed()
}

pub(crate) fn verdict() -> BoxedStrategy<Result<HlcTimestamp, Refusal>> {
    prop_oneof![time().prop_map(Ok), refusal().prop_map(Err)].boxed()
}

pub(crate) fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![time().prop_map(Outcome::Committed), Just(Outcome::Aborted)]
}

pub(crate) fn locked_object() -> BoxedStrategy<LockedObject<Object>> {
    let object = oid().prop_flat_map(|oid| (Just(oid), option::of(object(oid.class()))));
    (object, mode(), version())
        .prop_map(|((oid, value), mode, version)| LockedObject { oid, mode, version, value })
        .boxed()
}

// ------------------------------------------------------------------------------------------------ messages

pub(crate) fn up(node: NodeId) -> BoxedStrategy<Up<Object>> {
    let page = move || page(node);
    let renew = (ms(), ms(), any::<bool>(), any::<u64>(), any::<bool>(), any::<u8>(), option::of(any::<u64>()));
    prop_oneof![
        renew.prop_map(|(asked, wanted_ms, open, sync, subscribe, height, replaces)| {
            Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces: replaces.map(HolderId) }
        }),
        (page(), fetch(), option::of(version())).prop_map(|(page, fetch, have)| Up::Fetch { page, fetch, have }),
        (page(), version()).prop_map(|(page, version)| Up::Acknowledge { page, version }),
        (page(), fetch()).prop_map(|(page, fetch)| Up::Evict { page, fetch }),
        (page(), fetch(), option::of(copy())).prop_map(|(page, help, copy)| Up::Helped { page, help, copy }),
        (txn(), writes()).prop_map(|(write, writes)| Up::Write { write, writes }),
    ]
    .boxed()
}

pub(crate) fn down(node: NodeId) -> BoxedStrategy<Down<Object>> {
    let page = move || page(node);
    let slots = btree_set(any::<u16>(), 0..6);
    let versions = (version(), version()).prop_map(|(one, other)| {
        let (first, last) = (one.min(other), one.max(other));
        (first, if first == last { Version { moves: last.moves, position: last.position + 1 } } else { last })
    });
    let message = (page(), slots, versions, time(), txn(), option::of(any::<[u8; 32]>()));
    let message = message.prop_map(|(page, slots, (previous, version), timestamp, txn, digest)| {
        let slots: BTreeSet<u16> = slots;
        let digest = digest.map(UpdateDigest);
        Invalidation { page, slots, previous, version, timestamp, txn, digest }
    });
    let reply = prop_oneof![
        4 => copy().prop_map(page_cache::FetchReply::Page),
        1 => Just(page_cache::FetchReply::Current),
        1 => Just(page_cache::FetchReply::Stale),
        1 => ".{0,20}".prop_map(page_cache::FetchReply::Damaged),
    ];
    prop_oneof![
        (ms(), ms(), any::<u64>()).prop_map(|(asked, lease_ms, sync)| Down::Leased { asked, lease_ms, sync }),
        Just(Down::Closed),
        (page(), fetch(), reply).prop_map(|(page, fetch, reply)| Down::Fetched { page, fetch, reply }),
        (message, option::of(contents())).prop_map(|(message, contents)| Down::Invalidate { message, contents }),
        (page(), fetch()).prop_map(|(page, help)| Down::Help { page, help }),
        time().prop_map(|at| Down::Close { at }),
        (txn(), verdict()).prop_map(|(write, result)| Down::Written { write, result }),
        txn().prop_map(|write| Down::Settled { write }),
    ]
    .boxed()
}

pub(crate) fn mark() -> BoxedStrategy<ClientMark> {
    let open = btree_set(time(), 0..MAX_OPEN);
    let mark = (open, time()).prop_filter_map("a time after all", |(open, below)| {
        ClientMark::new(below, open.into_iter().filter(|start| *start < below).collect())
    });
    mark.boxed()
}

pub(crate) fn call() -> BoxedStrategy<Call<Object>> {
    prop_oneof![
        (parts(), any::<bool>()).prop_map(|(parts, creates)| Call::Commit { parts, creates }),
        (participants(), participants()).prop_map(|(participants, patched)| Call::Resolve { participants, patched }),
        (parts(), time()).prop_map(|(parts, seen)| {
            let reads = parts.into_iter().map(|(node, part)| (node, part.reads)).collect();
            Call::Check { reads, seen }
        }),
        (txn(), oid(), mode()).prop_map(|(first, oid, mode)| Call::Lock { first, oid, mode }),
        participants().prop_map(|participants| Call::Release { participants }),
        (participants(), mark()).prop_map(|(nodes, mark)| Call::Heard { nodes, mark }),
    ]
    .boxed()
}

pub(crate) fn reply() -> BoxedStrategy<Reply<Object>> {
    prop_oneof![
        commit_reply().prop_map(Reply::Ended),
        verdict().prop_map(Reply::Checked),
        locked_object().prop_map(Reply::Locked)
    ]
    .boxed()
}

pub(crate) fn commit_reply() -> BoxedStrategy<CommitReply> {
    prop_oneof![receipt().prop_map(CommitReply::Committed), refusal().prop_map(CommitReply::Refused)].boxed()
}

pub(crate) fn request() -> BoxedStrategy<Request<Object>> {
    prop_oneof![
        (txn(), participants(), part(), any::<u64>()).prop_map(|(txn, participants, part, transfer_ms)| {
            Request::Prepare { txn, participants, part: Part { transfer_ms, ..part } }
        }),
        (txn(), part()).prop_map(|(txn, part)| Request::Commit { txn, part }),
        (txn(), outcome()).prop_map(|(txn, outcome)| Request::Decide { txn, outcome }),
        (txn(), any::<u32>()).prop_map(|(txn, round)| Request::Ask { txn, round }),
        txn().prop_map(|txn| Request::Forget { txn }),
        (txn(), mark()).prop_map(|(txn, mark)| Request::Heard { txn, mark }),
        (txn(), reads(), time()).prop_map(|(txn, reads, at)| Request::Check { txn, reads, at }),
        (txn(), txn(), oid(), mode()).prop_map(|(txn, first, oid, mode)| Request::Lock { txn, first, oid, mode }),
        (txn(), participants(), joint(part())).prop_map(|(txn, participants, parts)| {
            let prepare = |(node, part)| (node, Request::Prepare { txn, participants: participants.clone(), part });
            Request::Joint { txn, requests: parts.into_iter().map(prepare).collect() }
        }),
        (txn(), joint(outcome())).prop_map(|(txn, outcomes)| {
            let decide = |(node, outcome)| (node, Request::Decide { txn, outcome });
            Request::Joint { txn, requests: outcomes.into_iter().map(decide).collect() }
        }),
    ]
    .boxed()
}

/// Something for each of some logical nodes.
pub(crate) fn joint<T: std::fmt::Debug>(each: impl Strategy<Value = T>) -> impl Strategy<Value = BTreeMap<NodeId, T>> {
    btree_map(node(), each, 0..4)
}

pub(crate) fn answer() -> BoxedStrategy<(Answer, Option<LockedObject<Object>>)> {
    let locked = (txn(), locked_object(), any::<bool>()).prop_map(|(txn, locked, has_state)| {
        (Answer::Locked { txn, oid: locked.oid, mode: locked.mode }, has_state.then_some(locked))
    });
    let checked = (txn(), option::of(conflict()))
        .prop_map(|(txn, conflict)| Answer::Checked { txn, verdict: conflict.map_or(Ok(()), Err) });
    let others = prop_oneof![
        (txn(), time(), participants(), any::<u32>(), offsets()).prop_map(
            |(txn, proposal, participants, round, offsets)| Answer::Prepared {
                txn,
                proposal,
                participants,
                round,
                offsets
            }
        ),
        (txn(), outcome(), option::of(version()), offsets())
            .prop_map(|(txn, outcome, version, offsets)| { Answer::Ended { txn, outcome, version, offsets } }),
        (txn(), refusal()).prop_map(|(txn, why)| Answer::Refused { txn, why }),
        checked,
        (txn(), joint(refusal())).prop_map(|(txn, refusals)| {
            let refuse = |(node, why)| (node, Answer::Refused { txn, why });
            Answer::Joint { txn, answers: refusals.into_iter().map(refuse).collect() }
        }),
        (txn(), commit_reply()).prop_map(|(txn, reply)| Answer::Concluded { txn, reply }),
    ];
    prop_oneof![4 => others.prop_map(|answer| (answer, None)), 1 => locked].boxed()
}

pub(crate) fn message() -> BoxedStrategy<Message> {
    let epoch = any::<u64>;
    let holder = || any::<u64>().prop_map(HolderId);
    prop_oneof![
        node().prop_flat_map(move |node| (epoch(), holder(), up(node))
            .prop_map(move |(epoch, holder, message)| { Message::Up { node, epoch, holder, message } })),
        node().prop_flat_map(move |node| {
            (holder(), down(node)).prop_map(move |(holder, message)| Message::Down { node, holder, message })
        }),
        (txn(), call()).prop_map(|(txn, call)| Message::Call { txn, call }),
        (txn(), reply()).prop_map(|(txn, reply)| Message::Reply { txn, reply }),
        (node(), epoch(), time(), request()).prop_map(|(node, epoch, seen, request)| Message::Ask {
            node,
            epoch,
            seen,
            request
        }),
        (node(), time(), answer()).prop_map(|(node, seen, (answer, locked))| Message::Answer {
            node,
            seen,
            answer,
            locked
        }),
        (node(), epoch(), option::of("[a-z]{1,9}")).prop_map(|(node, epoch, damage)| Message::NotServedHere {
            node,
            epoch,
            damage: damage.map(Arc::from)
        }),
        (node(), txn(), 1..=12_u8, ".{0,40}").prop_map(|(node, txn, kind, why)| Message::Deferred {
            node,
            txn,
            kind: model::ErrorKind::from_code(kind),
            why
        }),
    ]
    .boxed()
}

pub(crate) fn kept_record() -> BoxedStrategy<Record<Object>> {
    prop_oneof![
        (txn(), participants(), part(), offsets(), time()).prop_map(|(txn, participants, part, offsets, proposal)| {
            Record::Prepared { txn, participants, part: Part { offsets, ..part }, proposal }
        }),
        (txn(), time(), writes(), touches(), entries(), offsets()).prop_map(
            |(txn, timestamp, writes, touches, entries, offsets)| Record::Committed {
                txn,
                timestamp,
                writes,
                touches,
                entries,
                offsets
            }
        ),
        (txn(), outcome(), writes(), touches(), entries(), offsets(), participants()).prop_map(
            |(txn, outcome, writes, touches, entries, offsets, participants)| Record::Decided {
                txn,
                outcome,
                writes,
                touches,
                entries,
                offsets,
                participants
            }
        ),
        txn().prop_map(|txn| Record::Marked { txn }),
        time().prop_map(Record::Bound),
        time().prop_map(Record::Horizon),
        (any::<u64>(), mark()).prop_map(|(client, mark)| Record::Heard { client: ClientId(client), mark }),
        (txn(), outcome(), option::of(version()), offsets(), participants(), any::<bool>()).prop_map(
            |(txn, outcome, version, offsets, participants, acknowledged)| Record::Ended {
                txn,
                outcome,
                version,
                offsets,
                participants,
                acknowledged
            }
        ),
    ]
    .boxed()
}

pub(crate) fn place() -> BoxedStrategy<ScanPosition> {
    (vec(any::<u8>(), 0..10), oid()).prop_map(|(key, oid)| ScanPosition { key: key.into(), oid }).boxed()
}

pub(crate) fn scan() -> BoxedStrategy<Scan> {
    let key = || vec(any::<u8>(), 0..10).prop_map(Bytes::from);
    let range = (any::<u32>(), key(), key(), any::<bool>()).prop_map(|(index, from, to, reverse)| IndexRange {
        index,
        from,
        to,
        reverse,
    });
    let filter = any::<i64>().prop_map(|value| Filter::compare(FieldNumber(1), Comparison::Less, operand(value)));
    let classes = btree_set((1..=ClassId::MAX.0).prop_map(ClassId), 0..4);
    let what = (classes, option::of(range), option::of(place()), option::of(filter));
    let whence = (any::<u64>(), 0..=limits::LISTING as u32, any::<bool>());
    (node(), what, whence)
        .prop_map(|(node, (classes, range, after, filter), (epoch, limit, count))| Scan {
            space: SpaceId(1),
            node,
            epoch,
            classes,
            range,
            after,
            limit,
            filter,
            count,
            family: Some(ClassId(1 + limit)).filter(|_| count),
        })
        .boxed()
}

pub(crate) fn look_up() -> BoxedStrategy<LookUp> {
    (oid(), vec(key(), 1..5)).prop_map(|(collection, keys)| LookUp { collection, keys }).boxed()
}

pub(crate) fn list_entries() -> BoxedStrategy<ListEntries> {
    let bounds = (option::of(key()), vec(any::<u8>(), 0..5), 0..=limits::LISTING as u32);
    // A listing in descending order passes over no damage.
    let order = prop_oneof![Just((true, false)), Just((false, false)), Just((false, true))];
    (oid(), bounds, order, any::<bool>())
        .prop_map(|(collection, (after, prefix, limit), (reverse, passes_damage), kinds)| ListEntries {
            collection,
            after,
            prefix: prefix.into(),
            limit,
            reverse,
            kinds,
            passes_damage,
        })
        .boxed()
}

pub(crate) fn entry_list() -> BoxedStrategy<EntryList> {
    let kind = option::of(prop_oneof![Just(Kind::Blob), Just(Kind::Directory)]);
    let listed = (key(), oid(), kind).prop_map(|(key, target, kind)| ListedEntry { key, target, kind });
    (vec(listed, 0..5), any::<bool>(), guards(), (time(), time()), option::of(".{0,9}"))
        .prop_map(|(entries, more, guards, (seen, modified), damage)| EntryList {
            entries,
            more,
            guards,
            seen,
            count: seen.0,
            modified,
            damage,
        })
        .boxed()
}

pub(crate) fn operand(value: i64) -> Operand {
    Operand::new(Value::Int64(value)).unwrap()
}

pub(crate) fn scan_answer() -> BoxedStrategy<Scanned> {
    let object = oid().prop_flat_map(|oid| (Just(oid), version(), object(oid.class())));
    (vec(object, 0..5), guards(), option::of(place()), any::<u64>(), any::<u64>())
        .prop_map(|(found, guards, next, examined, count)| {
            let seen = HlcTimestamp(examined);
            Scanned { found, guards, next, examined, count, seen, has_stale_classes: count % 2 == 1 }
        })
        .boxed()
}
