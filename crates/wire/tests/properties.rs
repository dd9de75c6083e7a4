//! Properties that hold for all bytes, all splits of them, and all transactions.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use model::{ClassId, Kind, Name, Oid, Op, SpaceId, Transaction, UploadId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use wire::convert::{transaction_from_proto, transaction_to_proto};
use wire::frame::{Flags, Raw, crc32c};
use wire::inbox::{Inbox, Next};
use wire::outbox::encode_head;
use wire::proto;

fn oid() -> impl Strategy<Value = Oid> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(Oid::from_bytes),
        any::<u64>().prop_map(|index| Oid::temporary(SpaceId(1), ClassId::NONE, index)),
    ]
}

fn data() -> impl Strategy<Value = Bytes> {
    let large = (any::<u8>(), 40_000..40_100_usize).prop_map(|(byte, len)| [byte].repeat(len));
    prop_oneof![4 => vec(any::<u8>(), 0..100), 1 => large].prop_map(Bytes::from)
}

fn key() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..30).prop_map(Bytes::from)
}

fn name() -> impl Strategy<Value = Name> {
    (0..=SpaceId::MAX.0, ".{0,20}").prop_map(|(space, path)| Name { space: SpaceId(space), path })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Blob), Just(Kind::Record), Just(Kind::Collection)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (oid(), kind(), data(), option::of(oid())).prop_map(|(oid, kind, data, near)| Op::Create {
            oid,
            kind,
            data,
            near
        }),
        (oid(), data()).prop_map(|(oid, data)| Op::Put { oid, data }),
        (oid(), any::<u64>()).prop_map(|(oid, upload)| Op::PutUpload { oid, upload: UploadId(upload) }),
        (oid(), any::<u64>(), data()).prop_map(|(oid, offset, data)| Op::Write { oid, offset, data }),
        (oid(), data()).prop_map(|(oid, data)| Op::Append { oid, data }),
        (oid(), any::<u64>()).prop_map(|(oid, size)| Op::Truncate { oid, size }),
        (oid(), any::<u64>(), any::<u64>()).prop_map(|(oid, offset, len)| Op::Zero { oid, offset, len }),
        (oid(), oid()).prop_map(|(from, to)| Op::Clone { from, to }),
        oid().prop_map(|oid| Op::Delete { oid }),
        (oid(), key(), data()).prop_map(|(oid, key, value)| Op::SetAttribute { oid, key, value }),
        (oid(), key()).prop_map(|(oid, key)| Op::RemoveAttribute { oid, key }),
        (oid(), oid()).prop_map(|(collection, member)| Op::Add { collection, member }),
        (oid(), oid()).prop_map(|(collection, member)| Op::Remove { collection, member }),
        (name(), oid()).prop_map(|(name, oid)| Op::Bind { name, oid }),
        name().prop_map(|name| Op::Unbind { name }),
        (oid(), option::of(any::<u64>())).prop_map(|(oid, version)| Op::Expect { oid, version }),
        (name(), option::of(oid())).prop_map(|(name, oid)| Op::ExpectName { name, oid }),
    ]
}

/// Frames as they are sent: flags, request, raw part.
fn frames() -> impl Strategy<Value = Vec<(Flags, u32, Bytes)>> {
    let flags = prop_oneof![Just(Flags::REQUEST), Just(Flags::RESPONSE), Just(Flags::MORE), Just(Flags::ONE_WAY)];
    vec((flags, any::<u32>(), data()), 0..8)
}

fn bytes_of(frames: &[(Flags, u32, Bytes)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (flags, id, raw) in frames {
        let message = proto::Error { kind: *id, message: id.to_string() };
        encode_head(&mut bytes, *flags, *id, &message, raw.len(), crc32c(raw));
        bytes.extend_from_slice(raw);
    }
    bytes
}

proptest! {
    #[test]
    fn transactions_round_trip(ops in vec(op(), 0..20)) {
        let transaction = Transaction { ops };
        let (commit, raw) = transaction_to_proto(transaction.clone());
        let raw = Bytes::from(raw.concat());
        let back = transaction_from_proto(commit.clone(), &Raw::Owned(raw.clone())).unwrap();
        prop_assert_eq!(&back, &transaction);
        prop_assert_eq!(transaction_from_proto(commit, &Raw::Borrowed(&raw)).unwrap(), transaction);
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused(ops in vec(op(), 1..20), extra in vec(any::<u8>(), 1..10)) {
        let (commit, raw) = transaction_to_proto(Transaction { ops });
        let raw = raw.concat();
        let longer = [raw.clone(), extra].concat();
        prop_assert!(transaction_from_proto(commit.clone(), &Raw::Borrowed(&longer)).is_err());
        if let Some((_, shorter)) = raw.split_last() {
            prop_assert!(transaction_from_proto(commit, &Raw::Borrowed(shorter)).is_err());
        }
    }

    #[test]
    fn frames_arrive_for_every_split_of_the_bytes(
        sent in frames(),
        cuts in vec(any::<proptest::sample::Index>(), 0..20),
        pauses in vec(any::<bool>(), 1..10),
    ) {
        let bytes = bytes_of(&sent);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (mut inbox, mut arrived) = (Inbox::new(1 << 20), Vec::new());
        let mut pauses = pauses.into_iter().cycle();
        let mut feed = |inbox: &mut Inbox, part: &[u8]| inbox.feed(part, |frame| {
            assert!(frame.is_raw_intact());
            arrived.push((frame.flags, frame.id, frame.raw.to_bytes()));
            Ok(if pauses.next().unwrap() { Next::Pause } else { Next::Frame })
        });
        for cut in cuts.windows(2) {
            feed(&mut inbox, &bytes[cut[0]..cut[1]]).unwrap();
        }
        while !inbox.is_between_frames() {
            feed(&mut inbox, &[]).unwrap();
        }
        prop_assert_eq!(arrived, sent);
    }

    #[test]
    fn changed_head_is_detected(sent in frames(), at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
        prop_assume!(!sent.is_empty());
        let mut bytes = bytes_of(&sent[..1]);
        let head = bytes.len() - sent[0].2.len();
        bytes[at.index(head)] ^= 1 << bit;
        let mut inbox = Inbox::new(1 << 20);
        let mut taken = 0;
        let result = inbox.feed(&bytes, |_| {
            taken += 1;
            Ok(Next::Frame)
        });
        prop_assert!(taken == 0, "a damaged frame was accepted: {:?}", result);
    }

    #[test]
    fn noise_decodes_to_frames_or_an_error(noise in vec(any::<u8>(), 0..300)) {
        // Decoding does not panic.
        let _ = Inbox::new(1 << 20).feed(&noise, |_| Ok(Next::Frame));
    }
}
