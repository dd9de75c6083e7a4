//! The changed rows of a batch, and leaves with them.

use bytes::Bytes;

use super::page::{Entry, NewPage, NewValue, Node, PAGE, PageRef};
use crate::plant::{TreeBug, planted};
use crate::rows::key::Key;

/// A changed row.
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) value: ChangedValue,
}

pub(super) enum ChangedValue {
    Inline(Bytes),
    /// A value on pages of its own, which are written.
    Outside(PageRef, usize),
    /// The row is removed.
    Absent,
}

impl ChangedValue {
    #[inline]
    pub(super) fn as_new(&self) -> NewValue<'_> {
        match self {
            Self::Inline(bytes) => NewValue::Inline(bytes),
            Self::Outside(run, len) => NewValue::Outside(*run, *len),
            Self::Absent => NewValue::Absent,
        }
    }
}

/// Merges the rows of a leaf with changes. Values that are replaced or removed are added to `replaced`.
pub(super) fn merge<'a>(
    before: Vec<Entry<'a>>,
    changes: &'a [Change],
    keeps_absent: bool,
    replaced: &mut Vec<NewValue<'a>>,
) -> Vec<Entry<'a>> {
    let mut out = Vec::with_capacity(before.len() + changes.len());
    let mut before = before.into_iter().peekable();
    for change in changes {
        while let Some(entry) = before.next_if(|entry| *entry.key < *change.key) {
            out.push(entry);
        }
        if let Some(old) = before.next_if(|entry| *entry.key == *change.key) {
            replaced.push(old.value);
        }
        if keeps_absent || !matches!(change.value, ChangedValue::Absent) {
            out.push(Entry { key: (*change.key).into(), value: change.value.as_new() });
        }
    }
    out.extend(before);
    out
}

/// Limits for a leaf that is written without its neighbours.
#[derive(Clone, Copy)]
pub(super) struct LeafSize {
    pub(super) least: usize,
    /// Bytes of entries that a page takes.
    pub(super) room: usize,
}

/// Writes a complete leaf with changes as one page, as [`merge`] and [`encode`](super::page::encode) would, but without a list of its
/// rows. Returns the values that are replaced or removed; `None` if one of the rows before or the new page has a size that is not
/// allowed, or if the page is not valid.
pub(super) fn merge_page<'a>(
    node: &Node<'a>,
    changes: &[Change],
    size: LeafSize,
    out: &mut [u8; PAGE],
) -> Option<Vec<NewValue<'a>>> {
    let mut page = NewPage::begin(out, 0, false);
    let (mut replaced, mut before) = (Vec::new(), 0);
    let mut last: Option<&[u8]> = None;
    let mut changes = changes.iter().peekable();
    for index in 0..node.count() {
        let (key, value, row) = node.row_with_bytes(index).ok()?;
        let value = NewValue::from(value);
        let row_size = value.size_with(key);
        before += row_size;
        let fits = row_size <= size.room / 2 && before <= size.room;
        if last.is_some_and(|last| last >= key) || !(fits || planted(TreeBug::EntrySizeNotChecked)) {
            return None;
        }
        last = Some(key);
        let mut is_replaced = false;
        while let Some(change) = changes.next_if(|change| *change.key <= *key) {
            is_replaced = *change.key == *key;
            put(&mut page, change, size.room)?;
        }
        if is_replaced {
            if matches!(value, NewValue::Outside(..)) {
                replaced.push(value);
            }
        } else if page.size() + row_size <= size.room {
            page.copy(row);
        } else {
            return None;
        }
    }
    for change in changes {
        put(&mut page, change, size.room)?;
    }
    let is_large_enough = page.size() >= size.least;
    page.end();
    is_large_enough.then_some(replaced)
}

/// Adds a changed row to a page that has room for it.
#[inline]
fn put(page: &mut NewPage<'_>, change: &Change, room: usize) -> Option<()> {
    let value = change.value.as_new();
    if !matches!(value, NewValue::Absent) {
        if page.size() + value.size_with(&change.key) > room {
            return None;
        }
        page.push(&change.key, value);
    }
    Some(())
}
