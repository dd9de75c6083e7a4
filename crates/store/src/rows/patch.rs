//! A partly written chunk that has not been merged with what lies beneath it.
//!
//! Small writes into large blobs are the workload that an object store on a plain key-value engine collapses under:
//! each rewrites the whole value. Here a write adds a segment to the chunk's patch; the installer merges once.

use bytes::{Bytes, BytesMut};

use crate::rows::row::{CHUNK, Extent};
use crate::rows::slab::Slabs;

/// What a patch lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Nothing: zeros.
    Zeros,
    /// The same row in the next older layer, if it is there.
    Older,
    /// An extent that was written since.
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

/// A chunk as the base, cut at `base_len`, with the segments laid over it; for an object's first chunk also its new head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// The encoded head of the object; empty for further chunks.
    pub(crate) head: Bytes,
    pub(crate) base: Base,
    /// How many bytes of the base count.
    pub(crate) base_len: usize,
    /// Ascending, apart from each other.
    pub(crate) segments: Vec<Segment>,
    /// Bytes that this patch does not share with the one it was made from.
    added_bytes: usize,
}

/// Segments that touch are joined at once as long as they have no more bytes than this together.
const MAX_JOINED_BYTES: usize = 4 << 10;
/// More segments than this are joined where they touch.
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

    /// A patch to go on from this one, which stays as it is; the two share their bytes.
    pub(crate) fn fork(&self) -> Self {
        // A write adds up to two segments; growing by them must not copy all once more.
        let mut segments = Vec::with_capacity(self.segments.len() + 2);
        segments.extend_from_slice(&self.segments);
        Self { head: self.head.clone(), base: self.base.clone(), base_len: self.base_len, segments, added_bytes: 0 }
    }

    /// A patch on bytes that are at hand.
    pub(crate) fn from_bytes(bytes: Bytes) -> Self {
        let mut patch = Self::with_base(Base::Zeros);
        patch.write(0, bytes, &mut Slabs::default());
        patch
    }

    /// Lays `bytes` over `offset`; what it is joined to is copied into `slabs`.
    pub(crate) fn write(&mut self, offset: usize, bytes: Bytes, slabs: &mut Slabs) {
        assert!(offset + bytes.len() <= CHUNK, "a write goes past its chunk");
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

    /// Makes a range zeros.
    pub(crate) fn zero(&mut self, from: usize, to: usize, slabs: &mut Slabs) {
        self.write(from, Bytes::from_static(&ZEROS[..to - from]), slabs);
    }

    /// Cuts the chunk at `len`; what is behind reads as zeros.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.base_len = self.base_len.min(len);
        self.segments.retain_mut(|s| {
            if s.end() > len && s.offset < len {
                s.bytes.truncate(len - s.offset);
            }
            s.offset < len
        });
    }

    /// Joins the segment at `place` with those before it that it touches and that are no longer than it, and so on, as
    /// long as the result is small. So a chunk written in small steps, one behind the other, has few segments, and its
    /// bytes are copied a few times only.
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

    /// Joins segments that touch, so that a chunk written in tiny steps stays short.
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

    /// Whether what lies beneath matters for the bytes `from..to`.
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

    /// Lays the segments over `out`, which holds the bytes from `from` on.
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

    /// The bytes `from..to`, if one segment has them all.
    pub(crate) fn slice(&self, from: usize, to: usize) -> Option<Bytes> {
        let at = self.segments.partition_point(|s| s.end() <= from);
        let segment = self.segments.get(at)?;
        (segment.offset <= from && to <= segment.end())
            .then(|| segment.bytes.slice(from - segment.offset..to - segment.offset))
    }

    /// Bytes that the patch holds in memory.
    pub(crate) fn size(&self) -> usize {
        self.segments.iter().map(|s| s.bytes.len()).sum::<usize>() + self.overhead()
    }

    /// Bytes that it takes beside the patch that it was made from.
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

    /// What a patch must do, on plain bytes.
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
            let (mut patch, mut slabs) = (Patch::with_base(Base::Older), Slabs::shared());
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
    fn a_chunk_written_byte_by_byte_stays_short() {
        let mut patch = Patch::with_base(Base::Zeros);
        for at in 0..CHUNK {
            patch.write(at, Bytes::from_static(b"x"), &mut Slabs::default());
        }
        assert!(patch.segments.len() <= MANY_SEGMENTS);
        assert_eq!(patch.segments[0], Segment { offset: 0, bytes: vec![b'x'; patch.segments[0].bytes.len()].into() });
    }
}
