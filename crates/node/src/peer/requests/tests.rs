use std::collections::BTreeSet;
use std::sync::Arc;

use model::SpaceId;
use protocol::ident::ClientId;

use super::*;
use crate::cluster_view::SpaceView;
use crate::server::{KINDS, Kind};

/// A request of each kind, with nothing in it.
macro_rules! requests {
    ($($kind:ident)*) => { [$((stringify!($kind), Request::$kind(Default::default()))),*] };
}

fn all() -> Vec<(&'static str, Request)> {
    Vec::from(requests![
        Ping CreateSpace ListSpaces GetStatus Backup BackupBase Cut ReleaseCut Scrub Up Down Call Reply Ask Answer NotServedHere Deferred Watch SpaceStatus Time Reserve ReturnPages ReadObject
        GetNumbers GetSpace Scan BuildIndex SetSpace RemoveSpace Describe Query FetchRows EndQuery GetSchema Define MetaGetRun MetaRead
        MetaGet MetaWrite MetaWatch MetaOpenSession MetaKeepSession MetaEndSession MetaCompareClocks CopyRows CloneRows GetMoveIns Move Administer
        GetNodeUsages GetSpaceUsages CheckEmpty RegisterRedirector GetGroups
        MemberRequest JobRequest AskWitness Witnesses BeginContent WriteContent AbortContent ReadContent LookUp ListEntries ListEntriesOf
        ListNodeObjects
    ])
}

#[test]
fn every_request_of_the_schema_has_its_row() {
    use Permission::{Admin, Read, Write};

    let all = all();
    let kinds: BTreeSet<usize> = all.iter().map(|(_, request)| Kind::of_request(request) as usize).collect();
    assert_eq!(kinds.len(), KINDS.len(), "this test lists every kind of request once");
    for (name, request) in all {
        let Row { form, access, handler } = row(request);
        let expected = match name {
            "Up" | "Call" | "Watch" | "Down" | "Reply" | "Ask" | "Answer" | "NotServedHere" | "Deferred"
            | "SpaceStatus" | "Time" | "Witnesses" => {
                assert!(matches!(handler, Handler::Violation), "{name} is no request of a client");
                (Form::OneWay, Access::Admitted, None)
            }
            "Ping" | "GetStatus" | "ListSpaces" | "GetSpaceUsages" | "GetGroups" => {
                (Form::Answered, Access::Admitted, None)
            }
            "ReadObject" => (Form::Answered, Access::Work(Read), Some("object")),
            "ReadContent" => (Form::Answered, Access::Work(Read), Some("object")),
            "WriteContent" | "AbortContent" => (Form::Answered, Access::Work(Write), Some("content")),
            "Scan" | "LookUp" | "ListEntries" | "ListEntriesOf" | "ListNodeObjects" => {
                (Form::Answered, Access::Work(Read), Some("node"))
            }
            "BeginContent" => (Form::Answered, Access::Work(Write), Some("node")),
            "Reserve" => (Form::Answered, Access::Work(Write), None),
            "ReturnPages" => (Form::OneWay, Access::Space(Write), None),
            "BuildIndex" => (Form::Answered, Access::Work(Admin), Some("node")),
            "Query" | "FetchRows" => (Form::Answered, Access::Work(Read), None),
            "EndQuery" => (Form::Either, Access::Space(Read), None),
            "GetNumbers" | "GetSpace" | "GetSchema" | "Define" | "Describe" => {
                (Form::Answered, Access::Space(Read), None)
            }
            "CreateSpace" | "Move" | "MemberRequest" | "AskWitness" | "RegisterRedirector" => {
                (Form::Answered, Access::Administrator, None)
            }
            "SetSpace" | "RemoveSpace" | "Administer" | "JobRequest" => {
                (Form::Answered, Access::CheckedByHandler, None)
            }
            _ => {
                assert!(matches!(handler, Handler::WrongServer(_)), "{name} is for another server");
                (Form::Answered, Access::Admitted, None)
            }
        };
        let target = match handler {
            Handler::Forward(Target::Node { .. }, _) => Some("node"),
            Handler::Forward(Target::Object(_), _) | Handler::ReadCached(_) => Some("object"),
            Handler::Forward(Target::Content { .. }, _) => Some("content"),
            _ => None,
        };
        assert_eq!((form, access, target), expected, "{name}");
    }
}

#[test]
fn read_of_the_cache_is_answered_here_and_another_one_by_the_brick() {
    for cached in [true, false] {
        let row = row(Request::ReadObject(proto::ReadObject { cached, ..proto::ReadObject::default() }));
        assert_eq!(matches!(row.handler, Handler::ReadCached(_)), cached);
        assert_eq!(matches!(row.handler, Handler::Forward(Target::Object(_), Request::ReadObject(_))), !cached);
    }
}

#[test]
fn target_is_of_the_connection_s_space_only() {
    let space = SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NodeId(3)] };
    let client = PeerClient::with_all_permissions((), Arc::new(space), ClientId(7));
    let check = |space, node| Target::Node { space, node }.node(&client).map_err(|error| error.kind());
    assert_eq!(check(1, 3), Ok(NodeId(3)));
    assert_eq!(check(2, 3), Err(ErrorKind::Denied));
    assert_eq!(check(1, 4), Err(ErrorKind::NotFound));
    assert_eq!(check(1, u32::MAX), Err(ErrorKind::Invalid));
    assert_eq!(Target::Object(None).node(&client).unwrap_err().kind(), ErrorKind::Invalid);
    let content_of = |of, space, node| {
        let content = model::ContentId::new(SpaceId(of), NodeId(node), 0, model::ContentOrigin::Upload, 7);
        let target = Target::Content { space, content: Some(content.into()) };
        target.node(&client).map_err(|error| error.kind())
    };
    assert_eq!(content_of(1, 1, 3), Ok(NodeId(3)));
    assert_eq!(content_of(1, 2, 3), Err(ErrorKind::Denied));
    assert_eq!(content_of(2, 1, 3), Err(ErrorKind::Denied), "the upload of another space");
    assert_eq!(content_of(1, 1, 4), Err(ErrorKind::NotFound));
    let unnamed = Target::Content { space: 1, content: None };
    assert_eq!(unnamed.node(&client).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn sizes_are_bounded() {
    let reserve = |pages| Handler::Reserve(proto::Reserve { space: 1, node: 3, pages, room: 0 });
    for (count, is_allowed) in [(0, false), (1, true), (MAX_RESERVED, true), (MAX_RESERVED + 1, false)] {
        assert_eq!(reserve(count).check_limits().is_ok(), is_allowed, "{count} pages");
    }
    for (count, is_allowed) in [(0, false), (1, true), (MAX_NUMBERS, true), (MAX_NUMBERS + 1, false)] {
        assert_eq!(Handler::GetNumbers(count).check_limits().is_ok(), is_allowed, "{count} numbers");
    }
}
