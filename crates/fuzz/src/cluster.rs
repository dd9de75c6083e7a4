//! The fuzz target of messages between the processes of a cluster, and of stored records of transactions.

use bytes::Bytes;
use model::{Error, ErrorKind};
use prost::Message as _;
use wire::cluster::{CopiedRows, Message, decode_record, encode_record};
use wire::frame::Raw;
use wire::proto;
use wire::proto::request::Request;

/// The first two bytes are the length of the message; the raw part follows it. The whole input is also decoded as a
/// record.
pub(crate) fn run(input: &[u8]) {
    if let Ok((version, record)) = decode_record(input) {
        let again = decode_record(&encode_record(&record, version));
        assert_eq!(again.ok(), Some((version, record)));
    }
    if let Ok(copied) = decode_copied_rows(input) {
        let (message, raw) = copied.clone().into_proto();
        assert_eq!(CopiedRows::from_proto(message, Raw::Borrowed(&raw.concat())).ok(), Some(copied));
    }
    let Some((message, raw)) = split_message(input) else { return };
    let Ok(proto::Request { request: Some(request) }) = proto::Request::decode(message) else { return };
    decode_requests(&request, raw);
    let borrowed = Message::decode(request.clone(), Raw::Borrowed(raw)).ok();
    let owned = Message::decode(request, Raw::Owned(Bytes::copy_from_slice(raw))).ok();
    assert_eq!(borrowed, owned);
    let Some(message) = borrowed else { return };
    let (request, parts) = message.encode();
    let again = Message::decode(request, Raw::Borrowed(&parts.concat()));
    assert_eq!(again.ok(), Some(message));
}

/// The first two bytes are the length of the message; the raw part follows it.
fn decode_copied_rows(input: &[u8]) -> Result<CopiedRows, Error> {
    let (message, raw) = split_message(input).unwrap_or_default();
    let message =
        proto::moves::CopiedRows::decode(message).map_err(|_| Error::new(ErrorKind::Invalid, "no message"))?;
    CopiedRows::from_proto(message, Raw::Borrowed(raw))
}

fn split_message(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let ([low, high], bytes) = input.split_first_chunk()?;
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    Some(bytes.split_at(length.min(bytes.len())))
}

fn decode_requests(request: &Request, raw: &[u8]) {
    match request {
        Request::Query(query) => drop(wire::cluster::QueryRequest::from_proto(query.clone(), Raw::Borrowed(raw))),
        Request::Reserve(reserve) => drop(wire::cluster::Reserve::try_from(*reserve)),
        Request::ReturnPages(returned) => {
            returned.ranges.iter().for_each(|range| drop(wire::cluster::ReservedPages::try_from(*range)));
        }
        Request::Scan(scan) => drop(wire::cluster::Scan::from_proto(scan.clone())),
        Request::LookUp(look_up) => drop(wire::cluster::LookUp::from_proto((**look_up).clone())),
        Request::ListEntries(list) => drop(wire::cluster::ListEntries::from_proto((**list).clone())),
        Request::ListNodeObjects(list) => drop(wire::cluster::ListNodeObjects::from_proto(*list)),
        Request::ListEntriesOf(list) => drop(wire::cluster::ListEntriesOf::from_proto((**list).clone())),
        Request::BuildIndex(build) => drop(wire::cluster::BuildIndex::try_from(*build)),
        Request::ReadObject(look) => drop(wire::cluster::read_object_from_proto(*look)),
        Request::CopyRows(copy) => drop(wire::cluster::CopyRows::try_from(copy.clone())),
        Request::CloneRows(clone) => drop(wire::cluster::CloneRows::try_from(clone.clone())),
        _ => {}
    }
}
