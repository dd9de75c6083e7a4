//! Whether rows can be read without waiting for the disk.
//!
//! A page of the map that is not in the system's cache stops the thread that reads it until the disk has delivered it. So a thread
//! that must not wait first walks from the root to the rows, and asks the system whether each page is in memory. Pages that are not are on
//! their way from then on.
//!
//! A page that is not in memory must be checked again when it is read: the disk may deliver other bytes than those that were checked. The
//! system reads its neighbours ahead, so all checks are forgotten soon after.
//!
//! The result is a hint: the system may evict a page at any time. The walk visits few pages, and calls rows resident when it cannot
//! make sense of a page; the read that follows reports the damage.

use super::TreeState;
use super::file::TreeFile;
use super::page::{Node, Value, pages_of};

/// Pages that a walk visits at most. Of rows on more pages it says whether these are in memory.
const MAX_VISITS: usize = 64;

/// Whether the rows `from <= key <= to` can probably be read without waiting.
pub(super) fn is_resident(file: &TreeFile, state: &TreeState, from: &[u8], to: &[u8]) -> bool {
    let Some((root, level)) = state.root else { return true };
    let (mut pages, mut values) = (vec![(root.page, level)], Vec::new());
    for _ in 0..MAX_VISITS {
        if let Some((page, level)) = pages.pop() {
            if page >= state.pages {
                return true;
            }
            if !is_in_memory(file, page, page) {
                return false;
            }
            let node = file.unchecked_bytes(page).and_then(|bytes| Node::parse(bytes, page, level).ok());
            if node.and_then(|node| visit(&node, level, (from, to), &mut pages, &mut values)).is_none() {
                return true;
            }
        } else if let Some((page, first)) = values.pop() {
            if page < state.pages && !is_in_memory(file, page, first) {
                return false;
            }
        } else {
            return true;
        }
    }
    true
}

/// Notes what is to be visited below a page, values with the first page of their run; `None` if the page is damaged.
fn visit(
    node: &Node<'_>,
    level: u8,
    (from, to): (&[u8], &[u8]),
    pages: &mut Vec<(u64, u8)>,
    values: &mut Vec<(u64, u64)>,
) -> Option<()> {
    if level > 0 {
        for index in node.child_of(from).ok()?..=node.child_of(to).ok()? {
            pages.push((node.child(index).ok()?.1.page, level - 1));
        }
        return Some(());
    }
    for index in node.find(from).ok()?.0..node.count() {
        let (key, value) = node.row(index).ok()?;
        if key > to {
            break;
        }
        if let Value::Outside(run, len) = value {
            // A value comes and goes as a whole, most often.
            let last = run.page.saturating_add(pages_of(len).saturating_sub(1));
            values.extend([(run.page, run.page), (last, run.page)]);
        }
    }
    Some(())
}

/// Whether a page of the run that begins at `first` is in memory; else the run is to be checked again. That is noted before the system reads
/// the page, so that no check of earlier bytes counts for later ones.
fn is_in_memory(file: &TreeFile, page: u64, first: u64) -> bool {
    let is_in_memory = file.is_in_memory(page);
    if !is_in_memory {
        file.note_miss(first);
        file.read_ahead(page);
    }
    is_in_memory
}
