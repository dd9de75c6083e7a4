//! Memory for the rows of one buffer.
//!
//! A buffer fills with many small rows and is emptied as a whole. So its rows are cut from large slabs instead of being
//! allocated one by one, and the slabs of an emptied buffer are reused.

use bytes::BytesMut;

/// Bytes in a slab.
const SLAB_BYTES: usize = 256 << 10;
/// Larger rows have their own memory.
const MAX_SHARED_ROW: usize = SLAB_BYTES / 16;

/// The slabs of a buffer.
///
/// A slab stays in memory as long as any row in it. Where rows may outlive their buffer for long, each row has its own
/// memory.
#[derive(Default)]
pub(crate) struct Slabs {
    /// Whether rows are cut from slabs at all.
    shared: bool,
    /// The rest of the current slab.
    current: BytesMut,
    /// The rests of earlier slabs.
    used: Vec<BytesMut>,
    free: Vec<BytesMut>,
}

impl Slabs {
    /// Slabs for a buffer whose rows are freed together.
    pub(crate) fn new_shared() -> Self {
        Self { shared: true, ..Self::default() }
    }

    /// An empty row with room for `len` bytes.
    pub(crate) fn row(&mut self, len: usize) -> BytesMut {
        if !self.shared || len > MAX_SHARED_ROW {
            return BytesMut::with_capacity(len);
        }
        if self.current.capacity() < len {
            let next = self.free.pop().unwrap_or_else(|| BytesMut::with_capacity(SLAB_BYTES));
            self.used.push(std::mem::replace(&mut self.current, next));
        }
        let behind = self.current.split_off(len);
        std::mem::replace(&mut self.current, behind)
    }

    /// Reuses the slabs that contain no rows any more.
    pub(crate) fn reclaim(&mut self) {
        let current = std::mem::take(&mut self.current);
        let used = self.used.drain(..).chain([current]);
        self.free.extend(used.filter_map(|mut slab| slab.try_reclaim(SLAB_BYTES).then_some(slab)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled_row(slabs: &mut Slabs, len: usize, with: u8) -> bytes::Bytes {
        let mut row = slabs.row(len);
        row.resize(len, with);
        row.freeze()
    }

    #[test]
    fn rows_do_not_overlap() {
        let mut slabs = Slabs::new_shared();
        let rows: Vec<_> = (0..5000u32).map(|i| filled_row(&mut slabs, (i % 300) as usize, i as u8)).collect();
        for (i, row) in (0u32..).zip(rows) {
            assert!(row.len() == (i % 300) as usize && row.iter().all(|byte| *byte == i as u8));
        }
    }

    #[test]
    fn slabs_are_reused_unless_a_row_is_still_read() {
        let mut slabs = Slabs::new_shared();
        let kept = filled_row(&mut slabs, 100, 7);
        (0..3 * SLAB_BYTES / MAX_SHARED_ROW).for_each(|_| drop(filled_row(&mut slabs, MAX_SHARED_ROW, 1)));
        slabs.reclaim();
        let free = slabs.free.len();
        assert!(free >= 2);
        (0..SLAB_BYTES / MAX_SHARED_ROW).for_each(|_| drop(filled_row(&mut slabs, MAX_SHARED_ROW, 2)));
        assert_eq!(slabs.free.len(), free - 1);
        assert!(kept.iter().all(|byte| *byte == 7));
        slabs.reclaim();
        assert_eq!(slabs.free.len(), free);
    }
}
