//! Whether rows can be read without waiting for the disk.
//!
//! A page of the map that is not in the system's cache stops the thread that reads it until the disk has delivered it. So a thread
//! that must not wait first walks from the root to the rows with `preadv2(RWF_NOWAIT)`, which fails instead. Pages that a read did
//! not find are on their way from then on.
//!
//! A page that is not in memory must be checked again when it is read: the disk may deliver other bytes than those that were checked. The
//! system reads its neighbours ahead, so all checks are forgotten soon after.
//!
//! The result is a hint: the system may evict a page at any time. The walk visits few pages, and calls rows resident when it cannot
//! make sense of a page; the read that follows reports the damage.

use rustix::io::Errno;

use super::TreeState;
use super::file::TreeFile;
use super::page::{Node, PAGE, Value, pages_of};

/// Pages that a walk visits at most. Of rows on more pages it says whether these are in memory.
const MAX_VISITS: usize = 64;

/// Whether the rows `from <= key <= to` can probably be read without waiting.
pub(super) fn is_resident(file: &TreeFile, state: &TreeState, from: &[u8], to: &[u8]) -> bool {
    let Some((root, level)) = state.root else { return true };
    let (mut pages, mut values) = (vec![(root.page, level)], Vec::new());
    let mut bytes = Box::new([0; PAGE]);
    for _ in 0..MAX_VISITS {
        if let Some((page, level)) = pages.pop() {
            if !read(file, page, page, &mut bytes[..]) {
                return false;
            }
            let Ok(node) = Node::parse(&bytes, page, level) else { return true };
            if visit(&node, level, (from, to), &mut pages, &mut values).is_none() {
                return true;
            }
        } else if let Some((page, first)) = values.pop() {
            if !read(file, page, first, &mut bytes[..1]) {
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

/// Reads the beginning of a page of the run that begins at `first`, if it is in memory; else the run is to be checked again. Pages behind
/// the end of the file, and those of a file system that cannot tell, count as in memory.
fn read(file: &TreeFile, page: u64, first: u64, bytes: &mut [u8]) -> bool {
    let Some(offset) = page.checked_mul(PAGE as u64) else { return true };
    let wanted = bytes.len();
    match file.read_without_waiting(bytes, offset) {
        Err(Errno::AGAIN) => {
            file.note_miss(first);
            false
        }
        Ok(read) if read == wanted => true,
        // Zeros are no page.
        Ok(_) | Err(_) => {
            bytes.fill(0);
            true
        }
    }
}
