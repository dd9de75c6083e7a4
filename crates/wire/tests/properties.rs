//! Properties that hold for all bytes, and all splits of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::frame::{Flags, crc32c};
use wire::inbox::{Inbox, Next};
use wire::outbox::encode_head;
use wire::proto;

fn data() -> impl Strategy<Value = Bytes> {
    let large = (any::<u8>(), 40_000..40_100_usize).prop_map(|(byte, len)| [byte].repeat(len));
    prop_oneof![4 => vec(any::<u8>(), 0..100), 1 => large].prop_map(Bytes::from)
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
