//! Messages about what the catalogue knows: spaces, members, moves, jobs and openings; and those of its store.

use bytes::Bytes;
use model::{FailurePolicy, NodeId, SpaceId, SpaceMap, SpaceNodes};
use wire::cluster::{CloneRows, CopiedRows, CopyRows, policy_to_proto};
use wire::frame::{Flags, Raw};
use wire::proto::{self, groups};

use super::check;

/// Number of vectors in this file.
pub(crate) const VECTORS: usize = 8 + 2 + 10 + 16 + 1 + 9 + 19 + 4 + 4;

const NODE: NodeId = NodeId(2);

#[test]
fn messages_about_policies_are_unchanged() {
    use proto::request::Request;
    use proto::response::Response;
    let policy = Some(policy_to_proto(FailurePolicy::Continue) as i32);
    let create = proto::CreateSpace { name: "photos".to_owned(), nodes: Some(4), policy };
    let set = proto::SetSpace { name: "photos".to_owned(), policy, ..Default::default() };
    let limit = |value| Some(proto::usage::Limit { value });
    let (max_bytes, max_objects) = (limit(Some(1 << 30)), limit(None));
    let quota = proto::SetSpace { name: "photos".to_owned(), policy: None, max_bytes, max_objects, read_only: None };
    let read_only = proto::SetSpace { name: "photos".to_owned(), read_only: Some(true), ..Default::default() };
    let remove = proto::RemoveSpace { name: "photos".to_owned(), only_if_empty: true, cancel: true };
    let requests = [
        ("create-space-policy", Request::CreateSpace(create)),
        ("set-space", Request::SetSpace(set)),
        ("set-space-quota", Request::SetSpace(quota)),
        ("set-space-read-only", Request::SetSpace(read_only)),
        ("remove-space", Request::RemoveSpace(proto::RemoveSpace { name: "photos".to_owned(), ..Default::default() })),
        ("remove-space-if-empty", Request::RemoveSpace(remove)),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let space = proto::Space { space: 1, name: "main".to_owned(), policy, ..Default::default() };
    let limited = proto::Space { max_bytes: Some(1 << 30), max_objects: Some(9), ..space.clone() };
    let removing = proto::Space { removing: true, ..space.clone() };
    let clone_of = Some("main".to_owned());
    let clone = proto::Space { read_only: true, clone_of, cloned_ms: 1_800_000_000_123, ..space.clone() };
    let clone = proto::Response { response: Some(Response::Spaces(proto::Spaces { entries: vec![clone] })) };
    check("response-spaces-clone", Flags::RESPONSE, &clone, b"");
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
        damaged: false,
        corrected: Vec::new(),
    }
}

#[test]
fn messages_about_jobs_are_unchanged() {
    use proto::jobs::{JobRequest, Rate, job_request, rate};
    use proto::request::Request;
    use proto::response::Response;
    let objects = || Some(Rate { count: Some(rate::Count::Objects(500)) });
    let evolve = proto::jobs::Evolve { space: "main".to_owned(), classes: vec!["Person".to_owned()], rate: objects() };
    let scrub =
        proto::jobs::Scrub { bricks: vec![1, 2], rate: Some(Rate { count: Some(rate::Count::Bytes(1 << 20)) }) };
    let clone = proto::jobs::Clone { space: "main".to_owned(), name: "copy".to_owned(), rate: objects() };
    let set_rate = proto::jobs::SetRate { job: 7, rate: objects() };
    let requests = [
        ("list", job_request::Request::List(proto::jobs::List {})),
        ("show", job_request::Request::Show(7)),
        ("evolve", job_request::Request::Evolve(evolve)),
        ("scrub", job_request::Request::Scrub(scrub)),
        ("pause", job_request::Request::Pause(7)),
        ("resume", job_request::Request::Resume(7)),
        ("cancel", job_request::Request::Cancel(7)),
        ("set-rate", job_request::Request::SetRate(set_rate)),
        ("clone", job_request::Request::Clone(clone)),
    ];
    for (name, request) in requests {
        let request = Request::JobRequest(JobRequest { request: Some(request) });
        check(&format!("request-job-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let answer = Response::JobAnswer(proto::jobs::JobAnswer { jobs: vec![job_state()] });
    check("response-job-answer", Flags::RESPONSE, &proto::Response { response: Some(answer) }, b"");
}

#[test]
fn messages_about_moves_are_unchanged() {
    use proto::members::{MemberRequest, member_request};
    use proto::moves::{self, r#move};
    use proto::request::Request;
    use proto::response::Response;
    let key = |byte: u8| Bytes::from(vec![b'P', 0, 0, 0, 7, byte]);
    let copy = CopyRows { node: NODE, to: 2, attempt: 0xa77e_4097, number: 3, last_answered: 2, from: Some(key(1)) };
    let sent: moves::CopyRows = copy.clone().into();
    assert_eq!(CopyRows::try_from(sent.clone()).unwrap(), copy);
    let all = CopyRows { from: None, ..copy }.into();
    let place = |space, node| SpaceNodes { space: SpaceId(space), first_node: NodeId(node) };
    let map = SpaceMap::new(place(1, 0), place(7, 64), 8).unwrap();
    let clone = CloneRows { cut: 0x0123_4567_89ab, node: NodeId(3), map, from: None, most_objects: 50 };
    let (cloned, further): (moves::CloneRows, moves::CloneRows) =
        (clone.clone().into(), CloneRows { from: Some(key(2)), ..clone.clone() }.into());
    assert_eq!(CloneRows::try_from(cloned.clone()).unwrap(), clone);
    for wrong in [
        moves::CloneRows { node: 8, ..cloned.clone() },
        moves::CloneRows { new_space: 1, ..cloned.clone() },
        moves::CloneRows { new_first_node: 7, ..cloned.clone() },
        moves::CloneRows { space: 1 << 16, ..cloned.clone() },
        moves::CloneRows { from: Some(vec![0; 401].into()), ..cloned.clone() },
    ] {
        CloneRows::try_from(wrong).unwrap_err();
    }
    let json = |text: &'static [u8]| Bytes::from_static(text);
    let show = moves::Show { nodes: vec![NODE.0, 5] };
    let to = moves::MoveTo { nodes: vec![NODE.0, 5], brick: 3, dry_run: true };
    let spread = moves::Spread { space: Some("main".to_owned()), dry_run: true };
    let drain = moves::Drain { brick: 2, dry_run: true };
    let cancel = moves::Cancel { nodes: vec![NODE.0], drain: Some(2) };
    let members = |request| Request::MemberRequest(MemberRequest { request: Some(request) });
    let requests = [
        ("copy-rows", Request::CopyRows(sent)),
        ("copy-rows-changed", Request::CopyRows(all)),
        ("clone-rows", Request::CloneRows(cloned)),
        ("clone-rows-from", Request::CloneRows(further)),
        ("get-arrivals", Request::GetMoveIns(moves::GetMoveIns { nodes: vec![NODE.0, 5] })),
        ("move-show", Request::Move(moves::Move { request: Some(r#move::Request::Show(show)) })),
        ("move-to", Request::Move(moves::Move { request: Some(r#move::Request::To(to)) })),
        ("move-spread", Request::Move(moves::Move { request: Some(r#move::Request::Spread(spread)) })),
        ("move-drain", Request::Move(moves::Move { request: Some(r#move::Request::Drain(drain)) })),
        ("move-cancel", Request::Move(moves::Move { request: Some(r#move::Request::Cancel(cancel)) })),
        ("members-list", members(member_request::Request::List(proto::members::List {}))),
        ("members-remove-brick", members(member_request::Request::RemoveBrick(7))),
        ("members-remove-peer", members(member_request::Request::RemovePeer(9))),
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
        ("cloned-rows", Response::ClonedRows(moves::ClonedRows { next: Some(key(3)), objects: 4 }), Vec::new()),
        ("cloned-rows-all", Response::ClonedRows(moves::ClonedRows { next: None, objects: 6 }), Vec::new()),
        ("arrivals", Response::MoveIns(moves::MoveIns { move_ins: vec![arrival] }), Vec::new()),
        ("moved-states", Response::Moved(moved), Vec::new()),
        ("member-answer", Response::MemberAnswer(member_answer), Vec::new()),
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
        ("ask-witness", Request::AskWitness(AskWitness { brick: 7, ..AskWitness::default() })),
        (
            "ask-witness-claimed",
            Request::AskWitness(AskWitness { brick: 7, claimed: Some(seen(7)), ..AskWitness::default() }),
        ),
        ("witnesses", Request::Witnesses(Witnesses { seen: vec![seen(0), seen(7)], transactions: None })),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let response =
        proto::Response { response: Some(Response::Witnesses(Witnesses { seen: vec![seen(7)], transactions: None })) };
    check("response-witnesses", Flags::RESPONSE, &response, b"");
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
