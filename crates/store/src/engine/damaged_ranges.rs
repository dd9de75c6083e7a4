//! Ranges of keys whose rows cannot all be read, and a B-tree without these rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::{BatchAborted, Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow, RowVisitor};
use crate::rows::key::{self, Key};
use crate::rows::key_range::KeyRange;

/// Maximum number of ranges. Those behind the last one become a part of it.
pub(crate) const MAX_RANGES: usize = 100_000;

/// Ranges in order, without overlap.
#[derive(Debug, Default)]
pub(crate) struct DamagedRanges {
    ranges: Vec<KeyRange>,
}

impl DamagedRanges {
    /// Adds a range that ends at or behind all others, with those of them that are within it. Returns whether it is the last one for which
    /// there is room.
    pub(crate) fn add(&mut self, range: KeyRange) -> bool {
        while let Some(last) = self.ranges.last_mut()
            && last.to.as_ref().is_none_or(|to| *to > range.from)
        {
            if last.from < range.from {
                last.to = Some(range.from.clone());
                break;
            }
            self.ranges.pop();
        }
        let is_full = self.ranges.len() == MAX_RANGES;
        match self.ranges.last_mut().filter(|_| is_full) {
            Some(last) => last.to = range.to,
            None => self.ranges.push(range),
        }
        !is_full && self.ranges.len() == MAX_RANGES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &KeyRange> {
        self.ranges.iter()
    }

    /// Those of which a part is in `from <= key < to`.
    pub(crate) fn within<'a>(&'a self, from: &[u8], to: &'a [u8]) -> impl Iterator<Item = &'a KeyRange> {
        let is_empty = from >= to;
        self.ranges[self.first_behind(from)..].iter().take_while(move |range| !is_empty && range.from[..] < *to)
    }

    /// The place of the first range that does not end at or before a key.
    fn first_behind(&self, key: &[u8]) -> usize {
        self.ranges.partition_point(|range| range.to.as_ref().is_some_and(|to| to[..] <= *key))
    }

    fn has(&self, key: &[u8]) -> bool {
        self.ranges.get(self.first_behind(key)).is_some_and(|range| range.contains(key))
    }

    /// The parts of a range of keys that can be read.
    pub(crate) fn readable_parts(&self, from: &[u8], to: &[u8]) -> Vec<(Key, Key)> {
        let (mut parts, mut rest) = (Vec::new(), Some(from));
        for range in self.within(from, to) {
            let first = &range.from[..];
            parts.extend(rest.filter(|rest| *rest < first).map(|rest| (Key::from(rest), Key::from(first))));
            rest = range.to.as_deref();
        }
        parts.extend(rest.filter(|rest| *rest < to).map(|rest| (Key::from(rest), Key::from(to))));
        parts
    }
}

/// An engine in which the rows of some ranges are absent, but for those that were written to a damaged part. It is for reading only.
pub(crate) struct WithoutRows<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) ranges: &'a DamagedRanges,
    /// Rows of the ranges that can be read.
    pub(crate) kept: &'a BTreeMap<Key, Bytes>,
}

struct ReadWithoutRows<'a> {
    state: &'a dyn EngineRead,
    ranges: &'a DamagedRanges,
    kept: &'a BTreeMap<Key, Bytes>,
}

/// A part of a range: rows of the B-tree, or rows that were kept.
enum Part {
    Readable(Key, Key),
    Kept(Key, Key),
}

impl ReadWithoutRows<'_> {
    fn parts(&self, from: &[u8], to: &[u8]) -> Vec<Part> {
        let (mut parts, mut at) = (Vec::new(), Key::from(from));
        for (from, to) in self.ranges.readable_parts(from, to) {
            parts.push(Part::Kept(std::mem::replace(&mut at, to.clone()), from.clone()));
            parts.push(Part::Readable(from, to));
        }
        parts.push(Part::Kept(at, Key::from(to)));
        parts
    }

    /// Calls `show` with the rows of these parts, of each in reverse order if `back`.
    fn show(&self, parts: impl IntoIterator<Item = Part>, back: bool, show: &mut RowVisitor<'_>) -> EngineResult<()> {
        let mut shown = ControlFlow::Continue(());
        for part in parts {
            let mut show = |key: &[u8], value: &[u8]| {
                shown = show(key, value);
                shown
            };
            match part {
                Part::Readable(from, to) if back => self.state.range_back(&from, &to, &mut show)?,
                Part::Readable(from, to) => self.state.range(&from, &to, &mut show)?,
                Part::Kept(from, to) => {
                    // A map panics if a range begins behind its end.
                    let mut kept = self.kept.range::<Key, _>(&from..(&to).max(&from));
                    let mut next = || if back { kept.next_back() } else { kept.next() };
                    while let Some((key, value)) = next()
                        && show(key, value).is_continue()
                    {}
                }
            }
            if shown.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl EngineRead for ReadWithoutRows<'_> {
    fn get<'a>(&'a self, key: &[u8]) -> EngineResult<Option<&'a [u8]>> {
        // The tree has system rows in another place, too.
        match self.ranges.has(key) && key::system_row(key).is_none() {
            true => Ok(self.kept.get(key).map(|value| &value[..])),
            false => self.state.get(key),
        }
    }

    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        self.show(self.parts(from, to), false, show)
    }

    fn range_back(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        self.show(self.parts(from, to).into_iter().rev(), true, show)
    }
}

impl Engine for WithoutRows<'_> {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()> {
        self.engine.read(&mut |state| read(&ReadWithoutRows { state, ranges: self.ranges, kept: self.kept }))
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        Err(EngineError::Failed("it is for reading only".into()))
    }

    fn write(&self, _: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        Err(EngineError::Failed("it is for reading only".into()))
    }

    fn size(&self) -> u64 {
        self.engine.size()
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryEngine;
    use super::*;

    fn ranges(all: &[(&str, Option<&str>)]) -> DamagedRanges {
        let mut ranges = DamagedRanges::default();
        for (from, to) in all {
            ranges.add(KeyRange::new(from.as_bytes(), to.map(str::as_bytes)));
        }
        ranges
    }

    fn parts(ranges: &DamagedRanges, from: &str, to: &str) -> Vec<(String, String)> {
        let text = |key: &Key| String::from_utf8(key.to_vec()).unwrap();
        let parts = ranges.readable_parts(from.as_bytes(), to.as_bytes());
        parts.iter().map(|(from, to)| (text(from), text(to))).collect()
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
    }

    #[test]
    fn readable_parts_are_those_between_ranges() {
        let damaged = ranges(&[("b", Some("d")), ("d", Some("e")), ("m", None)]);
        assert_eq!(parts(&damaged, "a", "z"), pairs(&[("a", "b"), ("e", "m")]));
        assert_eq!(parts(&damaged, "c", "f"), pairs(&[("e", "f")]));
        assert_eq!(parts(&damaged, "b", "d"), pairs(&[]));
        assert_eq!(parts(&damaged, "e", "g"), pairs(&[("e", "g")]));
        assert_eq!(parts(&damaged, "n", "z"), pairs(&[]));
        assert_eq!(parts(&ranges(&[]), "n", "z"), pairs(&[("n", "z")]));
        assert_eq!(damaged.within(b"c", b"c").count() + damaged.within(b"d", b"c").count(), 0, "nothing has no part");
    }

    #[test]
    fn range_of_a_branch_takes_in_those_of_its_children() {
        let damaged = ranges(&[("a", Some("b")), ("c", Some("d")), ("f", Some("g")), ("c", Some("k"))]);
        assert_eq!(damaged.iter().count(), 2);
        assert_eq!(parts(&damaged, "a", "z"), pairs(&[("b", "c"), ("k", "z")]));
    }

    #[test]
    fn too_many_ranges_end_in_one() {
        let mut damaged = DamagedRanges::default();
        let key = |number: usize| number.to_be_bytes();
        for number in 0..MAX_RANGES + 5 {
            let is_last = damaged.add(KeyRange::new(&key(2 * number), Some(&key(2 * number + 1))));
            assert_eq!(is_last, number + 1 == MAX_RANGES);
        }
        assert_eq!(damaged.iter().count(), MAX_RANGES);
        let last = 2 * (MAX_RANGES + 4);
        assert!(damaged.has(&key(last)) && damaged.has(&key(last - 1)) && !damaged.has(&key(last + 1)));
    }

    #[test]
    fn rows_of_the_ranges_are_absent() {
        let engine = MemoryEngine::default();
        let rows = ["a", "b", "c", "d", "e"].map(|key| Ok((Key::from(key.as_bytes()), Some(Bytes::from(key)))));
        engine.write(&mut rows.into_iter()).unwrap();
        let damaged = ranges(&[("b", Some("c")), ("d", Some("db"))]);
        let kept = BTreeMap::from([(Key::from(&b"da"[..]), Bytes::from("da"))]);
        let without = WithoutRows { engine: &engine, ranges: &damaged, kept: &kept };
        let mut read = |engine: &dyn EngineRead| {
            let found = |key: &str| engine.get(key.as_bytes()).unwrap().is_some();
            assert_eq!(["a", "b", "c", "d", "da", "e"].map(found), [true, false, true, false, true, true]);
            let (mut seen, mut first) = (Vec::new(), 0);
            let mut show = |key: &[u8], _: &[u8]| {
                seen.push(key.to_vec());
                ControlFlow::Continue(())
            };
            engine.range(b"a", b"z", &mut show).unwrap();
            engine.range_back(b"a", b"z", &mut show).unwrap();
            let expected = ["a", "c", "da", "e", "e", "da", "c", "a"];
            assert_eq!(seen, expected.map(|key| key.as_bytes().to_vec()));
            let mut last = Vec::new();
            let mut until_kept = |key: &[u8], _: &[u8]| {
                last = key.to_vec();
                if key == b"da" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            engine.range(b"a", b"z", &mut until_kept).unwrap();
            assert_eq!(last, b"da", "a scan ends at a row that was kept");
            let mut count = |_: &[u8], _: &[u8]| {
                first += 1;
                ControlFlow::Break(())
            };
            engine.range(b"a", b"z", &mut count).unwrap();
            engine.range_back(b"a", b"z", &mut count).unwrap();
            assert_eq!(first, 2, "a scan ends when it is told to");
        };
        without.read(&mut read).unwrap();
    }
}
