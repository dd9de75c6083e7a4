//! The meta pages: pages 0 and 16 of the file describe the two newest states of the tree.
//!
//! ```text
//! meta   +------------+--------+---------+---------+---------+--------+-------+---------+-------------+
//!        | "mortree1" | format |  store  |  batch  |  pages  |  root  |  crc  |  level  | index count |
//!        |     8      |   4    |   16    |    8    |    8    |   8    |   4   |    4    |      4      |
//!        +------------+--------+---------+---------+---------+--------+-------+---------+-------------+
//!        |  system rows: length + 1, value  |   index   |   crc   |
//!        |            4 × (1 + 15)          |  12 each  |    4    |
//!        +----------------------------------+-----------+---------+
//! ```
//!
//! Page 0 describes batches with an even number, page 16 the others. The page of a batch is written when all other pages of the batch are
//! durable, so the one of the batch before stays valid until then. `root` is 0 for a tree without rows. `index` lists the pages that list
//! the pages with the map of used pages. The system rows are in the tree, too; from here a look-up finds them whichever page of the tree
//! is damaged, so that the store can be opened.

use super::page::{PAGE, PageRef};
use super::{FORMAT, TreeId};
use crate::checksum::crc32c;
use crate::rows::key::{SYSTEM_ROWS, SYSTEM_VALUE};

const MAGIC: &[u8; 8] = b"mortree1";
const SYSTEM_AT: usize = 64;
const SYSTEM_SLOT: usize = 1 + SYSTEM_VALUE;
const INDEX_AT: usize = SYSTEM_AT + SYSTEM_ROWS.len() * SYSTEM_SLOT;
const CRC_AT: usize = PAGE - 4;
/// Maximum number of index pages.
pub(super) const MAX_INDEX: usize = (CRC_AT - INDEX_AT) / 12;

/// A state of the tree, as its meta page has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeState {
    pub(super) batch: u64,
    /// Pages in the file.
    pub(super) pages: u64,
    /// The root and its level; `None` for a tree without rows.
    pub(super) root: Option<(PageRef, u8)>,
    /// The system rows, which are also in the tree.
    pub(super) system: SystemRows,
    /// The pages that list the pages of the map of used pages.
    pub(super) index: Vec<PageRef>,
}

/// The values of the [`SYSTEM_ROWS`].
pub(super) type SystemRows = [Option<Box<[u8]>>; SYSTEM_ROWS.len()];

/// What a meta page contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundMeta {
    Valid(TreeState),
    OtherStore,
    OtherFormat(u32),
    Invalid,
}

pub(super) fn put_ref(out: &mut [u8], at: PageRef) {
    out[..8].copy_from_slice(&at.page.to_le_bytes());
    out[8..12].copy_from_slice(&at.crc.to_le_bytes());
}

pub(super) fn get_ref(bytes: &[u8; 12]) -> PageRef {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
    PageRef { page: u64::from_le_bytes([a, b, c, d, e, f, g, h]), crc: u32::from_le_bytes(rest) }
}

impl TreeState {
    pub(super) fn encode(&self, store: &TreeId) -> Box<[u8; PAGE]> {
        assert!(self.index.len() <= MAX_INDEX, "the file has at most as many pages as the map covers");
        let mut out = Box::new([0; PAGE]);
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..28].copy_from_slice(store);
        out[28..36].copy_from_slice(&self.batch.to_le_bytes());
        out[36..44].copy_from_slice(&self.pages.to_le_bytes());
        if let Some((root, level)) = self.root {
            put_ref(&mut out[44..56], root);
            out[56..60].copy_from_slice(&u32::from(level).to_le_bytes());
        }
        out[60..64].copy_from_slice(&(self.index.len() as u32).to_le_bytes());
        for (slot, row) in out[SYSTEM_AT..INDEX_AT].chunks_exact_mut(SYSTEM_SLOT).zip(&self.system) {
            if let Some(row) = row {
                slot[0] = row.len() as u8 + 1;
                slot[1..=row.len()].copy_from_slice(row);
            }
        }
        for (slot, index) in out[INDEX_AT..CRC_AT].chunks_exact_mut(12).zip(&self.index) {
            put_ref(slot, *index);
        }
        let crc = crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; PAGE], store: &TreeId) -> FoundMeta {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if &bytes[..8] != MAGIC || crc32c(&bytes[..CRC_AT]) != word(CRC_AT) {
            return FoundMeta::Invalid;
        }
        if word(8) != FORMAT {
            return FoundMeta::OtherFormat(word(8));
        }
        if bytes[12..28] != *store {
            return FoundMeta::OtherStore;
        }
        let (root, level, count) = (PageRef { page: long(44), crc: word(52) }, word(56), word(60) as usize);
        let (Ok(level), true) = (u8::try_from(level), count <= MAX_INDEX) else { return FoundMeta::Invalid };
        let slots = bytes[INDEX_AT..CRC_AT].as_chunks::<12>().0;
        FoundMeta::Valid(Self {
            batch: long(28),
            pages: long(36),
            root: (root.page != 0).then_some((root, level)),
            system: std::array::from_fn(|row| {
                let (len, value) = bytes[SYSTEM_AT + row * SYSTEM_SLOT..][..SYSTEM_SLOT].split_first()?;
                value.get(..usize::from(*len).checked_sub(1)?).map(Box::from)
            }),
            index: slots.iter().take(count).map(get_ref).collect(),
        })
    }
}
