//! Messages between the processes of a cluster: they round-trip, and invalid ones are refused.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::{
    ClassId, Comparison, Entry, EntryKey, ErrorKind, FieldNumber, Filter, Kind, NodeId, Object, Oid, Operand, PageId,
    RecordBuilder, SpaceId, Value, limits,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
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
use protocol::validate::{Cause, Read, ReadVersion, ValidationConflict};
use wire::cluster::{
    EntriesOf, EntryList, IndexRange, ListEntries, ListEntriesOf, ListNodeObjects, ListedEntry, ListedObject, LookUp,
    Message, NodeObjects, Scan, ScanPosition, Scanned, decode_record, encode_record, object_read_from_proto,
    object_read_to_proto,
};
use wire::frame::Raw;
use wire::proto;
use wire::proto::cluster;
use wire::proto::request::Request as Envelope;

// ------------------------------------------------------------------------------------------------ identifiers

fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![0..4_u32, Just(NodeId::MAX.0)].prop_map(NodeId)
}

fn page(node: NodeId) -> impl Strategy<Value = PageId> {
    let number = prop_oneof![0..100_u64, Just(PageId::MAX_NUMBER)];
    (1..=SpaceId::MAX.0, number).prop_map(move |(space, number)| PageId { space: SpaceId(space), node, number })
}

fn class() -> impl Strategy<Value = ClassId> {
    prop_oneof![Just(ClassId::NONE), (0..=ClassId::MAX.0).prop_map(ClassId)]
}

fn oid() -> BoxedStrategy<Oid> {
    let page = node().prop_flat_map(page);
    (class(), page, any::<u16>()).prop_map(|(class, page, slot)| Oid::new(class, page, slot)).boxed()
}

fn time() -> impl Strategy<Value = HlcTimestamp> {
    prop_oneof![(0..1_u64 << 63), Just((1 << 63) - 1)].prop_map(HlcTimestamp)
}

fn txn() -> impl Strategy<Value = TxnId> {
    (time(), any::<u64>()).prop_map(|(start, client)| TxnId { start, client: ClientId(client) })
}

fn version() -> impl Strategy<Value = Version> {
    (prop_oneof![Just(0), any::<u32>()], 0..1_u64 << 63).prop_map(|(moves, position)| Version { moves, position })
}

fn ms() -> impl Strategy<Value = u64> {
    prop_oneof![0..1_u64 << 48, Just((1 << 48) - 1)]
}

fn fetch() -> impl Strategy<Value = FetchId> {
    any::<u64>().prop_map(FetchId)
}

fn mode() -> impl Strategy<Value = LockMode> {
    prop_oneof![Just(LockMode::Shared), Just(LockMode::Touch), Just(LockMode::Exclusive)]
}

fn participants() -> impl Strategy<Value = Vec<NodeId>> {
    vec(node(), 0..5)
}

// ------------------------------------------------------------------------------------------------ objects

fn record(number: i64, text: &str) -> Bytes {
    let mut record = RecordBuilder::new();
    record.set(FieldNumber(1), number).unwrap();
    record.set(FieldNumber(2), text).unwrap();
    record.build().unwrap()
}

/// An object of this class, or one without a class.
fn object(class: ClassId) -> BoxedStrategy<Object> {
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

fn content(class: ClassId) -> impl Strategy<Value = ObjectState<Object>> {
    prop_oneof![Just(ObjectState::Absent), object(class).prop_map(ObjectState::Value)]
}

fn slots<V: std::fmt::Debug>(value: impl Strategy<Value = V>) -> impl Strategy<Value = BTreeMap<u16, V>> {
    btree_map(any::<u16>(), value, 0..6)
}

fn copy() -> BoxedStrategy<PageImage<Object>> {
    let objects = slots(class().prop_flat_map(object));
    (version(), time(), objects)
        .prop_map(|(version, timestamp, objects)| PageImage { version, timestamp, objects })
        .boxed()
}

fn contents() -> BoxedStrategy<SlotStates<Object>> {
    slots(class().prop_flat_map(content)).boxed()
}

fn writes() -> BoxedStrategy<Writes<Object>> {
    let write = oid().prop_flat_map(|oid| (Just(oid), content(oid.class())));
    vec(write, 0..6).prop_map(|writes| writes.into_iter().collect()).boxed()
}

fn reads() -> BoxedStrategy<ReadList> {
    let seen = prop_oneof![4 => version().prop_map(ReadVersion::At), 1 => txn().prop_map(ReadVersion::Written)];
    let one = (oid(), seen, vec(any::<u16>(), 0..4)).prop_map(|(oid, seen, more)| {
        let others = more.into_iter().map(move |slot| Oid::new(oid.class(), oid.page(), slot));
        [oid].into_iter().chain(others).map(move |oid| Read { oid, seen }).collect::<Vec<_>>()
    });
    vec(one, 0..4).prop_map(|runs| runs.into_iter().flatten().collect()).boxed()
}

fn guards() -> BoxedStrategy<Vec<Read>> {
    reads().prop_map(|reads| reads.iter().collect()).boxed()
}

fn touches() -> BoxedStrategy<BTreeSet<Oid>> {
    vec(oid(), 0..4).prop_map(|oids| oids.into_iter().collect()).boxed()
}

fn key() -> BoxedStrategy<EntryKey> {
    vec(any::<u8>(), 1..=255).prop_map(|bytes| EntryKey::new(bytes).unwrap()).boxed()
}

fn entry() -> BoxedStrategy<Entry> {
    (oid(), key()).prop_map(|(collection, key)| Entry { collection, key }).boxed()
}

fn entries() -> BoxedStrategy<EntryChanges> {
    vec((entry(), option::of(oid())), 0..4).prop_map(|entries| entries.into_iter().collect()).boxed()
}

fn part() -> BoxedStrategy<Part<Object>> {
    (reads(), writes(), touches(), entries())
        .prop_map(|(reads, writes, touches, entries)| Part { reads, writes, touches, entries, ..Part::default() })
        .boxed()
}

fn offsets() -> BoxedStrategy<AppendOffsets> {
    btree_map(oid(), 0..=limits::BLOB, 0..3).boxed()
}

fn receipt() -> BoxedStrategy<CommitReceipt> {
    (time(), offsets()).prop_map(|(timestamp, offsets)| CommitReceipt { timestamp, offsets }).boxed()
}

/// Parts as clients build them: each entry belongs to its node.
fn parts() -> BoxedStrategy<BTreeMap<NodeId, Part<Object>>> {
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

fn conflict() -> BoxedStrategy<ValidationConflict> {
    let cause = prop_oneof![version().prop_map(Cause::Stale), txn().prop_map(Cause::Held)];
    (oid(), cause).prop_map(|(oid, cause)| ValidationConflict { oid, cause }).boxed()
}

fn refusal() -> BoxedStrategy<Refusal> {
    prop_oneof![conflict().prop_map(Refusal::Conflict), Just(Refusal::Aborted), Just(Refusal::TooOld)].boxed()
}

fn verdict() -> BoxedStrategy<Result<HlcTimestamp, Refusal>> {
    prop_oneof![time().prop_map(Ok), refusal().prop_map(Err)].boxed()
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![time().prop_map(Outcome::Committed), Just(Outcome::Aborted)]
}

fn locked() -> BoxedStrategy<LockedObject<Object>> {
    let object = oid().prop_flat_map(|oid| (Just(oid), option::of(object(oid.class()))));
    (object, mode(), version())
        .prop_map(|((oid, value), mode, version)| LockedObject { oid, mode, version, value })
        .boxed()
}

// ------------------------------------------------------------------------------------------------ messages

fn up(node: NodeId) -> BoxedStrategy<Up<Object>> {
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

fn down(node: NodeId) -> BoxedStrategy<Down<Object>> {
    let page = move || page(node);
    let slots = btree_set(any::<u16>(), 0..6);
    let message = (page(), slots, version(), version(), time(), txn());
    let message = message.prop_map(|(page, slots, previous, version, timestamp, txn)| {
        let slots: BTreeSet<u16> = slots;
        Invalidation { page, slots, previous, version, timestamp, txn }
    });
    let reply = prop_oneof![
        4 => copy().prop_map(page_cache::FetchReply::Page),
        1 => Just(page_cache::FetchReply::Current),
        1 => Just(page_cache::FetchReply::Stale),
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

fn mark() -> BoxedStrategy<ClientMark> {
    let open = btree_set(time(), 0..MAX_OPEN);
    let mark = (open, time()).prop_filter_map("a time after all", |(open, below)| {
        ClientMark::new(below, open.into_iter().filter(|start| *start < below).collect())
    });
    mark.boxed()
}

fn call() -> BoxedStrategy<Call<Object>> {
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

fn reply() -> BoxedStrategy<Reply<Object>> {
    prop_oneof![
        commit_reply().prop_map(Reply::Ended),
        verdict().prop_map(Reply::Checked),
        locked().prop_map(Reply::Locked)
    ]
    .boxed()
}

fn commit_reply() -> BoxedStrategy<CommitReply> {
    prop_oneof![receipt().prop_map(CommitReply::Committed), refusal().prop_map(CommitReply::Refused)].boxed()
}

fn request() -> BoxedStrategy<Request<Object>> {
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
fn joint<T: std::fmt::Debug>(each: impl Strategy<Value = T>) -> impl Strategy<Value = BTreeMap<NodeId, T>> {
    btree_map(node(), each, 0..4)
}

fn answer() -> BoxedStrategy<(Answer, Option<LockedObject<Object>>)> {
    let locked = (txn(), locked(), any::<bool>()).prop_map(|(txn, locked, has_state)| {
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

fn message() -> BoxedStrategy<Message> {
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
        (node(), epoch()).prop_map(|(node, epoch)| Message::NotServedHere { node, epoch }),
        (node(), txn(), 1..=12_u8, ".{0,40}").prop_map(|(node, txn, kind, why)| Message::Deferred {
            node,
            txn,
            kind: model::ErrorKind::from_code(kind),
            why
        }),
    ]
    .boxed()
}

fn kept() -> BoxedStrategy<Record<Object>> {
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
        (txn(), outcome(), option::of(version()), offsets(), participants()).prop_map(
            |(txn, outcome, version, offsets, participants)| Record::Ended {
                txn,
                outcome,
                version,
                offsets,
                participants
            }
        ),
    ]
    .boxed()
}

fn place() -> BoxedStrategy<ScanPosition> {
    (vec(any::<u8>(), 0..10), oid()).prop_map(|(key, oid)| ScanPosition { key: key.into(), oid }).boxed()
}

fn scan() -> BoxedStrategy<Scan> {
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

fn look_up() -> BoxedStrategy<LookUp> {
    (oid(), vec(key(), 1..5)).prop_map(|(collection, keys)| LookUp { collection, keys }).boxed()
}

fn list_entries() -> BoxedStrategy<ListEntries> {
    let bounds = (option::of(key()), vec(any::<u8>(), 0..5), 0..=limits::LISTING as u32);
    (oid(), bounds, any::<bool>(), any::<bool>())
        .prop_map(|(collection, (after, prefix, limit), reverse, kinds)| ListEntries {
            collection,
            after,
            prefix: prefix.into(),
            limit,
            reverse,
            kinds,
        })
        .boxed()
}

fn entry_list() -> BoxedStrategy<EntryList> {
    let kind = option::of(prop_oneof![Just(Kind::Blob), Just(Kind::Directory)]);
    let listed = (key(), oid(), kind).prop_map(|(key, target, kind)| ListedEntry { key, target, kind });
    (vec(listed, 0..5), any::<bool>(), guards(), time(), time())
        .prop_map(|(entries, more, guards, seen, modified)| EntryList {
            entries,
            more,
            guards,
            seen,
            count: seen.0,
            modified,
        })
        .boxed()
}

fn operand(value: i64) -> Operand {
    Operand::new(Value::Int64(value)).unwrap()
}

fn scanned() -> BoxedStrategy<Scanned> {
    let object = oid().prop_flat_map(|oid| (Just(oid), version(), object(oid.class())));
    (vec(object, 0..5), guards(), option::of(place()), any::<u64>(), any::<u64>())
        .prop_map(|(found, guards, next, examined, count)| {
            let seen = HlcTimestamp(examined);
            Scanned { found, guards, next, examined, count, seen, has_stale_classes: count % 2 == 1 }
        })
        .boxed()
}

proptest! {
    #[test]
    fn requests_about_collections_round_trip(look_up in look_up(), list in list_entries(), found in entry_list()) {
        prop_assert_eq!(LookUp::from_proto(*look_up.clone().into_proto()).unwrap(), look_up);
        prop_assert_eq!(ListEntries::from_proto(*list.clone().into_proto()).unwrap(), list);
        let (message, raw) = found.clone().into_proto(true);
        prop_assert_eq!(EntryList::from_proto(*message, &raw).unwrap(), found);
    }

    #[test]
    fn reverse_look_ups_round_trip(target in oid(), entries in vec(entry(), 0..5), more in any::<bool>()) {
        let after = entries.first().map(|entry| {
            let page = PageId { space: target.space(), ..entry.collection.page() };
            Entry { collection: Oid::new(ClassId::NONE, page, 1), key: entry.key.clone() }
        });
        let node = after.as_ref().map_or(NodeId(4), |entry| entry.collection.page().node);
        let list = ListEntriesOf { node, target, after, limit: 7 };
        prop_assert_eq!(ListEntriesOf::from_proto(*list.clone().into_proto()).unwrap(), list);
        let found = EntriesOf { entries, more };
        let (message, raw) = found.clone().into_proto();
        prop_assert_eq!(EntriesOf::from_proto(*message, &raw).unwrap(), found);
    }

    #[test]
    fn listings_of_objects_round_trip(objects in vec((oid(), any::<u64>()), 0..5), page in 0..1_u64 << 48, slot in any::<u16>()) {
        let list = ListNodeObjects { space: SpaceId(3), node: NodeId(4), from: (page, slot), limit: 7 };
        prop_assert_eq!(ListNodeObjects::from_proto(list.clone().into_proto()).unwrap(), list);
        let objects = objects.into_iter().map(|(oid, size)| ListedObject { oid, kind: model::Kind::Record, size }).collect();
        let found = NodeObjects { objects, next: Some((page, slot)) };
        let mut short = found.clone().into_proto();
        prop_assert_eq!(NodeObjects::from_proto(short.clone()).unwrap(), found);
        short.sizes.push(1);
        prop_assert!(NodeObjects::from_proto(short).is_err());
    }

    #[test]
    fn messages_round_trip(sent in message()) {
        let (request, parts) = sent.encode();
        let raw = parts.concat();
        let bytes = proto::Request { request: Some(request) }.encode_to_vec();
        let request = || proto::Request::decode(bytes.as_slice()).unwrap().request.unwrap();
        prop_assert_eq!(&Message::decode(request(), Raw::Borrowed(&raw)).unwrap(), &sent);
        prop_assert_eq!(&Message::decode(request(), Raw::Owned(raw.into())).unwrap(), &sent);
    }

    #[test]
    fn data_of_objects_is_not_copied(sent in copy()) {
        let objects: Vec<Bytes> = sent.objects.values().map(|object| object.data.clone()).collect();
        let reply = page_cache::FetchReply::Page(sent);
        let page = PageId { space: SpaceId(1), node: NodeId(2), number: 3 };
        let message = Down::Fetched { page, fetch: FetchId(1), reply };
        let (_, parts) = Message::Down { node: NodeId(2), holder: HolderId(1), message }.encode();
        let there: Vec<*const u8> = objects.iter().filter(|data| !data.is_empty()).map(|data| data.as_ptr()).collect();
        prop_assert_eq!(parts.iter().map(|part| part.as_ptr()).collect::<Vec<_>>(), there);
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused(sent in message(), extra in vec(any::<u8>(), 1..10)) {
        let (request, parts) = sent.encode();
        let raw = parts.concat();
        let longer = [raw.clone(), extra].concat();
        prop_assert!(Message::decode(request.clone(), Raw::Borrowed(&longer)).is_err());
        if let Some((_, shorter)) = raw.split_last() {
            prop_assert!(Message::decode(request, Raw::Borrowed(shorter)).is_err());
        }
    }

    #[test]
    fn records_round_trip(record in kept(), version in version()) {
        let bytes = encode_record(&record, version);
        prop_assert_eq!(decode_record(&bytes).unwrap(), (version, record));
        prop_assert!(decode_record(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(decode_record(&[&bytes, &b"x"[..]].concat()).is_err());
    }

    #[test]
    fn scans_and_their_answers_round_trip(scan in scan(), scanned in scanned(), extra in any::<u8>()) {
        prop_assert_eq!(Scan::from_proto(scan.clone().into_proto().unwrap()).unwrap(), scan);
        let (message, raw) = scanned.clone().into_proto();
        let raw = raw.concat();
        prop_assert_eq!(Scanned::from_proto((*message).clone(), Raw::Borrowed(&raw)).unwrap(), scanned);
        let longer = [raw, vec![extra]].concat();
        prop_assert!(Scanned::from_proto(*message, Raw::Borrowed(&longer)).is_err());
    }

    #[test]
    fn read_objects_round_trip(locked in locked()) {
        let message = object_read_to_proto(locked.value.as_ref().map(|object| (object.code(), object.encoded_len())));
        let raw = locked.value.as_ref().map(|object| object.data.clone()).unwrap_or_default();
        let back = object_read_from_proto(locked.oid, message, Raw::Borrowed(&raw)).unwrap();
        prop_assert_eq!(back, locked.value);
    }
}

// ------------------------------------------------------------------------------------------------ invalid messages

fn refused(request: Envelope, raw: &[u8]) -> (ErrorKind, String) {
    let error = Message::decode(request, Raw::Borrowed(raw)).expect_err("the message is accepted");
    (error.kind(), error.to_string())
}

fn some_page(node: u32) -> proto::Page {
    proto::Page { space: 1, node, number: 7 }
}

fn some_txn() -> Option<proto::Txn> {
    Some(proto::Txn { start: 5, client: 6 })
}

fn evict(node: u32, page: proto::Page) -> Envelope {
    let evict = cluster::Evict { page: Some(page), fetch: 1 };
    Envelope::Up(Box::new(cluster::Up { node, epoch: 1, holder: 1, up: Some(cluster::up::Up::Evict(evict)) }))
}

fn commit(reads: Option<cluster::Reads>, writes: Option<cluster::Writes>) -> Envelope {
    let commit = cluster::Commit { reads, writes, touches: Vec::new(), entries: None };
    let request = Some(cluster::ask::Request::Commit(commit));
    Envelope::Ask(Box::new(cluster::Ask { node: 2, epoch: 1, seen: 9, txn: some_txn(), request }))
}

/// Writes with objects of this class and these kinds and lengths, at ascending slots.
fn written(class: u32, states: &[[u32; 2]]) -> Option<cluster::Writes> {
    let mut writes = cluster::Writes::default();
    for (slot, state) in states.iter().enumerate() {
        let page = PageId { space: SpaceId(1), node: NodeId(2), number: 7 };
        let oid = proto::Oid::from(Oid::new(ClassId(class), page, slot as u16));
        writes.oids.extend([oid.high, oid.low]);
        writes.states.push(state[0] << 24 | state[1]);
    }
    Some(writes)
}

#[test]
fn identifiers_out_of_range_are_refused() {
    let wrong = [
        (evict(1 << 24, some_page(1 << 24)), "node 16777216 does not fit into 24 bits"),
        (evict(2, some_page(3)), "a message about node 2 names a page of node 3"),
        (evict(2, proto::Page { number: 1 << 48, ..some_page(2) }), "page 281474976710656 does not fit into 48 bits"),
        (evict(2, proto::Page { space: 1 << 15, ..some_page(2) }), "space 32768 does not fit into 15 bits"),
    ];
    for (request, why) in wrong {
        assert_eq!(refused(request, b""), (ErrorKind::Invalid, why.to_owned()));
    }
}

#[test]
fn temporary_identifiers_are_refused() {
    let temporary = proto::Oid::from(Oid::temporary(SpaceId(1), ClassId::NONE, 4));
    for oid in [temporary, proto::Oid::default()] {
        let reads = cluster::Reads { oids: vec![oid.high, oid.low], seen: vec![5], ..cluster::Reads::default() };
        let (kind, why) = refused(commit(Some(reads), None), b"");
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(why.ends_with("is not the identifier of a committed object"), "{why}");
    }
}

#[test]
fn object_that_is_too_large_is_refused_before_its_data_is_read() {
    let most = limits::OBJECT as u32;
    assert_eq!(refused(commit(None, written(0, &[[1, most + 1]])), b"").0, ErrorKind::TooLarge);
    let data = vec![0; limits::OBJECT];
    let whole = Message::decode(commit(None, written(0, &[[1, most]])), Raw::Borrowed(&data));
    assert!(whole.is_ok());
}

#[test]
fn invalid_objects_are_refused() {
    for (class, kind) in [(0, 3), (0, 4), (7, 1)] {
        assert_eq!(refused(commit(None, written(class, &[[kind, 1]])), b"x").0, ErrorKind::Invalid);
    }
}

#[test]
fn invalid_records_are_refused_on_their_way_up() {
    let whole = record(1, "text");
    let cut = &whole[..whole.len() - 1];
    let (kind, _) = refused(commit(None, written(7, &[[2, cut.len() as u32]])), cut);
    assert_eq!(kind, ErrorKind::Invalid);
}

#[test]
fn lists_that_are_out_of_order_are_refused() {
    let Some(mut writes) = written(7, &[[0, 0], [0, 0]]) else { unreachable!() };
    writes.oids.rotate_left(2);
    assert_eq!(refused(commit(None, Some(writes)), b"").0, ErrorKind::Invalid);
    let read = cluster::Reads { oids: vec![1, 1], seen: vec![5], ..cluster::Reads::default() };
    let twice = cluster::Reads { written: vec![0, 0], writers: vec![6, 6], ..read.clone() };
    let nowhere = cluster::Reads { written: vec![1], writers: vec![6], ..read.clone() };
    let moved = cluster::Reads { written: vec![0], writers: vec![6], moves: vec![1], ..read.clone() };
    let short = cluster::Reads { seen: vec![], ..read };
    for reads in [twice, nowhere, moved, short] {
        assert_eq!(refused(commit(Some(reads), None), b"").0, ErrorKind::Invalid);
    }
}

#[test]
fn slots_that_are_not_those_of_the_runs_are_refused() {
    let page = PageId { space: SpaceId(1), node: NodeId(2), number: 7 };
    let oid = proto::Oid::from(Oid::new(ClassId(7), page, 3));
    let reads = |more: &[u32], slots: &'static [u8]| cluster::Reads {
        oids: vec![oid.high, oid.low],
        seen: vec![5],
        more: more.to_vec(),
        slots: Bytes::from_static(slots),
        ..cluster::Reads::default()
    };
    let two = Message::decode(commit(Some(reads(&[2], &[1, 0, 4, 1])), None), Raw::Borrowed(b"")).unwrap();
    let Message::Ask { request: Request::Commit { part, .. }, .. } = two else { panic!("{two:?}") };
    assert_eq!(part.reads.iter().map(|read| read.oid.slot()).collect::<Vec<_>>(), [3, 1, 0x104]);
    let wrong = [
        reads(&[1], &[]),
        reads(&[3], &[1, 0, 4, 1]),
        reads(&[1], &[1, 0, 4, 1]),
        reads(&[], &[1, 0]),
        reads(&[2], &[1, 0, 4]),
        reads(&[1, 1], &[1, 0, 4, 1]),
        reads(&[u32::MAX], &[1, 0]),
    ];
    for reads in wrong {
        assert_eq!(refused(commit(Some(reads), None), b"").0, ErrorKind::Invalid);
    }
}

#[test]
fn offsets_of_appends_that_are_no_offsets_are_refused() {
    let ended = |offsets: Vec<u64>| {
        let outcome = cluster::Outcome { outcome: Some(cluster::outcome::Outcome::Committed(5)) };
        let ended = cluster::Ended { outcome: Some(outcome), version: None, offsets };
        let answer = Some(cluster::answer::Answer::Ended(ended));
        Envelope::Answer(Box::new(cluster::Answer { node: 2, seen: 9, txn: some_txn(), answer, forced: 0 }))
    };
    let [one, other] = [1, 2].map(|slot| {
        let page = PageId { space: SpaceId(1), node: NodeId(2), number: 7 };
        proto::Oid::from(Oid::new(ClassId::NONE, page, slot))
    });
    let [one, other] = [one, other].map(|oid| [oid.high, oid.low]);
    let offset = |oid: [u64; 2], offset| [oid[0], oid[1], offset];
    let whole = [offset(one, 0), offset(other, limits::BLOB)].concat();
    assert!(Message::decode(ended(whole), Raw::Borrowed(b"")).is_ok());
    let wrong = [
        one.to_vec(),
        [offset(other, 1), offset(one, 1)].concat(),
        [offset(one, 1), offset(one, 2)].concat(),
        offset(one, limits::BLOB + 1).to_vec(),
        vec![0, 0, 1],
    ];
    for offsets in wrong {
        assert_eq!(refused(ended(offsets), b"").0, ErrorKind::Invalid);
    }
    let refusal = cluster::Refusal { why: Some(cluster::refusal::Why::Aborted(cluster::Nothing {})) };
    let reply = Some(cluster::commit_reply::Reply::Refused(refusal));
    let offsets = offset(one, 1).to_vec();
    let reply = Some(cluster::reply::Reply::Ended(cluster::CommitReply { reply, offsets }));
    let refused_with_offsets = Envelope::Reply(cluster::Reply { txn: some_txn(), reply });
    assert_eq!(refused(refused_with_offsets, b"").0, ErrorKind::Invalid);
}

#[test]
fn too_many_participants_are_refused() {
    let nodes = (0..=wire::cluster::MAX_PARTICIPANTS as u32).collect();
    let call = Some(cluster::call::Call::Release(cluster::Participants { nodes }));
    let request = Envelope::Call(Box::new(cluster::Call { txn: some_txn(), call }));
    assert_eq!(refused(request, b"").0, ErrorKind::TooLarge);
}

#[test]
fn scans_over_the_limits_are_refused() {
    let many = cluster::Scan { limit: limits::LISTING as u32 + 1, ..cluster::Scan::default() };
    let long = cluster::IndexRange {
        from: vec![0; wire::cluster::MAX_KEY_BYTES + 1].into(),
        ..cluster::IndexRange::default()
    };
    let long = cluster::Scan { range: Some(Box::new(long)), ..cluster::Scan::default() };
    let classes = (0..=wire::cluster::MAX_SCAN_CLASSES as u32).collect();
    let classes = cluster::Scan { classes, ..cluster::Scan::default() };
    for scan in [many, long, classes] {
        assert_eq!(Scan::from_proto(scan).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}

#[test]
fn requests_that_are_not_cluster_messages_are_not_decoded() {
    assert_eq!(refused(Envelope::Ping(proto::Ping {}), b"").0, ErrorKind::Unsupported);
}

#[test]
fn small_messages_are_small() {
    let node = NodeId(3);
    let page = PageId { space: SpaceId(1), node, number: 123_456 };
    let message = Up::Fetch { page, fetch: FetchId(700), have: None };
    let (request, _) = Message::Up { node, epoch: 12, holder: HolderId(34), message }.encode();
    let length = proto::Request { request: Some(request) }.encoded_len();
    assert!(length <= 24, "a fetch has {length} bytes");
}
