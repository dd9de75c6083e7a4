use std::collections::BTreeMap;

use bytes::Bytes;
use model::checksum::crc32c;
use model::planted_bug::{PlantedBug as _, assert_noticed};
use model::{ClassId, ContentId, Error, ErrorKind, NodeId, Oid, PageId};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// A range of 1,000 bytes of a generation of a content.
fn range(generation: u64, offset: u64) -> Range {
    let page = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };
    let expected = Some((ContentId(7), generation));
    Range { cluster: 1, read: ReadContent { oid: Oid::new(ClassId::NONE, page, 0), offset, length: 1_000, expected } }
}

fn answer(content: u8) -> Answer {
    let response = Response::ContentBytes(contents::Bytes { state: 0, is_read: true });
    let raw = Bytes::from(vec![content; 1_000]);
    Answer { response, checksum: Some(crc32c(&raw)), raw }
}

/// Looks a range up that is kept.
fn look_up_kept(ranges: &mut Ranges<u32>, range: Range) -> Option<Bytes> {
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
    assert_eq!(ranges.handle_answer(range(0, 0), Some(&answer(1))), [2, 3]);
    assert_eq!(look_up_kept(&mut ranges, range(0, 0)).unwrap(), answer(1).raw);
    assert_eq!(ranges.counts, ContentCounts { reads: 4, kept: 3, kept_bytes: 3_000 });
}

#[test]
fn after_an_answer_that_is_no_range_those_that_wait_ask_themselves() {
    let mut ranges = Ranges::new(1 << 20);
    assert!(matches!(ranges.look_up(range(0, 0), 1), Step::Ask(1)));
    assert!(matches!(ranges.look_up(range(0, 0), 2), Step::Wait));
    assert_eq!(ranges.handle_answer(range(0, 0), None), [2]);
    assert!(matches!(ranges.look_up(range(0, 0), 3), Step::Ask(3)), "nothing is kept");
    assert_eq!(ranges.counts.kept, 0);
}

#[test]
fn states_and_places_of_a_content_are_different_ranges() {
    let mut ranges = Ranges::new(1 << 20);
    let first = range(0, 0);
    let shorter = Range { read: ReadContent { length: 999, ..first.read }, ..first };
    let all = [first, range(1, 0), range(0, 1_000), shorter, Range { cluster: 2, ..first }];
    for (number, range) in (0..).zip(all) {
        assert!(matches!(ranges.look_up(range, 0), Step::Ask(_)), "{range:?}");
        ranges.handle_answer(range, Some(&answer(number)));
    }
    for (number, range) in (0..).zip(all) {
        assert_eq!(look_up_kept(&mut ranges, range).unwrap()[0], number);
    }
}

#[test]
fn memory_is_bounded() {
    let mut ranges = Ranges::new(10_000);
    for number in 0..1_000 {
        assert!(matches!(ranges.look_up(range(0, number), 0), Step::Ask(_)));
        ranges.handle_answer(range(0, number), Some(&answer(0)));
        let bytes: usize = ranges.kept.values().map(|answer| answer.raw.len() + OVERHEAD_BYTES).sum();
        assert!(bytes <= 10_000 && ranges.policy.bytes() == bytes, "{bytes} bytes are kept");
    }
    assert!(ranges.asked.is_empty() && ranges.kept.len() > 5);
}

/// An answer that is no range of the state that was asked for.
fn failure(random: &mut SmallRng) -> Result<Answer> {
    let response = |state, is_read| Response::ContentBytes(contents::Bytes { state, is_read });
    match random.random_range(0..4) {
        0 => Err(Error::new(ErrorKind::Unavailable, "the connection has ended")),
        1 => Ok(Answer { response: response(1, true), ..answer(0) }),
        2 => Ok(Answer { response: response(0, false), ..answer(0) }),
        _ => Ok(Answer { checksum: Some(0), ..answer(0) }),
    }
}

/// Readers, and a server above that answers in any order, or fails.
struct World {
    random: SmallRng,
    ranges: Ranges<u32>,
    /// What the server above was asked for.
    asked: Vec<Range>,
    /// The ranges for which readers wait.
    waiting: BTreeMap<u32, Range>,
    last_reader: u32,
}

impl World {
    /// The bytes of a range.
    fn content(Range { cluster, read }: Range) -> u8 {
        let generation = read.expected.map_or(0, |(_, generation)| generation);
        cluster as u8 * 100 + (generation * 10 + read.offset / 1_000) as u8
    }

    fn finish(&mut self, reader: u32, answer: &Answer) -> std::result::Result<(), String> {
        let range = self.waiting.remove(&reader).ok_or_else(|| format!("{reader} is answered twice"))?;
        let is_right = answer.raw[..] == [Self::content(range); 1_000] && range_of(&Ok(answer.clone())).is_some();
        if is_right { Ok(()) } else { Err(format!("{reader} gets something else than {range:?}")) }
    }

    fn read(&mut self) -> std::result::Result<(), String> {
        self.last_reader += 1;
        let range = range(self.random.random_range(0..3), self.random.random_range(0..3) * 1_000);
        let range = Range { cluster: self.random.random_range(0..2), ..range };
        self.waiting.insert(self.last_reader, range);
        match self.ranges.look_up(range, self.last_reader) {
            Step::Reply(reader, answer) => self.finish(reader, &answer),
            Step::Ask(_) if self.asked.contains(&range) => Err(format!("{range:?} is asked for twice")),
            Step::Ask(_) => {
                self.asked.push(range);
                Ok(())
            }
            Step::Wait => Ok(()),
        }
    }

    fn answer(&mut self) -> std::result::Result<(), String> {
        if self.asked.is_empty() {
            return Ok(());
        }
        let range = self.asked.swap_remove(self.random.random_range(0..self.asked.len()));
        let answered =
            if self.random.random_ratio(1, 3) { failure(&mut self.random) } else { Ok(answer(Self::content(range))) };
        // The one that was asked for first.
        let first = self.waiting.iter().find(|(_, waits)| **waits == range).map(|(reader, _)| *reader);
        self.waiting.remove(&first.ok_or("an answer without a reader")?);
        let kept = range_of(&answered);
        for reader in self.ranges.handle_answer(range, kept.as_ref()) {
            match &kept {
                Some(answer) => self.finish(reader, answer)?,
                // It asks in its own name.
                None => drop(self.waiting.remove(&reader)),
            }
        }
        match self.ranges.policy.bytes() {
            0..=5_000 => Ok(()),
            bytes => Err(format!("{bytes} bytes are kept")),
        }
    }

    fn run(seed: u64) -> std::result::Result<(), String> {
        let (random, ranges) = (SmallRng::seed_from_u64(seed), Ranges::new(5_000));
        let mut world = Self { random, ranges, asked: Vec::new(), waiting: BTreeMap::new(), last_reader: 0 };
        for _ in 0..200 {
            if world.random.random() { world.read()? } else { world.answer()? }
        }
        while !world.asked.is_empty() {
            world.answer()?;
        }
        let waiting = world.waiting.len();
        if waiting == 0 { Ok(()) } else { Err(format!("{waiting} readers wait for ever")) }
    }
}

#[test]
fn each_reader_gets_the_range_that_it_asked_for() {
    assert_noticed(ContentBug::ALL, || {
        for seed in 0..200 {
            World::run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    });
}
