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
use protocol::validate::{Cause, Read, ReadVersion, ValidationConflict};
use wire::cluster::{
    BrickStatus, BuildIndex, CopiedRows, CopyRows, EntriesOf, EntryList, IndexRange, ListEntries, ListEntriesOf,
    ListNodeObjects, ListedEntry, ListedObject, LookUp, LookedUp, Message, NodeObjects, Reserve, Scan, ScanPosition,
    Scanned, SpaceStatus, decode_record, encode_record, object_read_to_proto, policy_to_proto,
};
use wire::frame::{Flags, Raw};
use wire::proto::{self, groups};

use super::{check, golden, oid, sent};

/// Number of vectors in this file.
pub(crate) const VECTORS: usize = 77 + 21 + 8 + 16 + 6 + 10 + 5 + 10 + 9 + 3 + 1 + 9;

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
    vec![Read { oid: oid(1), seen: at }, Read { oid: oid(2), seen: written }, Read { oid: blob(), seen: at }]
}

fn part() -> Part<Object> {
    Part { reads: reads(), writes: writes(), ..Part::default() }
}

/// The part of a transaction that only touches guards and changes entries of collections.
fn touch() -> Part<Object> {
    Part { touches: [oid(1), oid(3)].into(), entries: entries(), ..Part::default() }
}

fn decided_touching(txn: TxnId) -> Record<Object> {
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

fn locked(value: Option<Object>) -> LockedObject<Object> {
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
    };
    let contents = BTreeMap::from([(1, ObjectState::Value(object(8))), (2, ObjectState::Absent)]);
    let fetched = |reply| Down::Fetched { page, fetch, reply };
    vec![
        ("leased", Down::Leased { asked: 1_750_000_000_000, lease_ms: 10_000, sync: 5 }),
        ("closed", Down::Closed),
        ("fetched", fetched(page_cache::FetchReply::Page(copy()))),
        ("fetched-current", fetched(page_cache::FetchReply::Current)),
        ("fetched-stale", fetched(page_cache::FetchReply::Stale)),
        ("invalidate", Down::Invalidate { message: message.clone(), contents: None }),
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
        ("call-check", Call::Check { reads: BTreeMap::from([(NODE, reads())]), seen: AT }),
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
        ("reply-locked", Reply::Locked(locked(Some(object(7))))),
        ("reply-locked-touch", Reply::Locked(LockedObject { mode: LockMode::Touch, ..locked(None) })),
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
        ("check", Request::Check { txn, reads: reads(), at: AT }),
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
        ("locked", lock, Some(locked(None))),
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
    let elsewhere = [("elsewhere", Message::NotServedHere { node, epoch }), ("held", held), ("time", time)];
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

#[test]
fn messages_about_policies_are_unchanged() {
    use proto::request::Request;
    use proto::response::Response;
    let policy = Some(policy_to_proto(FailurePolicy::Continue) as i32);
    let create = proto::CreateSpace { name: "photos".to_owned(), nodes: Some(4), policy };
    let set = proto::SetSpace { name: "photos".to_owned(), policy, ..Default::default() };
    let limit = |value| Some(proto::usage::Limit { value });
    let (max_bytes, max_objects) = (limit(Some(1 << 30)), limit(None));
    let quota = proto::SetSpace { name: "photos".to_owned(), policy: None, max_bytes, max_objects };
    let remove = proto::RemoveSpace { name: "photos".to_owned(), only_if_empty: true, cancel: true };
    let requests = [
        ("create-space-policy", Request::CreateSpace(create)),
        ("set-space", Request::SetSpace(set)),
        ("set-space-quota", Request::SetSpace(quota)),
        ("remove-space", Request::RemoveSpace(proto::RemoveSpace { name: "photos".to_owned(), ..Default::default() })),
        ("remove-space-if-empty", Request::RemoveSpace(remove)),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let space = proto::Space { space: 1, name: "main".to_owned(), policy, ..Default::default() };
    let limited = proto::Space { max_bytes: Some(1 << 30), max_objects: Some(9), ..space.clone() };
    let removing = proto::Space { removing: true, ..space.clone() };
    let removing = proto::Response { response: Some(Response::Spaces(proto::Spaces { entries: vec![removing] })) };
    check("response-spaces-removing", Flags::RESPONSE, &removing, b"");
    let limited = proto::Response { response: Some(Response::Spaces(proto::Spaces { entries: vec![limited] })) };
    check("response-spaces-quota", Flags::RESPONSE, &limited, b"");
    let entries = vec![space];
    let spaces = proto::Response { response: Some(Response::Spaces(proto::Spaces { entries })) };
    check("response-spaces-policy", Flags::RESPONSE, &spaces, b"");
}

#[test]
fn messages_about_usage_are_unchanged() {
    use proto::request::Request;
    use proto::response::Response;
    use proto::usage;
    let requests = [
        ("get-node-usages", Request::GetNodeUsages(usage::GetNodeUsages { nodes: vec![NODE.0, 5] })),
        ("register-redirector", Request::RegisterRedirector(groups::Register { redirector: Some(redirector()) })),
        (
            "register-redirector-newer-counts",
            Request::RegisterRedirector(groups::Register { redirector: Some(redirector_with_newer_counts()) }),
        ),
        ("get-groups", Request::GetGroups(groups::GetGroups { group: "shed".to_owned() })),
        ("check-empty", Request::CheckEmpty(usage::CheckEmpty { nodes: vec![NODE.0, 5], revision: 7, class: Some(3) })),
        ("get-space-usages", Request::GetSpaceUsages(usage::GetSpaceUsages { space: "photos".to_owned() })),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let node = usage::NodeUsage {
        node: NODE.0,
        objects: 3,
        bytes: 400,
        staged_bytes: 50,
        pending_objects: 1,
        pending_bytes: 20,
    };
    let brick = usage::BrickUsage { brick: 2, objects: 3, bytes: 400, staged_bytes: 50 };
    let space = usage::SpaceUsage { space: 1, name: "photos".to_owned(), bricks: vec![brick], unknown_nodes: 1 };
    let responses = [
        ("groups", Response::Groups(groups::Groups { redirectors: vec![redirector(), groups::Redirector::default()] })),
        ("emptiness", Response::Emptiness(usage::Emptiness { empty: vec![NODE.0], occupied: vec![5] })),
        ("node-usages", Response::NodeUsages(usage::NodeUsages { nodes: vec![node] })),
        ("space-usages", Response::SpaceUsages(usage::SpaceUsages { spaces: vec![space] })),
    ];
    for (name, response) in responses {
        check(&format!("response-{name}"), Flags::RESPONSE, &proto::Response { response: Some(response) }, b"");
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

fn scanned() -> Scanned {
    let found = vec![(oid(1), version(42), object(7)), (oid(3), version(42), object(8))];
    let next = Some(ScanPosition { key: Bytes::new(), oid: oid(3) });
    Scanned { found, guards: reads(), next, examined: 5, count: 2, seen: HlcTimestamp::ZERO, has_stale_classes: false }
}

#[test]
fn requests_of_clients_of_a_cluster_are_unchanged() {
    use proto::request::Request;
    use proto::response::Response;
    let reserve = Reserve { space: SpaceId(1), node: NODE, pages: 4 };
    let key = |name| EntryKey::name(name).unwrap();
    let look_up = LookUp { collection: oid(1), keys: vec![key("a"), key("bc")] };
    let prefix = Bytes::from_static(b"b");
    let list = ListEntries { collection: oid(1), after: Some(key("bc")), prefix, limit: 9, reverse: true, kinds: true };
    let after = Some(Entry { collection: oid(3), key: key("a") });
    let list_of = ListEntriesOf { node: NODE, target: oid(2), after: after.clone(), limit: 9 };
    let build = BuildIndex { space: SpaceId(1), node: NODE, index: 3 };
    let objects = ListNodeObjects { space: SpaceId(1), node: NODE, from: (0x2a, 3), limit: 9 };
    let requests = [
        ("reserve", Request::Reserve(reserve.into())),
        ("look", Request::ReadObject(proto::ReadObject { oid: sent(1), cached: false })),
        ("scan", Request::Scan(scan().into_proto().unwrap())),
        ("get-numbers", Request::GetNumbers(proto::GetNumbers { count: 2 })),
        ("get-space", Request::GetSpace(proto::GetSpace {})),
        ("build-index", Request::BuildIndex(build.into())),
        ("look-up", Request::LookUp(look_up.into_proto())),
        ("list-entries", Request::ListEntries(list.into_proto())),
        ("list-entries-of", Request::ListEntriesOf(list_of.into_proto())),
        ("list-node-objects", Request::ListNodeObjects(objects.into_proto())),
        ("scan-family", Request::Scan(Scan { family: Some(oid(1).class()), ..scan() }.into_proto().unwrap())),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let object = object(7);
    let some = object_read_to_proto(Some((object.code(), object.encoded_len())));
    let (scanned, entries) = scanned().into_proto();
    let (behind, _) = Scanned { has_stale_classes: true, ..Scanned::default() }.into_proto();
    let looked_up = LookedUp { targets: vec![oid(2)], guards: reads(), seen: AT };
    let looked_up = LookedUp { guards: looked_up.guards[..2].to_vec(), ..looked_up };
    let listed = |name, kind| ListedEntry { key: key(name), target: oid(2), kind };
    let all = vec![listed("b", Some(model::Kind::Directory)), listed("bc", None)];
    let list = EntryList { entries: all, more: true, guards: reads(), seen: AT, count: 12, modified: AT };
    let (list, keys) = list.into_proto(true);
    let (entries_of, keys_of) = EntriesOf { entries: after.into_iter().collect(), more: true }.into_proto();
    let listed = ListedObject { oid: oid(2), kind: model::Kind::Blob, size: 7 };
    let listed = NodeObjects { objects: vec![listed], next: Some((0x2b, 0)) };
    let responses = [
        ("node-objects", Response::NodeObjects(listed.into_proto()), Vec::new()),
        ("scanned", Response::Scanned(scanned), entries),
        ("looked-up", Response::LookedUp(looked_up.into_proto()), Vec::new()),
        ("entry-list", Response::EntryList(list), vec![keys]),
        ("entries-of", Response::EntriesOf(entries_of), vec![keys_of]),
        ("scanned-behind", Response::Scanned(behind), Vec::new()),
        ("reserved", Response::Reserved(proto::Reserved { first: 77 }), Vec::new()),
        ("looked", Response::ObjectRead(some), vec![object.data]),
        ("looked-none", Response::ObjectRead(object_read_to_proto(None)), Vec::new()),
        ("numbers", Response::Numbers(proto::Numbers { first: 1_000_000 }), Vec::new()),
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

/// A job of each field.
fn job_state() -> proto::jobs::Job {
    let part = proto::jobs::Part {
        part: "brick 1".to_owned(),
        worker: Some("brick 1".to_owned()),
        done: 700,
        total: 900,
        changed: 1,
        ended: true,
    };
    proto::jobs::Job {
        job: 7,
        kind: "scrub".to_owned(),
        space: Some("main".to_owned()),
        subjects: vec!["Person".to_owned()],
        state: proto::jobs::State::Paused.into(),
        begun_by: "ann".to_owned(),
        begun_ms: 1_790_000_000_000,
        ended_ms: Some(1_790_000_000_001),
        rate: Some(1 << 20),
        unit: "bytes".to_owned(),
        done: 700,
        total: 900,
        worked_ms: 3000,
        objects: 5,
        changed: 1,
        found: 2,
        error: Some("no room".to_owned()),
        problems: vec!["brick 2 is not alive".to_owned()],
        parts: vec![part],
        findings: vec!["object 1 is damaged".to_owned()],
    }
}

#[test]
fn messages_about_moves_are_unchanged() {
    use proto::jobs::{JobRequest, Rate, job_request, rate};
    use proto::members::{MemberRequest, member_request};
    use proto::moves::{self, r#move};
    use proto::request::Request;
    use proto::response::Response;
    let key = |byte: u8| Bytes::from(vec![b'P', 0, 0, 0, 7, byte]);
    let copy = CopyRows { node: NODE, to: 2, attempt: 0xa77e_4097, number: 3, last_answered: 2, from: Some(key(1)) };
    let sent: moves::CopyRows = copy.clone().into();
    assert_eq!(CopyRows::try_from(sent.clone()).unwrap(), copy);
    let all = CopyRows { from: None, ..copy }.into();
    let json = |text: &'static [u8]| Bytes::from_static(text);
    let show = moves::Show { nodes: vec![NODE.0, 5] };
    let to = moves::MoveTo { nodes: vec![NODE.0, 5], brick: 3, dry_run: true };
    let spread = moves::Spread { space: Some("main".to_owned()), dry_run: true };
    let drain = moves::Drain { brick: 2, dry_run: true };
    let cancel = moves::Cancel { nodes: vec![NODE.0], drain: Some(2) };
    let members = |request| Request::MemberRequest(MemberRequest { request: Some(request) });
    let job = |request| Request::JobRequest(JobRequest { request: Some(request) });
    let objects = || Some(Rate { count: Some(rate::Count::Objects(500)) });
    let evolve = proto::jobs::Evolve { space: "main".to_owned(), classes: vec!["Person".to_owned()], rate: objects() };
    let scrub =
        proto::jobs::Scrub { bricks: vec![1, 2], rate: Some(Rate { count: Some(rate::Count::Bytes(1 << 20)) }) };
    let set_rate = proto::jobs::SetRate { job: 7, rate: objects() };
    let requests = [
        ("copy-rows", Request::CopyRows(sent)),
        ("copy-rows-changed", Request::CopyRows(all)),
        ("get-arrivals", Request::GetMoveIns(moves::GetMoveIns { nodes: vec![NODE.0, 5] })),
        ("move-show", Request::Move(moves::Move { request: Some(r#move::Request::Show(show)) })),
        ("move-to", Request::Move(moves::Move { request: Some(r#move::Request::To(to)) })),
        ("move-spread", Request::Move(moves::Move { request: Some(r#move::Request::Spread(spread)) })),
        ("move-drain", Request::Move(moves::Move { request: Some(r#move::Request::Drain(drain)) })),
        ("move-cancel", Request::Move(moves::Move { request: Some(r#move::Request::Cancel(cancel)) })),
        ("members-list", members(member_request::Request::List(proto::members::List {}))),
        ("members-remove-brick", members(member_request::Request::RemoveBrick(7))),
        ("members-remove-peer", members(member_request::Request::RemovePeer(9))),
        ("job-list", job(job_request::Request::List(proto::jobs::List {}))),
        ("job-show", job(job_request::Request::Show(7))),
        ("job-evolve", job(job_request::Request::Evolve(evolve))),
        ("job-scrub", job(job_request::Request::Scrub(scrub))),
        ("job-pause", job(job_request::Request::Pause(7))),
        ("job-resume", job(job_request::Request::Resume(7))),
        ("job-cancel", job(job_request::Request::Cancel(7))),
        ("job-set-rate", job(job_request::Request::SetRate(set_rate))),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let rows = vec![(key(1), Some(json(b"one"))), (key(2), None), (key(3), Some(Bytes::new()))];
    let copied = CopiedRows { rows, next: Some(key(4)), changed: 5, sealed: None };
    let last = CopiedRows { rows: Vec::new(), next: None, changed: 0, sealed: Some(9) };
    let (message, raw) = copied.clone().into_proto();
    assert_eq!(CopiedRows::from_proto(message.clone(), Raw::Borrowed(&raw.concat())).unwrap(), copied);
    assert!(CopiedRows::from_proto(message.clone(), Raw::Borrowed(b"")).is_err());
    let arrival = moves::MoveIn { node: NODE.0, rows: 3, bytes: 700, pause_us: Some(38_000), problem: "none".into() };
    let node = moves::NodeState {
        node: NODE.0,
        space: "main".to_owned(),
        brick: 1,
        moves: 2,
        to: Some(3),
        phase: Some(moves::MovePhase::Sealed.into()),
        move_in: Some(arrival.clone()),
    };
    let addresses = || vec!["127.0.0.1:6680".to_owned(), "unix:/run/brick".to_owned()];
    let brick = moves::BrickState { brick: 3, address: addresses().remove(0), alive: true, leaving: true };
    let moved = moves::Moved { nodes: vec![node], bricks: vec![brick] };
    let storage = proto::members::Storage::Memory.into();
    let brick = proto::members::Brick {
        brick: 3,
        addresses: addresses(),
        storage,
        alive: true,
        leaving: true,
        nodes: 4,
        coming: 5,
        refused: None,
    };
    let peer = proto::members::Peer { peer: 6, addresses: addresses(), alive: true };
    let member_answer = proto::members::MemberAnswer { bricks: vec![brick], peers: vec![peer] };
    let responses = [
        ("copied-rows", Response::CopiedRows(message), raw),
        ("copied-rows-last", Response::CopiedRows(last.into_proto().0), Vec::new()),
        ("arrivals", Response::MoveIns(moves::MoveIns { move_ins: vec![arrival] }), Vec::new()),
        ("moved-states", Response::Moved(moved), Vec::new()),
        ("member-answer", Response::MemberAnswer(member_answer), Vec::new()),
        ("job-answer", Response::JobAnswer(proto::jobs::JobAnswer { jobs: vec![job_state()] }), Vec::new()),
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
fn messages_of_meta_servers_are_unchanged() {
    use proto::meta;
    use proto::request::Request;
    use proto::response::Response;
    let (key, session) = (|| "bricks/1".to_owned(), Some(9));
    let change = |change| meta::Change { key: key(), change: Some(change) };
    let write = meta::Write {
        writer: vec![7; 16].into(),
        number: 3,
        again: true,
        expects: vec![
            meta::Expect { key: key(), revision: Some(5) },
            meta::Expect { key: "map".to_owned(), revision: None },
        ],
        changes: vec![
            change(meta::change::Change::Put(meta::Put { value_length: 2, session })),
            change(meta::change::Change::Remove(meta::Remove {})),
        ],
    };
    let compare =
        meta::CompareClocks { process: "brick 2".to_owned(), time_ms: 1_800_000_000_123, ..Default::default() };
    let reported =
        meta::CompareClocks { run: Some(77), offset_ms: -600_000, error_ms: 1, machine: 0xabc, ..compare.clone() };
    let requests: [(&str, Request, &[u8]); 10] = [
        ("compare-clocks", Request::MetaCompareClocks(compare), b""),
        ("compare-clocks-reported", Request::MetaCompareClocks(reported), b""),
        ("greet", Request::MetaGetRun(meta::GetRun {}), b""),
        ("read", Request::MetaRead(meta::Read { prefix: "bricks/".to_owned() }), b""),
        ("get", Request::MetaGet(meta::Get { keys: vec![key(), "map".to_owned()] }), b""),
        ("write", Request::MetaWrite(write), b"{}"),
        ("watch", Request::MetaWatch(meta::Watch { prefix: String::new(), after: 5 }), b""),
        ("open-session", Request::MetaOpenSession(meta::OpenSession { ttl_ms: 5000 }), b""),
        ("keep", Request::MetaKeepSession(meta::KeepSession { session: 9 }), b""),
        ("end-session", Request::MetaEndSession(meta::EndSession { session: 9 }), b""),
    ];
    for (name, request, raw) in requests {
        check(&format!("request-meta-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, raw);
    }
    let entries = vec![meta::Entry { key: key(), value_length: 2, revision: 5, session }];
    let changed = |entry| meta::Changed { key: key(), entry };
    let changes = vec![changed(Some(meta::EntryValue { value_length: 2, session })), changed(None)];
    let written = |written| Response::MetaWritten(meta::Written { written: Some(written) });
    let clock = meta::Clock { process: "brick 2".to_owned(), offset_ms: -600_000, error_ms: 1, machine: 0xabc };
    let clocks =
        meta::Clocks { run: 77, steady_ms: 1_800_000_000_000, clocks: vec![clock], time_ms: 1_800_000_000_124 };
    let responses: [(&str, Response, &[u8]); 9] = [
        ("clocks", Response::MetaClocks(clocks), b""),
        ("greeted", Response::MetaRun(meta::Run { run: 77 }), b""),
        ("state", Response::MetaState(meta::State { revision: 6, entries, more: true }), b"{}"),
        ("written", written(meta::written::Written::Revision(6)), b""),
        ("written-conflict", written(meta::written::Written::Conflict(meta::Conflict {})), b""),
        ("batch", Response::MetaBatch(meta::Batch { revision: 6, changes, more: true }), b"{}"),
        ("batch-sign", Response::MetaBatch(meta::Batch::default()), b""),
        ("compacted", Response::MetaCompacted(meta::Compacted {}), b""),
        ("session", Response::MetaSession(meta::Session { id: 9, ttl_ms: 5000 }), b""),
    ];
    for (name, response, raw) in responses {
        let message = proto::Response { response: Some(response) };
        check(&format!("response-meta-{name}"), Flags::RESPONSE, &message, raw);
    }
}

#[test]
fn messages_about_openings_are_unchanged() {
    use proto::cluster::{AskWitness, Witnessed, Witnesses};
    use proto::request::Request;
    use proto::response::Response;
    let seen = |brick| Witnessed { brick, number: 3, nonce: 0x1234, position: 99, at_us: 5 };
    let requests = [
        ("ask-witness", Request::AskWitness(AskWitness { brick: 7, claimed: None })),
        ("ask-witness-claimed", Request::AskWitness(AskWitness { brick: 7, claimed: Some(seen(7)) })),
        ("witnesses", Request::Witnesses(Witnesses { seen: vec![seen(0), seen(7)] })),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let response = proto::Response { response: Some(Response::Witnesses(Witnesses { seen: vec![seen(7)] })) };
    check("response-witnesses", Flags::RESPONSE, &response, b"");
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
        Record::Ended { txn, outcome, version, offsets, participants }
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
        ("decided-touching", decided_touching(txn)),
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

fn redirector_with_newer_counts() -> groups::Redirector {
    let counts = groups::Counts {
        forged: 2,
        content_reads: 900,
        contents_kept: 810,
        contents_kept_bytes: 849_346_560,
        ..groups::Counts::default()
    };
    groups::Redirector { counts: Some(counts), ..redirector() }
}

fn redirector() -> groups::Redirector {
    let counts = groups::Counts {
        members: 3,
        fetches: 400,
        fetched_above: 120,
        helped: 280,
        helped_bytes: 2_293_760,
        updates: 17,
        invalidations: 4,
        staleness_ms: Some(25),
        // Newer.
        forged: 0,
        content_reads: 0,
        contents_kept: 0,
        contents_kept_bytes: 0,
    };
    let addresses = vec!["shed1:6676".to_owned(), "tls:shed1:6677".to_owned()];
    groups::Redirector { group: "shed".to_owned(), addresses, agent: "mortar 0.1.0".to_owned(), counts: Some(counts) }
}
