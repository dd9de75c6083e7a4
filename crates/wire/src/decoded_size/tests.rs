use model::limits;
use prost::Message;

use super::*;
use crate::frame::MAX_MESSAGE;
use crate::proto::request::Request;
use crate::proto::response::Response;
use crate::proto::{self, cluster};

/// A message of this many empty elements, each in the fields `path`.
fn nested(path: &[u32], elements: usize) -> Vec<u8> {
    let (last, outer) = path.split_last().unwrap();
    let mut bytes = Vec::new();
    for _ in 0..elements {
        prost::encoding::encode_key(*last, prost::encoding::WireType::LengthDelimited, &mut bytes);
        bytes.push(0);
    }
    for field in outer.iter().rev() {
        let mut around = Vec::new();
        prost::encoding::encode_key(*field, prost::encoding::WireType::LengthDelimited, &mut around);
        prost::encoding::encode_varint(bytes.len() as u64, &mut around);
        around.extend_from_slice(&bytes);
        bytes = around;
    }
    bytes
}

fn request(request: Request) -> Vec<u8> {
    proto::Request { request: Some(request) }.encode_to_vec()
}

fn is_too_large<M>(result: Result<M, FrameError>) -> bool {
    matches!(result, Err(FrameError::TooLargeDecoded { max: MAX_DECODED }))
}

#[test]
fn many_empty_elements_are_refused_before_they_are_decoded() {
    let requests: [(&str, &[u32]); 5] = [
        ("Ask.joint.requests", &[34, 13, 1]),
        ("Answer.joint.answers", &[35, 10, 1]),
        ("Define.classes", &[51, 1]),
        ("ReturnPages.ranges", &[107, 3]),
        ("Write.changes", &[63, 5]),
    ];
    for (name, path) in requests {
        let bytes = nested(path, MAX_MESSAGE / 2 - 100);
        assert!(bytes.len() <= MAX_MESSAGE);
        assert!(is_too_large(decode_request(&bytes)), "{name}");
    }
    let responses: [(&str, &[u32]); 3] =
        [("Schema.classes", &[50, 2]), ("Spaces.entries", &[18, 1]), ("Numbers.tokens", &[42, 2])];
    for (name, path) in responses {
        assert!(is_too_large(decode_response(&nested(path, MAX_MESSAGE / 2 - 100))), "{name}");
    }
}

#[test]
fn the_size_is_at_least_that_of_the_elements() {
    for (path, size) in [
        (&[34, 13, 1][..], size_of::<cluster::Ask>()),
        (&[51, 1], size_of::<proto::schema::ClassDefinition>()),
        (&[107, 3], size_of::<proto::Reserved>()),
    ] {
        let (_, counted) = decode_request(&nested(path, 1000)).unwrap();
        assert!((1000 * size..1000 * size + 4096).contains(&counted), "{path:?}: {counted}");
    }
    let strings = proto::ScrubDone { damaged: vec!["x".repeat(10); 1000], ..Default::default() };
    let response = proto::Response { response: Some(Response::ScrubDone(strings)) }.encode_to_vec();
    let counted = check(&response, table::RESPONSE).unwrap();
    assert!(counted > 1000 * (size_of::<String>() + 10), "{counted}");
    let numbers = proto::usage::Emptiness { empty: vec![1; 1000], ..Default::default() };
    let response = proto::Response { response: Some(Response::Emptiness(numbers)) }.encode_to_vec();
    assert!(check(&response, table::RESPONSE).unwrap() > 4000);
}

#[test]
fn the_largest_messages_are_accepted() {
    let reads = cluster::Reads {
        oids: vec![u64::MAX; 2 * limits::READS],
        seen: vec![u64::MAX; limits::READS],
        moves: vec![1; limits::READS],
        ..Default::default()
    };
    let writes = cluster::Writes { oids: vec![u64::MAX; 2 * limits::OBJECTS], states: vec![u32::MAX; limits::OBJECTS] };
    let entries = cluster::Entries {
        oids: vec![u64::MAX; 4 * limits::OBJECTS],
        lengths: vec![60; limits::OBJECTS].into(),
        keys: vec![7; limits::KEYS].into(),
    };
    let parts = cluster::Parts { reads: Some(reads), ..Default::default() };
    let commit = cluster::CallCommit { parts: Some(parts), creates: true };
    let call = cluster::Call { txn: None, call: Some(cluster::call::Call::Commit(commit)) };
    decode_request(&request(Request::Call(Box::new(call)))).unwrap();

    let prepare = cluster::Prepare {
        participants: (0..64).collect(),
        writes: Some(writes),
        entries: Some(entries),
        ..Default::default()
    };
    decode_request(&request(joint(vec![prepare; 1]))).unwrap();
    let prepare = cluster::Prepare { participants: (0..64).collect(), ..Default::default() };
    decode_request(&request(joint(vec![prepare; 4096]))).unwrap();

    let field = proto::schema::FieldDefinition { name: "a_field_of_a_class".to_owned(), ..Default::default() };
    let class = proto::schema::ClassDefinition {
        name: "com.example.application.SomeClass".to_owned(),
        fields: vec![field; 50],
        ..Default::default()
    };
    decode_request(&request(Request::Define(proto::schema::Define { classes: vec![class; 1000] }))).unwrap();

    let metrics = vec![proto::Metric { name: "a_metric_of_a_server".to_owned(), value: 7 }; 16_384];
    let status = proto::Status { metrics, ..Default::default() };
    decode_response(&proto::Response { response: Some(Response::Status(status)) }.encode_to_vec()).unwrap();
}

fn joint(requests: Vec<cluster::Prepare>) -> Request {
    let ask = |request| cluster::Ask { request: Some(request), ..Default::default() };
    let requests = requests.into_iter().map(|prepare| ask(cluster::ask::Request::Prepare(prepare))).collect();
    Request::Ask(Box::new(ask(cluster::ask::Request::Joint(cluster::JointAsk { requests }))))
}

#[test]
fn unknown_fields_are_passed_over_and_malformed_ones_are_refused() {
    // Field 1000 is not known: it is skipped, whatever it holds.
    let unknown = nested(&[1000, 13, 1], 4096);
    let (decoded, _) = decode_request(&unknown).unwrap();
    assert_eq!(decoded.request, None);
    let mut cut = nested(&[34, 13, 1], 4096);
    cut.truncate(cut.len() - 1);
    assert!(matches!(decode_request(&cut), Err(FrameError::Message(_))));
    assert!(matches!(decode_request(&vec![0xff; 4096]), Err(FrameError::Message(_))));
}

#[test]
fn deep_nesting_is_refused() {
    let mut path = vec![34];
    // A joint request in a joint request, and so on.
    path.extend([13, 1].repeat(300));
    assert!(matches!(decode_request(&nested(&path, 1)), Err(FrameError::Message(_))));
}
