use bytes::Bytes;
use model::checksum::crc32c;
use model::{ClassId, ContentId, NodeId, Oid, PageId};

use super::*;

/// A range of 1,000 bytes of a generation of a content.
fn range(generation: u64, offset: u64) -> ReadContent {
    let page = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };
    let expected = Some((ContentId(7), generation));
    ReadContent { oid: Oid::new(ClassId::NONE, page, 0), offset, length: 1_000, expected }
}

fn answer(content: u8) -> Answer {
    let response = Response::ContentBytes(contents::Bytes { state: 0, is_read: true });
    let raw = Bytes::from(vec![content; 1_000]);
    Answer { response, checksum: crc32c(&raw), raw }
}

/// Looks a range up that is kept.
fn kept(ranges: &mut Ranges<u32>, range: ReadContent) -> Option<Bytes> {
    match ranges.look_up(range, 0) {
        Step::Reply(_, answer) => Some(answer.raw),
        Step::Ask(_) | Step::Wait => None,
    }
}

#[test]
fn a_range_is_asked_for_once_and_all_that_wait_for_it_get_it() {
    let mut ranges = Ranges::new(1 << 20);
    assert!(matches!(ranges.look_up(range(0, 0), 1), Step::Ask(1)));
    assert!(matches!(ranges.look_up(range(0, 0), 2), Step::Wait));
    assert!(matches!(ranges.look_up(range(0, 0), 3), Step::Wait));
    assert_eq!(ranges.answered(range(0, 0), Some(&answer(1))), [2, 3]);
    assert_eq!(kept(&mut ranges, range(0, 0)).unwrap(), answer(1).raw);
    assert_eq!(ranges.counts, ContentCounts { reads: 4, kept: 3, kept_bytes: 3_000 });
}

#[test]
fn after_an_answer_that_is_no_range_those_that_wait_ask_themselves() {
    let mut ranges = Ranges::new(1 << 20);
    assert!(matches!(ranges.look_up(range(0, 0), 1), Step::Ask(1)));
    assert!(matches!(ranges.look_up(range(0, 0), 2), Step::Wait));
    assert_eq!(ranges.answered(range(0, 0), None), [2]);
    assert!(matches!(ranges.look_up(range(0, 0), 3), Step::Ask(3)), "nothing is kept");
    assert_eq!(ranges.counts.kept, 0);
}

#[test]
fn states_and_places_of_a_content_are_different_ranges() {
    let mut ranges = Ranges::new(1 << 20);
    let all = [range(0, 0), range(1, 0), range(0, 1_000), ReadContent { length: 999, ..range(0, 0) }];
    for (number, range) in (0..).zip(all) {
        assert!(matches!(ranges.look_up(range, 0), Step::Ask(_)), "{range:?}");
        ranges.answered(range, Some(&answer(number)));
    }
    for (number, range) in (0..).zip(all) {
        assert_eq!(kept(&mut ranges, range).unwrap()[0], number);
    }
}

#[test]
fn memory_is_bounded() {
    let mut ranges = Ranges::new(10_000);
    for number in 0..1_000 {
        assert!(matches!(ranges.look_up(range(0, number), 0), Step::Ask(_)));
        ranges.answered(range(0, number), Some(&answer(0)));
        let bytes: usize = ranges.kept.values().map(|answer| answer.raw.len() + OVERHEAD_BYTES).sum();
        assert!(bytes <= 10_000 && ranges.policy.bytes() == bytes, "{bytes} bytes are kept");
    }
    assert!(ranges.asked.is_empty() && ranges.kept.len() > 5);
}

#[test]
fn an_answer_that_says_more_or_less_than_the_bytes_is_not_kept() {
    assert!(is_range(&answer(0)));
    for (state, is_read) in [(1, true), (0, false), (1, false)] {
        let response = Response::ContentBytes(contents::Bytes { state, is_read });
        assert!(!is_range(&Answer { response, ..answer(0) }), "{state} {is_read}");
    }
}
