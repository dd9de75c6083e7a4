//! Invalid messages are refused, with the reason.

use bytes::Bytes;
use model::{ClassId, ErrorKind, NodeId, Oid, PageId, SpaceId, limits};
use prost::Message as _;
use protocol::commit::Request;
use protocol::ident::HolderId;
use protocol::page_cache::FetchId;
use protocol::tree::Up;
use wire::cluster::{Message, Scan};
use wire::frame::Raw;
use wire::proto;
use wire::proto::cluster;
use wire::proto::request::Request as Envelope;

use crate::strategies::record;

fn decode_error(request: Envelope, raw: &[u8]) -> (ErrorKind, String) {
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
fn writes_of(class: u32, states: &[[u32; 2]]) -> Option<cluster::Writes> {
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
        assert_eq!(decode_error(request, b""), (ErrorKind::Invalid, why.to_owned()));
    }
}

#[test]
fn temporary_identifiers_are_refused() {
    let temporary = proto::Oid::from(Oid::temporary(SpaceId(1), ClassId::NONE, 4));
    for oid in [temporary, proto::Oid::default()] {
        let reads = cluster::Reads { oids: vec![oid.high, oid.low], seen: vec![5], ..cluster::Reads::default() };
        let (kind, why) = decode_error(commit(Some(reads), None), b"");
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(why.ends_with("is not the identifier of a committed object"), "{why}");
    }
}

#[test]
fn object_that_is_too_large_is_refused_before_its_data_is_read() {
    let most = limits::OBJECT as u32;
    assert_eq!(decode_error(commit(None, writes_of(0, &[[1, most + 1]])), b"").0, ErrorKind::TooLarge);
    let data = vec![0; limits::OBJECT];
    let whole = Message::decode(commit(None, writes_of(0, &[[1, most]])), Raw::Borrowed(&data));
    assert!(whole.is_ok());
}

#[test]
fn invalid_objects_are_refused() {
    for (class, kind) in [(0, 3), (0, 4), (7, 1)] {
        assert_eq!(decode_error(commit(None, writes_of(class, &[[kind, 1]])), b"x").0, ErrorKind::Invalid);
    }
}

#[test]
fn invalid_records_are_refused_on_their_way_up() {
    let whole = record(1, "text");
    let cut = &whole[..whole.len() - 1];
    let (kind, _) = decode_error(commit(None, writes_of(7, &[[2, cut.len() as u32]])), cut);
    assert_eq!(kind, ErrorKind::Invalid);
}

#[test]
fn lists_that_are_out_of_order_are_refused() {
    let Some(mut writes) = writes_of(7, &[[0, 0], [0, 0]]) else { unreachable!() };
    writes.oids.rotate_left(2);
    assert_eq!(decode_error(commit(None, Some(writes)), b"").0, ErrorKind::Invalid);
    let read = cluster::Reads { oids: vec![1, 1], seen: vec![5], ..cluster::Reads::default() };
    let twice = cluster::Reads { written: vec![0, 0], writers: vec![6, 6], ..read.clone() };
    let nowhere = cluster::Reads { written: vec![1], writers: vec![6], ..read.clone() };
    let moved = cluster::Reads { written: vec![0], writers: vec![6], moves: vec![1], ..read.clone() };
    let short = cluster::Reads { seen: vec![], ..read };
    for reads in [twice, nowhere, moved, short] {
        assert_eq!(decode_error(commit(Some(reads), None), b"").0, ErrorKind::Invalid);
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
        assert_eq!(decode_error(commit(Some(reads), None), b"").0, ErrorKind::Invalid);
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
        assert_eq!(decode_error(ended(offsets), b"").0, ErrorKind::Invalid);
    }
    let refusal = cluster::Refusal { why: Some(cluster::refusal::Why::Aborted(cluster::Nothing {})) };
    let reply = Some(cluster::commit_reply::Reply::Refused(refusal));
    let offsets = offset(one, 1).to_vec();
    let reply = Some(cluster::reply::Reply::Ended(cluster::CommitReply { reply, offsets }));
    let refused_with_offsets = Envelope::Reply(cluster::Reply { txn: some_txn(), reply });
    assert_eq!(decode_error(refused_with_offsets, b"").0, ErrorKind::Invalid);
}

#[test]
fn too_many_participants_are_refused() {
    let nodes = (0..=wire::cluster::MAX_PARTICIPANTS as u32).collect();
    let call = Some(cluster::call::Call::Release(cluster::Participants { nodes }));
    let request = Envelope::Call(Box::new(cluster::Call { txn: some_txn(), call }));
    assert_eq!(decode_error(request, b"").0, ErrorKind::TooLarge);
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
    assert_eq!(decode_error(Envelope::Ping(proto::Ping {}), b"").0, ErrorKind::Unsupported);
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

#[test]
fn invalidations_that_lead_to_no_later_version_are_refused() {
    let version = |position| Some(proto::Version { moves: 0, position });
    let invalidate = |previous, next| {
        let invalidate = cluster::Invalidate {
            page: Some(some_page(2)),
            slots: vec![1],
            previous: version(previous),
            version: version(next),
            timestamp: 9,
            txn: some_txn(),
            contents: None,
            digest: Bytes::new(),
        };
        let down = Some(cluster::down::Down::Invalidate(invalidate));
        Envelope::Down(Box::new(cluster::Down { node: 2, holder: 1, down }))
    };
    for (previous, next) in [(7, 7), (8, 7)] {
        let why = "an invalidation does not lead to a later version";
        assert_eq!(decode_error(invalidate(previous, next), b""), (ErrorKind::Invalid, why.to_owned()));
    }
    assert!(Message::decode(invalidate(6, 7), Raw::Borrowed(b"")).is_ok());
}
