//! The bytes of version 1 of the wire, stored in `proto/golden`: this build decodes them to the same values, and encodes
//! these values to the same bytes. The same holds for the records of transactions.
//!
//! A missing vector is written when `MORTAR_WRITE_GOLDEN` is set. An existing one is never changed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod account;
mod catalogue;
mod cluster;
mod schema;

use std::fs;
use std::path::{Path, PathBuf};

use model::{ClassId, NodeId, Oid, PageId, SpaceId};
use prost::Message;
use wire::frame::{Flags, Frame, crc32c};
use wire::inbox::{Inbox, Next};
use wire::outbox::encode_head;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::{handshake, proto};

fn vector(name: &str) -> PathBuf {
    Path::new("../../proto/golden").join(format!("{name}.hex"))
}

/// The bytes of a vector; `now` are the bytes that this build encodes.
fn golden(name: &str, now: &[u8]) -> Vec<u8> {
    let path = vector(name);
    if !path.exists() && std::env::var_os("MORTAR_WRITE_GOLDEN").is_some() {
        let lines: Vec<String> = now.chunks(32).map(|line| line.iter().map(|b| format!("{b:02x}")).collect()).collect();
        fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn frame(flags: Flags, message: &impl Message, raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_head(&mut bytes, flags, 0x0102_0304, message, raw.len(), crc32c(raw));
    bytes.extend_from_slice(raw);
    bytes
}

/// Checks one frame against its vector, both ways.
fn check<M: Message + Default + PartialEq + std::fmt::Debug>(name: &str, flags: Flags, message: &M, raw: &[u8]) {
    let now = frame(flags, message, raw);
    let stored = golden(name, &now);
    assert_eq!(stored, now, "{name}: this build sends other bytes");
    let mut count = 0;
    let compare = |frame: Frame<'_>| {
        assert_eq!((frame.flags, frame.id), (flags, 0x0102_0304), "{name}");
        assert_eq!(M::decode(frame.message).unwrap(), *message, "{name}");
        assert_eq!(frame.raw.as_slice(), raw, "{name}");
        assert!(frame.is_raw_intact(), "{name}");
        count += 1;
        Ok(Next::Frame)
    };
    Inbox::new(1 << 20).feed(&stored, compare).unwrap();
    assert_eq!(count, 1, "{name}");
}

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId(0x00c1_a550), PageId { space: SpaceId(1), node: NodeId(2), number: 0x0123_4567_89ab }, slot)
}

fn proto_oid(slot: u16) -> Option<proto::Oid> {
    Some(oid(slot).into())
}

#[test]
fn openings_are_unchanged() {
    let (space, agent) = ("main".to_owned(), "test 1.0".to_owned());
    let hello = proto::Hello { features: 5, required: 1, space, agent, ..proto::Hello::default() };
    let (user, password) = ("alice".to_owned(), "secret".to_owned());
    let somebody = proto::Hello { role: proto::Role::Admin as i32, user, password, ..hello.clone() };
    let hasty = proto::Hello { catalog_timeout_ms: 2_700, ..hello.clone() };
    let member = proto::Hello { cluster: "0123456789abcdef".repeat(2), ..hello.clone() };
    let numbered =
        proto::Hello { client_number: 1_000_000, client_token: bytes::Bytes::from_static(b"a token"), ..hello.clone() };
    let accepted = proto::Accepted {
        features: 7,
        required: 1,
        agent: "mortar 0.1.0".to_owned(),
        space: 1,
        max_frame: 41_943_040,
        max_in_flight: 1024,
        brick: 0,
        opening: None,
        permission: proto::account::Permission::None.into(),
        time_ms: 0,
        cluster: String::new(),
    };
    let of_a_brick = proto::Accepted { brick: 7, ..accepted.clone() };
    let seen = proto::cluster::Witnessed { brick: 7, number: 3, nonce: 0x1234, position: 99, at_us: 5 };
    let witness = proto::Hello { witnessed: vec![seen], ..hello.clone() };
    let opened = proto::Accepted { opening: Some(seen), ..of_a_brick.clone() };
    let of_a_user = proto::Accepted { permission: proto::account::Permission::Write.into(), ..accepted.clone() };
    let of_a_time = proto::Accepted { time_ms: 1_800_000_000_123, ..accepted.clone() };
    let of_a_cluster = proto::Accepted { cluster: "0123456789abcdef".repeat(2), ..accepted.clone() };
    let welcome = |answer| proto::Welcome { answer: Some(answer) };
    let refused = proto::Error { kind: 9, message: "upgrade".to_owned() };
    let openings = [
        ("hello", handshake::encode(1, &hello)),
        ("hello-somebody", handshake::encode(1, &somebody)),
        ("hello-hasty", handshake::encode(1, &hasty)),
        ("welcome-accepted", handshake::encode(1, &welcome(proto::welcome::Answer::Accepted(accepted)))),
        ("welcome-of-a-brick", handshake::encode(1, &welcome(proto::welcome::Answer::Accepted(of_a_brick)))),
        ("hello-numbered", handshake::encode(1, &numbered)),
        ("hello-witness", handshake::encode(1, &witness)),
        ("hello-member", handshake::encode(1, &member)),
        ("welcome-opened", handshake::encode(1, &welcome(proto::welcome::Answer::Accepted(opened)))),
        ("welcome-of-a-user", handshake::encode(1, &welcome(proto::welcome::Answer::Accepted(of_a_user)))),
        ("welcome-of-a-time", handshake::encode(1, &welcome(proto::welcome::Answer::Accepted(of_a_time)))),
        ("welcome-of-a-cluster", handshake::encode(1, &welcome(proto::welcome::Answer::Accepted(of_a_cluster)))),
        ("welcome-refused", handshake::encode(1, &welcome(proto::welcome::Answer::Refused(refused)))),
    ];
    for (name, now) in openings {
        assert_eq!(golden(name, &now), now, "{name}: this build sends other bytes");
        let length = now.len() - 12;
        assert_eq!(handshake::decode(&now), handshake::Preamble::Mortar { version: 1, length }, "{name}");
    }
}

#[test]
fn requests_are_unchanged() {
    let requests = [
        ("ping", Request::Ping(proto::Ping {})),
        (
            "create-space",
            Request::CreateSpace(proto::CreateSpace { name: "photos".to_owned(), nodes: None, policy: None }),
        ),
        ("list-spaces", Request::ListSpaces(proto::ListSpaces {})),
        ("get-status", Request::GetStatus(proto::GetStatus {})),
        ("backup", Request::Backup(proto::Backup::default())),
        ("scrub", Request::Scrub(proto::Scrub::default())),
        ("scrub-and-repair", Request::Scrub(proto::Scrub { repair: true, discard: true })),
        ("backup-of-a-cut", Request::Backup(proto::Backup { cut: Some(7), ..Default::default() })),
        ("backup-of-changes", Request::Backup(proto::Backup { cut: Some(7), increment: true, ..Default::default() })),
        ("backup-base", Request::BackupBase(proto::BackupBase { is_last: true })),
        ("backup-of-the-catalogue", Request::Backup(proto::Backup { catalogue: true, ..Default::default() })),
        (
            "backup-since-a-cut",
            Request::Backup(proto::Backup { cut: Some(8), changes_since: Some(7), ..Default::default() }),
        ),
        ("cut", Request::Cut(proto::Cut { number: 7, hold_ms: 2_000, follower: None })),
        ("cut-of-a-follower", Request::Cut(proto::Cut { number: 7, hold_ms: 2_000, follower: Some(9) })),
        ("release-cut", Request::ReleaseCut(proto::ReleaseCut { number: 7 })),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
}

#[test]
fn answers_are_unchanged() {
    let metric = proto::Metric { name: "connections".to_owned(), value: 3 };
    let responses: [(&str, Response, &[u8]); 13] = [
        ("error", Response::Error(proto::Error { kind: 2, message: "no such object".to_owned() }), b""),
        ("done", Response::Done(proto::Done {}), b""),
        ("space-created", Response::SpaceCreated(proto::SpaceCreated { space: 2 }), b""),
        (
            "spaces",
            Response::Spaces(proto::Spaces {
                entries: vec![proto::Space { space: 1, name: "main".to_owned(), ..Default::default() }],
            }),
            b"",
        ),
        (
            "status",
            Response::Status(proto::Status {
                agent: "mortar 0.1.0".to_owned(),
                metrics: vec![metric],
                ..proto::Status::default()
            }),
            b"",
        ),
        (
            "status-clocks",
            Response::Status(proto::Status {
                clocks: vec![proto::ClockStatus { process: "brick 2".to_owned(), offset_ms: -600_000, refused: true }],
                ..proto::Status::default()
            }),
            b"",
        ),
        ("backup-done", Response::BackupDone(proto::BackupDone { bytes: 4096 }), b""),
        ("progress", Response::Progress(proto::Progress { done: 1, total: 3 }), b""),
        (
            "scrub-done",
            Response::ScrubDone(proto::ScrubDone {
                objects: 3,
                bytes: 4096,
                damaged: vec!["object 1".to_owned()],
                ..proto::ScrubDone::default()
            }),
            b"",
        ),
        (
            "scrub-done-problems",
            Response::ScrubDone(proto::ScrubDone {
                problems: vec![proto::ScrubProblem {
                    object: None,
                    key: Default::default(),
                    target: None,
                    kind: "extent_missing".to_owned(),
                    what: "object 1: not in the extent".to_owned(),
                    dangling: true,
                    repair: proto::ProblemRepair::Done.into(),
                }],
                unlisted: 7,
                unlisted_dangling: 9,
                ..proto::ScrubDone::default()
            }),
            b"",
        ),
        ("cut-held", Response::CutHeld(proto::CutHeld { run: 5, has_catalogue: true }), b""),
        ("cut-refused", Response::CutRefused(proto::CutRefused { last: 8, why: "try again".to_owned() }), b""),
        ("cut-released", Response::CutReleased(proto::CutReleased { run: 5, lasted: true }), b""),
    ];
    for (name, response, raw) in responses {
        let message = proto::Response { response: Some(response) };
        check(&format!("response-{name}"), Flags::RESPONSE, &message, raw);
    }
    let piece = proto::Response { response: Some(Response::BackupPiece(proto::BackupPiece { total: 0 })) };
    check("response-backup-piece", Flags::MORE, &piece, b"the next bytes");
}

#[test]
fn every_vector_is_checked() {
    let stored = fs::read_dir(vector("x").parent().unwrap()).unwrap().count();
    assert_eq!(
        stored,
        13 + 15 + 14 + cluster::VECTORS + catalogue::VECTORS + account::VECTORS + schema::VECTORS,
        "the vectors in the directory are not those of this version's tests"
    );
}
