//! Messages between the processes of a cluster, and records of transactions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::{
    Comparison, Entry, EntryKey, FailurePolicy, FieldNumber, Filter, NodeId, Object, Oid, Operand, RecordBuilder,
    SpaceId, Value,
};
use protocol::brick::LockedObject;
use protocol::commit::client_mark::ClientMark;
use protocol::commit::coordinator::{CommitReceipt, CommitReply};
use protocol::commit::{Answer, AppendOffsets, EntryChanges, Outcome, Part, Record, Refusal, Request, Writes};
use protocol::gateway::{Call, Reply};
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId, Version};
use protocol::locks::LockMode;
use protocol::page_cache::{self, FetchId, Invalidation, ObjectState, PageImage};
use protocol::tree::{Down, Up};
use protocol::update_digest::UpdateDigest;
use protocol::validate::{Cause, Read, ReadVersion, ValidationConflict};
use wire::cluster::{
    BrickStatus, BuildIndex, EntriesOf, EntryList, IndexRange, ListEntries, ListEntriesOf, ListNodeObjects,
    ListedEntry, ListedObject, LookUp, LookedUp, Message, NodeObjects, Reserve, ReservedPages, Scan, ScanPosition,
    Scanned, SpaceStatus, decode_record, encode_record, object_read_to_proto,
};
use wire::frame::{Flags, Raw};
use wire::proto;

use super::{check, golden, oid, proto_oid};

/// Number of vectors in this file.
pub(crate) const VECTORS: usize = 67 + 3 + 22 + 5 + 15 + 3 + 1;

const NODE: NodeId = NodeId(2);
const AT: HlcTimestamp = HlcTimestamp(0x0197_1234_5678_0001);

fn txn(client: u64) -> TxnId {
    TxnId { start: HlcTimestamp(AT.0 - 5), client: ClientId(client) }
}

fn version(position: u64) -> Version {
    Version { moves: 1, position }
}

fn object(number: i64) -> Object {
    let mut record = RecordBuilder::new();
    record.set(FieldNumber(1), number).unwrap();
    Object::record(oid(1).class(), record.build().unwrap())
}

fn blob() -> Oid {
    Oid::new(model::ClassId::NONE, oid(1).page(), 9)
}

fn writes() -> Writes<Object> {
    let bytes = ObjectState::Value(Object::blob(Bytes::from_static(b"bytes")));
    Writes::from([(blob(), bytes), (oid(1), ObjectState::Value(object(7))), (oid(2), ObjectState::Absent)])
}

fn reads() -> Vec<Read> {
    let (at, written) = (ReadVersion::At(version(41)), ReadVersion::Written(txn(3)));
    vec![
        Read { oid: oid(1), seen: at },
        Read { oid: oid(3), seen: at },
        Read { oid: oid(2), seen: written },
        Read { oid: blob(), seen: at },
    ]
}

fn part() -> Part<Object> {
    Part { reads: reads().into(), writes: writes(), ..Part::default() }
}

/// The part of a transaction that only touches guards and changes entries of collections.
fn touch() -> Part<Object> {
    Part { touches: [oid(1), oid(3)].into(), entries: entries(), ..Part::default() }
}

fn decided_touch(txn: TxnId) -> Record<Object> {
    let (outcome, participants) = (Outcome::Committed(AT), vec![NODE, NodeId(5)]);
    Record::Decided {
        txn,
        outcome,
        writes: Writes::new(),
        touches: touch().touches,
        entries: entries(),
        offsets: AppendOffsets::new(),
        participants,
    }
}

/// Where a transaction appends to two blobs.
fn offsets() -> AppendOffsets {
    [(blob(), 4_096), (oid(3), 0)].into()
}

/// Changed entries of a set and of a directory.
fn entries() -> EntryChanges {
    let name = |name| Entry { collection: blob(), key: EntryKey::name(name).unwrap() };
    let member = Entry { collection: oid(3), key: EntryKey::member(oid(1)) };
    [(name("a"), Some(oid(1))), (name("b"), None), (member, Some(oid(1)))].into()
}

fn conflict(cause: Cause) -> Refusal {
    Refusal::Conflict(ValidationConflict { oid: oid(1), cause })
}

fn locked_object(value: Option<Object>) -> LockedObject<Object> {
    LockedObject { oid: oid(1), mode: LockMode::Exclusive, version: version(42), value }
}

fn copy() -> PageImage<Object> {
    let objects = BTreeMap::from([(1, object(7)), (9, Object::blob(Bytes::from_static(b"bytes")))]);
    PageImage { version: version(42), timestamp: AT, objects }
}

fn up() -> Vec<(&'static str, Up<Object>)> {
    let (page, fetch) = (oid(1).page(), FetchId(17));
    let renew = Up::Renew {
        asked: 1_750_000_000_000,
        wanted_ms: 10_000,
        open: true,
        sync: 5,
        subscribe: true,
        height: 2,
        replaces: Some(HolderId(33)),
    };
    vec![
        ("renew", renew),
        ("fetch", Up::Fetch { page, fetch, have: None }),
        ("fetch-again", Up::Fetch { page, fetch, have: Some(version(41)) }),
        ("acknowledge", Up::Acknowledge { page, version: version(42) }),
        ("evict", Up::Evict { page, fetch }),
        ("helped", Up::Helped { page, help: fetch, copy: Some(copy()) }),
        ("not-helped", Up::Helped { page, help: fetch, copy: None }),
        ("write", Up::Write { write: txn(4), writes: writes() }),
    ]
}

fn down() -> Vec<(&'static str, Down<Object>)> {
    let (page, fetch) = (oid(1).page(), FetchId(17));
    let message = Invalidation {
        page,
        slots: [1, 2].into(),
        previous: version(41),
        version: version(42),
        timestamp: AT,
        txn: txn(4),
        digest: None,
    };
    let digest = Some(UpdateDigest([7; 32]));
    let contents = BTreeMap::from([(1, ObjectState::Value(object(8))), (2, ObjectState::Absent)]);
    let fetched = |reply| Down::Fetched { page, fetch, reply };
    vec![
        ("leased", Down::Leased { asked: 1_750_000_000_000, lease_ms: 10_000, sync: 5 }),
        ("closed", Down::Closed),
        ("fetched", fetched(page_cache::FetchReply::Page(copy()))),
        ("fetched-current", fetched(page_cache::FetchReply::Current)),
        ("fetched-stale", fetched(page_cache::FetchReply::Stale)),
        ("fetched-damaged", fetched(page_cache::FetchReply::Damaged("its row is damaged".to_owned()))),
        ("invalidate", Down::Invalidate { message: message.clone(), contents: None }),
        ("invalidate-proven", Down::Invalidate { message: Invalidation { digest, ..message.clone() }, contents: None }),
        ("update", Down::Invalidate { message, contents: Some(contents) }),
        ("help", Down::Help { page, help: fetch }),
        ("close", Down::Close { at: AT }),
        ("written", Down::Written { write: txn(4), result: Ok(AT) }),
        ("not-written", Down::Written { write: txn(4), result: Err(Refusal::TooOld) }),
        ("settled", Down::Settled { write: txn(4) }),
    ]
}

fn mark() -> ClientMark {
    ClientMark::new(AT, vec![HlcTimestamp(1), HlcTimestamp(3)]).unwrap()
}

fn calls() -> Vec<(&'static str, Call<Object>)> {
    let idle = Part::default();
    let parts = BTreeMap::from([(NODE, part()), (NodeId(5), idle)]);
    let participants = vec![NODE, NodeId(5)];
    vec![
        ("call-commit", Call::Commit { parts, creates: false }),
        ("call-resolve", Call::Resolve { participants: participants.clone(), patched: Vec::new() }),
        ("call-resolve-appending", Call::Resolve { participants: participants.clone(), patched: vec![NODE] }),
        ("call-check", Call::Check { reads: BTreeMap::from([(NODE, reads().into())]), seen: AT }),
        ("call-lock", Call::Lock { first: txn(3), oid: oid(1), mode: LockMode::Exclusive }),
        ("call-commit-touching", Call::Commit { parts: BTreeMap::from([(NODE, touch())]), creates: false }),
        ("call-lock-touch", Call::Lock { first: txn(3), oid: oid(1), mode: LockMode::Touch }),
        ("call-heard", Call::Heard { nodes: participants.clone(), mark: mark() }),
        ("call-release", Call::Release { participants }),
    ]
}

fn replies() -> Vec<(&'static str, Reply<Object>)> {
    vec![
        ("reply-committed", Reply::Ended(CommitReply::Committed(AT.into()))),
        ("reply-appended", Reply::Ended(CommitReply::Committed(CommitReceipt { timestamp: AT, offsets: offsets() }))),
        ("reply-refused", Reply::Ended(CommitReply::Refused(conflict(Cause::Stale(version(42)))))),
        ("reply-checked", Reply::Checked(Err(conflict(Cause::Held(txn(4)))))),
        ("reply-locked", Reply::Locked(locked_object(Some(object(7))))),
        ("reply-locked-touch", Reply::Locked(LockedObject { mode: LockMode::Touch, ..locked_object(None) })),
    ]
}

fn asks() -> Vec<(&'static str, Request<Object>)> {
    let txn = txn(4);
    vec![
        ("prepare", Request::Prepare { txn, participants: vec![NODE, NodeId(5)], part: part() }),
        ("participant-commit", Request::Commit { txn, part: part() }),
        ("prepare-touching", Request::Prepare { txn, participants: vec![NODE, NodeId(5)], part: touch() }),
        ("participant-commit-touching", Request::Commit { txn, part: touch() }),
        ("lock-touch", Request::Lock { txn, first: self::txn(3), oid: oid(1), mode: LockMode::Touch }),
        ("decide", Request::Decide { txn, outcome: Outcome::Committed(AT) }),
        ("ask", Request::Ask { txn, round: 2 }),
        ("forget", Request::Forget { txn }),
        ("heard", Request::Heard { txn, mark: mark() }),
        ("check", Request::Check { txn, reads: reads().into(), at: AT }),
        ("lock", Request::Lock { txn, first: self::txn(3), oid: oid(1), mode: LockMode::Shared }),
        ("ask-joint", joint(|participants| Request::Prepare { txn, participants, part: part() })),
        ("decide-joint", joint(|_| Request::Decide { txn, outcome: Outcome::Aborted })),
    ]
}

/// A request to two logical nodes.
fn joint(request: impl Fn(Vec<NodeId>) -> Request<Object>) -> Request<Object> {
    let participants = vec![NODE, NodeId(5)];
    let requests = participants.iter().map(|node| (*node, request(participants.clone()))).collect();
    Request::Joint { txn: txn(4), requests }
}

fn answers() -> Vec<(&'static str, Answer, Option<LockedObject<Object>>)> {
    let txn = txn(4);
    let held = ValidationConflict { oid: oid(1), cause: Cause::Held(self::txn(3)) };
    let lock = Answer::Locked { txn, oid: oid(1), mode: LockMode::Exclusive };
    let touch = Answer::Locked { txn, oid: oid(1), mode: LockMode::Touch };
    let participants = vec![NODE, NodeId(5)];
    let prepared = |offsets| {
        let participants = participants.clone();
        Answer::Prepared { txn, proposal: AT, participants, round: 2, offsets }
    };
    let ended = |outcome, version, offsets| Answer::Ended { txn, outcome, version, offsets };
    let (committed, none) = (Outcome::Committed(AT), AppendOffsets::new());
    let receipt = CommitReceipt { timestamp: AT, offsets: offsets() };
    let refused = Answer::Refused { txn, why: Refusal::Conflict(held) };
    let joint = Answer::Joint { txn, answers: [(NODE, prepared(none.clone())), (NodeId(5), refused)].into() };
    vec![
        ("answer-joint", joint, None),
        ("concluded", Answer::Concluded { txn, reply: CommitReply::Committed(AT.into()) }, None),
        ("concluded-appended", Answer::Concluded { txn, reply: CommitReply::Committed(receipt) }, None),
        ("prepared", prepared(none.clone()), None),
        ("prepared-appending", prepared(offsets()), None),
        ("ended", ended(committed, Some(version(42)), none.clone()), None),
        ("ended-appended", ended(committed, Some(version(42)), offsets()), None),
        ("ended-aborted", ended(Outcome::Aborted, None, none), None),
        ("refused", Answer::Refused { txn, why: Refusal::Aborted }, None),
        ("checked", Answer::Checked { txn, verdict: Ok(()) }, None),
        ("not-checked", Answer::Checked { txn, verdict: Err(held) }, None),
        ("locked", lock, Some(locked_object(None))),
        ("locked-touch", touch, None),
    ]
}

#[test]
fn messages_between_processes_are_unchanged() {
    let (epoch, holder, txn, node, seen) = (12, HolderId(34), txn(4), NODE, AT);
    let up = up().into_iter().map(|(name, message)| (name, Message::Up { node, epoch, holder, message }));
    let down = down().into_iter().map(|(name, message)| (name, Message::Down { node, holder, message }));
    let calls = calls().into_iter().map(|(name, call)| (name, Message::Call { txn, call }));
    let replies = replies().into_iter().map(|(name, reply)| (name, Message::Reply { txn, reply }));
    let asks = asks().into_iter().map(|(name, request)| (name, Message::Ask { node, epoch, seen, request }));
    let answers =
        answers().into_iter().map(|(name, answer, locked)| (name, Message::Answer { node, seen, answer, locked }));
    let held = Message::Deferred { node, txn, kind: model::ErrorKind::Full, why: "the disk is full".to_owned() };
    let time = Message::Time(1_800_000_000_124);
    let elsewhere =
        [("elsewhere", Message::NotServedHere { node, epoch, damage: None }), ("held", held), ("time", time)];
    for (name, message) in up.chain(down).chain(calls).chain(replies).chain(asks).chain(answers).chain(elsewhere) {
        let (request, raw) = message.encode();
        let raw = raw.concat();
        check(&format!("cluster-{name}"), Flags::ONE_WAY, &proto::Request { request: Some(request.clone()) }, &raw);
        assert_eq!(Message::decode(request, Raw::Borrowed(&raw)).unwrap(), message, "{name}");
    }
}

fn standing() -> SpaceStatus {
    let brick = |brick, unreachable_since, nodes| BrickStatus {
        brick,
        address: format!("db{brick}:6680"),
        unreachable_since,
        nodes,
        damaged: Vec::new(),
    };
    let away = Some(model::Timestamp::from_millis(1_750_000_000_000));
    let bricks = vec![brick(1, None, vec![(NODE, 12), (NodeId(4), 13)]), brick(3, away, vec![(NodeId(5), 12)])];
    SpaceStatus { space: "main".to_owned(), policy: FailurePolicy::Continue, bricks, schema: 0x1234_5678 }
}

#[test]
fn statuses_of_spaces_are_unchanged() {
    let stopped = SpaceStatus { policy: FailurePolicy::FailStop, ..standing() };
    let messages = [
        ("watch", Message::Watch),
        ("standing", Message::SpaceStatus(standing())),
        ("standing-stopped", Message::SpaceStatus(stopped)),
    ];
    for (name, message) in messages {
        let (request, raw) = message.encode();
        check(&format!("cluster-{name}"), Flags::ONE_WAY, &proto::Request { request: Some(request.clone()) }, b"");
        assert_eq!(Message::decode(request, Raw::Borrowed(&raw.concat())).unwrap(), message, "{name}");
    }
}

fn scan() -> Scan {
    let (from, to) = (Bytes::from_static(b"\x22"), Bytes::from_static(b"\x30"));
    let operand = Operand::new(Value::Int64(7)).unwrap();
    Scan {
        space: SpaceId(1),
        node: NODE,
        epoch: 12,
        classes: [oid(1).class()].into(),
        range: Some(IndexRange { index: 3, from, to, reverse: true }),
        after: Some(ScanPosition { key: Bytes::from_static(b"\x2f"), oid: oid(2) }),
        limit: 100,
        filter: Some(Filter::compare(FieldNumber(1), Comparison::Less, operand)),
        count: false,
        family: None,
    }
}

fn scan_answer() -> Scanned {
    let found = vec![(oid(1), version(42), object(7)), (oid(3), version(42), object(8))];
    let next = Some(ScanPosition { key: Bytes::new(), oid: oid(3) });
    Scanned { found, guards: reads(), next, examined: 5, count: 2, seen: HlcTimestamp::ZERO, has_stale_classes: false }
}

#[test]
fn requests_of_clients_of_a_cluster_are_unchanged() {
    use proto::request::Request;
    use proto::response::Response;
    let reserve = Reserve { space: SpaceId(1), node: NODE, pages: 4, room: 600 };
    let range = ReservedPages { first: 77, pages: 4, slot: 3, room: 900 };
    assert_eq!(ReservedPages::try_from(proto::Reserved::from(range)).unwrap(), range);
    let return_pages = proto::ReturnPages { space: 1, node: NODE.0, ranges: vec![range.into()] };
    let key = |name| EntryKey::name(name).unwrap();
    let look_up = LookUp { collection: oid(1), keys: vec![key("a"), key("bc")] };
    let prefix = Bytes::from_static(b"b");
    let after = Some(key("bc"));
    let passing =
        ListEntries { collection: oid(1), after, prefix, limit: 9, reverse: false, kinds: true, passes_damage: true };
    let list = ListEntries { reverse: true, passes_damage: false, ..passing.clone() };
    let after = Some(Entry { collection: oid(3), key: key("a") });
    let list_of = ListEntriesOf { node: NODE, target: oid(2), after: after.clone(), limit: 9 };
    let build = BuildIndex { space: SpaceId(1), node: NODE, index: 3 };
    let objects = ListNodeObjects { space: SpaceId(1), node: NODE, from: (0x2a, 3), limit: 9 };
    let requests = [
        ("reserve", Request::Reserve(reserve.into())),
        ("return-pages", Request::ReturnPages(return_pages)),
        ("look", Request::ReadObject(proto::ReadObject { oid: proto_oid(1), cached: false })),
        ("scan", Request::Scan(scan().into_proto().unwrap())),
        ("get-numbers", Request::GetNumbers(proto::GetNumbers { count: 2 })),
        ("get-space", Request::GetSpace(proto::GetSpace {})),
        ("build-index", Request::BuildIndex(build.into())),
        ("look-up", Request::LookUp(look_up.into_proto())),
        ("list-entries", Request::ListEntries(list.into_proto())),
        ("list-entries-passing-damage", Request::ListEntries(passing.into_proto())),
        ("list-entries-of", Request::ListEntriesOf(list_of.into_proto())),
        ("list-node-objects", Request::ListNodeObjects(objects.into_proto())),
        ("scan-family", Request::Scan(Scan { family: Some(oid(1).class()), ..scan() }.into_proto().unwrap())),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let object = object(7);
    let some = object_read_to_proto(Some((object.code(), object.encoded_len())));
    let (scanned, entries) = scan_answer().into_proto();
    let (behind, _) = Scanned { has_stale_classes: true, ..Scanned::default() }.into_proto();
    let looked_up = LookedUp { targets: vec![oid(2)], guards: reads(), seen: AT };
    let looked_up = LookedUp { guards: looked_up.guards[..2].to_vec(), ..looked_up };
    let listed = |name, kind| ListedEntry { key: key(name), target: oid(2), kind };
    let all = vec![listed("b", Some(model::Kind::Directory)), listed("bc", None)];
    let list = EntryList { entries: all, more: true, guards: reads(), seen: AT, count: 12, modified: AT, damage: None };
    let damage = Some("row 7 is damaged".to_owned());
    let (passed, passed_keys) = EntryList { damage: damage.clone(), ..list.clone() }.into_proto(true);
    let (list, keys) = list.into_proto(true);
    let (entries_of, keys_of) = EntriesOf { entries: after.into_iter().collect(), more: true }.into_proto();
    let listed = ListedObject { oid: oid(2), kind: model::Kind::Blob, size: 7 };
    let listed = NodeObjects { objects: vec![listed], next: Some((0x2b, 0)), damage: None };
    let beside = NodeObjects { damage, ..listed.clone() };
    let tokens = vec![Bytes::from_static(b"a token")];
    let responses = [
        ("node-objects", Response::NodeObjects(listed.into_proto()), Vec::new()),
        ("node-objects-beside-damage", Response::NodeObjects(beside.into_proto()), Vec::new()),
        ("entry-list-beside-damage", Response::EntryList(passed), vec![passed_keys]),
        ("scanned", Response::Scanned(scanned), entries),
        ("looked-up", Response::LookedUp(looked_up.into_proto()), Vec::new()),
        ("entry-list", Response::EntryList(list), vec![keys]),
        ("entries-of", Response::EntriesOf(entries_of), vec![keys_of]),
        ("scanned-behind", Response::Scanned(behind), Vec::new()),
        ("reserved", Response::Reserved(range.into()), Vec::new()),
        ("looked", Response::ObjectRead(some), vec![object.data]),
        ("looked-none", Response::ObjectRead(object_read_to_proto(None)), Vec::new()),
        ("numbers", Response::Numbers(proto::Numbers { first: 1_000_000, tokens: Vec::new() }), Vec::new()),
        ("numbers-tokens", Response::Numbers(proto::Numbers { first: 1_000_000, tokens }), Vec::new()),
        (
            "space-of",
            Response::ConnectionSpace(proto::ConnectionSpace { space: 1, nodes: vec![NODE.0, 5] }),
            Vec::new(),
        ),
    ];
    for (name, response, raw) in responses {
        let message = proto::Response { response: Some(response) };
        check(&format!("response-{name}"), Flags::RESPONSE, &message, &raw.concat());
    }
}

#[test]
fn messages_about_classes_and_queries_are_unchanged() {
    use proto::query as messages;
    use proto::request::Request;
    use proto::response::Response;
    use wire::cluster::{QueryRequest, QueryRows};
    let own = [(oid(1), Some(object(7))), (oid(2), None)].into();
    let asked = QueryRequest {
        query: Bytes::from_static(b"\x01"),
        own_writes: own,
        report_reads: true,
        only_guards: true,
        explain: true,
    };
    let (query, written) = asked.clone().into_proto();
    let written = written.concat();
    assert_eq!(QueryRequest::from_proto(query.clone(), Raw::Borrowed(&written)).unwrap(), asked);
    let requests: [(&str, Request, &[u8]); 3] = [
        ("query", Request::Query(query), &written),
        ("fetch-rows", Request::FetchRows(messages::FetchRows { cursor: 3 }), b""),
        ("end-query", Request::EndQuery(messages::EndQuery { cursor: 3 }), b""),
    ];
    for (name, request, raw) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, raw);
    }
    let row = |byte: &'static [u8]| Bytes::from_static(byte);
    let rows = QueryRows {
        cursor: Some(3),
        columns: vec!["name".to_owned()],
        oids: vec![oid(1), oid(3)],
        rows: vec![row(b"one"), row(b"three")],
        reads: reads(),
        seen: AT,
        plan: ("page".to_owned(), row(b"{}")),
        waits_for: Vec::new(),
    };
    let (message, data) = rows.clone().into_proto();
    assert_eq!(QueryRows::from_proto(message.clone(), data.concat().into()).unwrap(), rows);
    let sign = QueryRows { cursor: Some(3), waits_for: vec![NODE], ..QueryRows::default() };
    let (waits, _) = sign.clone().into_proto();
    assert_eq!(QueryRows::from_proto(waits.clone(), Bytes::new()).unwrap(), sign);
    let responses = [
        ("rows", Response::Rows(Box::new(message)), data),
        ("rows-waiting", Response::Rows(Box::new(waits)), Vec::new()),
    ];
    for (name, response, raw) in responses {
        let message = proto::Response { response: Some(response) };
        check(&format!("response-{name}"), Flags::RESPONSE, &message, &raw.concat());
    }
}

#[test]
fn records_of_transactions_are_unchanged() {
    let (txn, participants) = (txn(4), vec![NODE, NodeId(5)]);
    let decided = |outcome, writes| Record::Decided {
        txn,
        outcome,
        writes,
        touches: BTreeSet::new(),
        entries: EntryChanges::new(),
        offsets: AppendOffsets::new(),
        participants: vec![NODE, NodeId(5)],
    };
    let touching = |Part { writes, touches, entries, offsets, .. }: Part<Object>| Record::Committed {
        txn,
        timestamp: AT,
        writes,
        touches,
        entries,
        offsets,
    };
    let appending = || Part { offsets: offsets(), ..part() };
    let ended = |participants, offsets| {
        let (outcome, version) = (Outcome::Committed(AT), Some(version(42)));
        Record::Ended { txn, outcome, version, offsets, participants, acknowledged: false }
    };
    let records = [
        ("prepared", Record::Prepared { txn, participants: participants.clone(), part: part(), proposal: AT }),
        ("committed", touching(part())),
        ("committed-touching", touching(touch())),
        ("committed-appending", touching(appending())),
        (
            "prepared-touching",
            Record::Prepared { txn, participants: participants.clone(), part: touch(), proposal: AT },
        ),
        (
            "prepared-appending",
            Record::Prepared { txn, participants: participants.clone(), part: appending(), proposal: AT },
        ),
        ("decided-touching", decided_touch(txn)),
        ("decided", decided(Outcome::Committed(AT), writes())),
        ("aborted", decided(Outcome::Aborted, Writes::new())),
        ("marked", Record::Marked { txn }),
        ("bound", Record::Bound(AT)),
        ("horizon", Record::Horizon(AT)),
        ("heard", Record::Heard { client: ClientId(9), mark: mark() }),
        ("ended", ended(participants.clone(), AppendOffsets::new())),
        ("ended-appended", ended(participants, offsets())),
    ];
    for (name, record) in records {
        let now = encode_record(&record, version(43));
        let stored = golden(&format!("record-{name}"), &now);
        assert_eq!(stored, now, "{name}: this build writes other bytes");
        assert_eq!(decode_record(&stored).unwrap(), (version(43), record), "{name}");
    }
}
