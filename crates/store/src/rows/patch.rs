//! A partly written chunk that is not merged with its base yet.
//!
//! Plain key-value engines rewrite the whole value for each small write into a large content. Here a write adds a segment
//! to the patch of its chunk, and the installer merges the patch with its base once.

use bytes::{Bytes, BytesMut};

use crate::rows::row::{CHUNK, Extent};
use crate::rows::slab::Slabs;

/// The base of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Zeros.
    Zeros,
    /// The same row in the next older layer, if it exists.
    Older,
    /// An extent that replaced the row.
    Extent(Extent),
}

/// Bytes at an offset of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: usize,
    pub(crate) bytes: Bytes,
}

impl Segment {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// A base, cut at `base_len`, with segments over it. For the first chunk of a content also its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// The encoded head of the content; empty for further chunks.
    pub(crate) head: Bytes,
    pub(crate) base: Base,
    /// The number of bytes of the base that count.
    pub(crate) base_len: usize,
    /// In ascending order, without overlaps.
    pub(crate) segments: Vec<Segment>,
    /// Bytes that this patch does not share with the one from which it was made.
    added_bytes: usize,
}

/// Adjacent segments are joined at once up to this many bytes.
const MAX_JOINED_BYTES: usize = 4 << 10;
/// With more segments than this, all adjacent ones are joined.
const MANY_SEGMENTS: usize = 64;

static ZEROS: [u8; CHUNK] = [0; CHUNK];

impl Patch {
    /// A patch that changes nothing yet.
    pub(crate) fn with_base(base: Base) -> Self {
        let keep = match &base {
            Base::Zeros => 0,
            Base::Older => CHUNK,
            Base::Extent(extent) => extent.len as usize,
        };
        Self { head: Bytes::new(), base, base_len: keep, segments: Vec::new(), added_bytes: 0 }
    }

    /// A copy to change further. The two share their bytes.
    pub(crate) fn fork(&self) -> Self {
        // A write adds up to two segments; room for them avoids another copy.
        let mut segments = Vec::with_capacity(self.segments.len() + 2);
        segments.extend_from_slice(&self.segments);
        Self { head: self.head.clone(), base: self.base.clone(), base_len: self.base_len, segments, added_bytes: 0 }
    }

    /// A patch with these bytes as its only segment.
    pub(crate) fn from_bytes(bytes: Bytes) -> Self {
        let mut patch = Self::with_base(Base::Zeros);
        patch.write(0, bytes, &mut Slabs::default());
        patch
    }

    /// Writes `bytes` at `offset`. Joined segments are copied into `slabs`.
    pub(crate) fn write(&mut self, offset: usize, bytes: Bytes, slabs: &mut Slabs) {
        assert!(offset + bytes.len() <= CHUNK, "a write stays within its chunk");
        if bytes.is_empty() {
            return;
        }
        self.added_bytes += bytes.len();
        let end = offset + bytes.len();
        let first = self.segments.partition_point(|s| s.end() <= offset);
        let last = self.segments.partition_point(|s| s.offset < end);
        let mut pieces: smallvec::SmallVec<[Segment; 3]> = smallvec::SmallVec::new();
        if let Some(cut) = self.segments[first..last].first().filter(|s| s.offset < offset) {
            pieces.push(Segment { offset: cut.offset, bytes: cut.bytes.slice(..offset - cut.offset) });
        }
        pieces.push(Segment { offset, bytes });
        if let Some(cut) = self.segments[first..last].last().filter(|s| s.end() > end) {
            pieces.push(Segment { offset: end, bytes: cut.bytes.slice(end - cut.offset..) });
        }
        let place = first + usize::from(pieces.len() > 1 && pieces[0].offset < offset);
        self.segments.splice(first..last, pieces);
        self.join_small(place, slabs);
        if self.segments.len() > MANY_SEGMENTS {
            self.join();
        }
    }

    /// Writes zeros to a range.
    pub(crate) fn zero(&mut self, from: usize, to: usize, slabs: &mut Slabs) {
        self.write(from, Bytes::from_static(&ZEROS[..to - from]), slabs);
    }

    /// Cuts the chunk at `len`; bytes after it read as zeros.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.base_len = self.base_len.min(len);
        self.segments.retain_mut(|s| {
            if s.end() > len && s.offset < len {
                s.bytes.truncate(len - s.offset);
            }
            s.offset < len
        });
    }

    /// Joins the segment at `place` with adjacent earlier segments that are not longer, repeatedly, while the result is
    /// small. A chunk written in small sequential steps has few segments, and its bytes are copied only a few times.
    fn join_small(&mut self, place: usize, slabs: &mut Slabs) {
        let (mut first, mut len) = (place, self.segments[place].bytes.len());
        while let Some(before) = first.checked_sub(1).map(|before| &self.segments[before]) {
            let joined = before.bytes.len() + len;
            if before.bytes.len() > len || joined > MAX_JOINED_BYTES || before.end() != self.segments[first].offset {
                break;
            }
            (first, len) = (first - 1, joined);
        }
        if first < place {
            let mut bytes = slabs.row(len);
            self.segments[first..=place].iter().for_each(|segment| bytes.extend_from_slice(&segment.bytes));
            self.segments.drain(first + 1..=place);
            self.segments[first].bytes = bytes.freeze();
            self.added_bytes += len;
        }
    }

    /// Joins adjacent segments, which bounds the number of segments.
    fn join(&mut self) {
        let mut joined: Vec<Segment> = Vec::new();
        let mut run: Vec<Segment> = Vec::new();
        for segment in self.segments.drain(..) {
            if run.last().is_some_and(|last| last.end() != segment.offset) {
                joined.push(join_run(&mut run));
            }
            run.push(segment);
        }
        if !run.is_empty() {
            joined.push(join_run(&mut run));
        }
        self.added_bytes = joined.iter().map(|segment| segment.bytes.len()).sum();
        self.segments = joined;
    }

    /// Whether the bytes `from..to` depend on the base.
    pub(crate) fn needs_base(&self, from: usize, to: usize) -> bool {
        let mut at = from;
        for segment in &self.segments {
            if segment.offset > at {
                break;
            }
            at = at.max(segment.end());
        }
        at < to.min(self.base_len)
    }

    /// Copies the segments over `out`, which contains the bytes from `from` on.
    pub(crate) fn overlay(&self, from: usize, out: &mut [u8]) {
        let to = from + out.len();
        for segment in &self.segments {
            let (start, end) = (segment.offset.max(from), segment.end().min(to));
            if start < end {
                out[start - from..end - from]
                    .copy_from_slice(&segment.bytes[start - segment.offset..end - segment.offset]);
            }
        }
    }

    /// The bytes `from..to`, if one segment contains all of them.
    pub(crate) fn slice(&self, from: usize, to: usize) -> Option<Bytes> {
        let at = self.segments.partition_point(|s| s.end() <= from);
        let segment = self.segments.get(at)?;
        (segment.offset <= from && to <= segment.end())
            .then(|| segment.bytes.slice(from - segment.offset..to - segment.offset))
    }

    /// Bytes of memory of the patch.
    pub(crate) fn size(&self) -> usize {
        self.segments.iter().map(|s| s.bytes.len()).sum::<usize>() + self.overhead()
    }

    /// Bytes of memory beyond those of the patch from which it was made.
    pub(crate) fn added_bytes(&self) -> usize {
        self.added_bytes + self.overhead()
    }

    fn overhead(&self) -> usize {
        self.head.len() + self.segments.len() * size_of::<Segment>()
    }
}

fn join_run(run: &mut Vec<Segment>) -> Segment {
    if run.len() == 1 {
        return run.remove(0);
    }
    let offset = run[0].offset;
    let mut bytes = BytesMut::with_capacity(run.iter().map(|s| s.bytes.len()).sum());
    for segment in run.drain(..) {
        bytes.extend_from_slice(&segment.bytes);
    }
    Segment { offset, bytes: bytes.freeze() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The expected effect of a patch, on plain bytes.
    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, Vec<u8>),
        Zero(usize, usize),
        Truncate(usize),
    }

    const LEN: usize = 600;

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..LEN - 40, proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(at, b)| Step::Write(at, b)),
            1 => (0..LEN, 0..LEN).prop_map(|(a, b)| Step::Zero(a.min(b), a.max(b))),
            1 => (0..LEN).prop_map(Step::Truncate),
        ]
    }

    proptest! {
        #[test]
        fn a_patch_is_what_plain_bytes_would_be(
            base in proptest::collection::vec(1u8..255, 0..LEN),
            steps in proptest::collection::vec(step(), 0..200),
            from in 0..LEN, to in 0..LEN,
        ) {
            let mut plain = base.clone();
            plain.resize(LEN, 0);
            let (mut patch, mut slabs) = (Patch::with_base(Base::Older), Slabs::new_shared());
            for step in &steps {
                match step {
                    Step::Write(at, bytes) => {
                        plain[*at..at + bytes.len()].copy_from_slice(bytes);
                        patch.write(*at, bytes.clone().into(), &mut slabs);
                    }
                    Step::Zero(a, b) => {
                        plain[*a..*b].fill(0);
                        patch.zero(*a, *b, &mut slabs);
                    }
                    Step::Truncate(len) => {
                        plain[*len..].fill(0);
                        patch.truncate(*len);
                    }
                }
            }
            let (from, to) = (from.min(to), from.max(to));
            let mut out = vec![0; to - from];
            let kept = base.len().min(patch.base_len);
            if patch.needs_base(from, to) && from < kept {
                let n = kept.min(to) - from;
                out[..n].copy_from_slice(&base[from..from + n]);
            }
            patch.overlay(from, &mut out);
            prop_assert_eq!(&out[..], &plain[from..to]);
            if let Some(slice) = patch.slice(from, to) {
                prop_assert_eq!(&slice[..], &plain[from..to]);
            }
        }
    }

    #[test]
    fn many_adjacent_segments_are_joined_and_gaps_stay() {
        const SEGMENT: usize = 900;
        let (mut patch, mut plain) = (Patch::with_base(Base::Zeros), vec![0; CHUNK]);
        // From the end, so that no segment has one before it; one is left out.
        for number in (0..MANY_SEGMENTS + 2).rev().filter(|number| *number != 20) {
            let bytes = vec![number as u8 + 1; SEGMENT];
            plain[number * SEGMENT..(number + 1) * SEGMENT].copy_from_slice(&bytes);
            patch.write(number * SEGMENT, bytes.into(), &mut Slabs::default());
        }
        assert_eq!(patch.segments.len(), 2);
        let mut found = vec![0; CHUNK];
        patch.overlay(0, &mut found);
        assert!(found == plain);
    }

    #[test]
    fn a_chunk_written_byte_by_byte_stays_short() {
        let mut patch = Patch::with_base(Base::Zeros);
        for at in 0..CHUNK {
            patch.write(at, Bytes::from_static(b"x"), &mut Slabs::default());
        }
        assert!(patch.segments.len() <= MANY_SEGMENTS);
        assert_eq!(patch.segments[0], Segment { offset: 0, bytes: vec![b'x'; patch.segments[0].bytes.len()].into() });
    }
}
