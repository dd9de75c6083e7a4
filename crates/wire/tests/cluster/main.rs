//! Messages between the processes of a cluster: they round-trip, and invalid ones are refused.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod invalid;
mod strategies;

use bytes::Bytes;
use model::{ClassId, Entry, NodeId, Object, Oid, PageId, SpaceId};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use protocol::commit::joint::join;
use protocol::commit::{Part, Request};
use protocol::gateway::Call;
use protocol::ident::HolderId;
use protocol::page_cache::{self, FetchId};
use protocol::tree::Down;
use wire::cluster::{
    EntriesOf, EntryList, ListEntries, ListEntriesOf, ListNodeObjects, ListedObject, LookUp, Message, NodeObjects,
    Scan, Scanned, decode_record, encode_record, object_read_from_proto, object_read_to_proto,
};
use wire::frame::Raw;
use wire::proto;

use strategies::*;

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
    fn listings_of_objects_round_trip(objects in vec((oid(), any::<u64>()), 0..5), page in 0..1_u64 << 48, slot in any::<u16>(), damage in proptest::option::of(".{0,9}")) {
        let list = ListNodeObjects { space: SpaceId(3), node: NodeId(4), from: (page, slot), limit: 7 };
        prop_assert_eq!(ListNodeObjects::from_proto(list.clone().into_proto()).unwrap(), list);
        let objects = objects.into_iter().map(|(oid, size)| ListedObject { oid, kind: model::Kind::Record, size }).collect();
        let found = NodeObjects { objects, next: Some((page, slot)), damage };
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
    fn head_of_a_call_is_at_most_what_it_says_and_so_are_those_of_its_requests(sent in message()) {
        let length = |message: &Message| proto::Request { request: Some(message.encode().0) }.encoded_len();
        if let Message::Call { txn, call: call @ (Call::Commit { .. } | Call::Check { .. }) } = &sent {
            prop_assert!(length(&sent) <= call.head_bytes() + 128);
            let Call::Commit { parts, .. } = call else { return Ok(()) };
            let participants: Vec<NodeId> = parts.keys().copied().collect();
            let prepare = |part: &Part<Object>| Request::Prepare {
                txn: *txn,
                participants: participants.clone(),
                part: Part { transfer_ms: u64::MAX, ..part.clone() },
            };
            let requests = parts.iter().map(|(node, part)| (*node, prepare(part)));
            let asks = join(requests, |_| Some(1)).into_iter().map(|(node, request)| {
                length(&Message::Ask { node, epoch: u64::MAX, seen: txn.start, request })
            });
            prop_assert!(asks.sum::<usize>() <= call.head_bytes() + 128);
        }
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
    fn records_round_trip(record in kept_record(), version in version()) {
        let bytes = encode_record(&record, version);
        prop_assert_eq!(decode_record(&bytes).unwrap(), (version, record));
        prop_assert!(decode_record(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(decode_record(&[&bytes, &b"x"[..]].concat()).is_err());
    }

    #[test]
    fn scans_and_their_answers_round_trip(scan in scan(), scanned in scan_answer(), extra in any::<u8>()) {
        prop_assert_eq!(Scan::from_proto(scan.clone().into_proto().unwrap()).unwrap(), scan);
        let (message, raw) = scanned.clone().into_proto();
        let raw = raw.concat();
        prop_assert_eq!(Scanned::from_proto((*message).clone(), Raw::Borrowed(&raw)).unwrap(), scanned);
        let longer = [raw, vec![extra]].concat();
        prop_assert!(Scanned::from_proto(*message, Raw::Borrowed(&longer)).is_err());
    }

    #[test]
    fn read_objects_round_trip(locked in locked_object()) {
        let message = object_read_to_proto(locked.value.as_ref().map(|object| (object.code(), object.encoded_len())));
        let raw = locked.value.as_ref().map(|object| object.data.clone()).unwrap_or_default();
        let back = object_read_from_proto(locked.oid, message, Raw::Borrowed(&raw)).unwrap();
        prop_assert_eq!(back, locked.value);
    }
}
