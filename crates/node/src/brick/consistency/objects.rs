//! Objects against the heads of their pages, their contents, their extents and the indexes; extents against objects.

use bytes::Bytes;
use model::{ClassId, Object, Oid, PageId, Result};

use super::plant::{Bug, planted};
use super::{NodeIndexes, Problem, Reading};
use crate::brick::index_rows;
use crate::brick::node_driver::RESERVABLE;
use crate::brick::page_rows::{self as rows, Rows};

/// What is known of the page of the last row.
struct CurrentPage {
    page: PageId,
    has_head: bool,
    /// The lowest page number of its space that was never reserved.
    next_page: u64,
}

/// Checks a portion of the objects and heads of pages.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check_objects(reading: &mut Reading<'_>, from: Vec<u8>, to: &[u8]) -> Result<()> {
    let node = reading.node();
    let Some(indexes) = reading.accept(NodeIndexes::read(reading.state, node))? else { return Ok(()) };
    let limit = reading.accept(rows::read_count(reading.state, &rows::limit_key(node)))?.unwrap_or(u64::MAX);
    let mut current: Option<CurrentPage> = None;
    reading.each(&from, to, |reading, key, value| {
        let Some((page, slot)) = rows::parse_key(key) else {
            let what = format!("row {key:02x?} is neither the head of a page nor an object");
            reading.report(Problem::RowDamaged { node, what, is_unreadable_part: false });
            return Ok(());
        };
        if current.as_ref().is_none_or(|known| known.page != page) {
            let has_head = slot.is_none() || reading.has_row(&rows::head_key(page))?.unwrap_or(true);
            let next_page = rows::read_count(reading.state, &rows::free_key(node, page.space));
            let next_page = reading.accept(next_page)?.unwrap_or(u64::MAX);
            current = Some(CurrentPage { page, has_head, next_page });
        }
        let Some(slot) = slot else { return check_head(reading, page, value, limit) };
        let Some(known) = &current else { return Ok(()) };
        let Some(object) = read_object(reading, page, slot, value) else { return Ok(()) };
        let oid = Oid::new(object.class, page, slot);
        if !known.has_head {
            reading.report(Problem::HeadMissing { oid });
        }
        if page.number < RESERVABLE && page.number >= known.next_page {
            reading.report(Problem::PageNotReserved { oid, next: known.next_page });
        }
        check_content(reading, oid, &object)?;
        if oid.class() != ClassId::NONE {
            let has_extent = reading.has_row(&rows::extent_key(oid.class(), page, slot))?.unwrap_or(true);
            if !planted(Bug::SkipsExtents) && !has_extent {
                reading.report(Problem::ExtentMissing { oid });
            }
            check_index_entries(reading, &indexes, oid, &object)?;
        }
        Ok(())
    })
}

fn check_head(reading: &mut Reading<'_>, page: PageId, value: &[u8], limit: u64) -> Result<()> {
    let Some(head) = reading.accept(rows::Head::decode(page, value))? else { return Ok(()) };
    if head.version.position > limit {
        reading.report(Problem::PositionNotReserved { page, position: head.version.position, limit });
    }
    Ok(())
}

/// The object of a row, if it is one.
fn read_object(reading: &mut Reading<'_>, page: PageId, slot: u16, value: &Bytes) -> Option<Object> {
    match rows::verify_object(page, slot, value) {
        Ok(object) => Some(object),
        Err((class, error)) => {
            let (oid, what) = (Oid::new(class, page, slot), error.message().to_owned());
            reading.report(Problem::ObjectDamaged { oid, what });
            None
        }
    }
}

fn check_content(reading: &mut Reading<'_>, oid: Oid, object: &Object) -> Result<()> {
    let Some(content) = object.content() else { return Ok(()) };
    let id = content.id;
    if id.node() != oid.page().node || id.space() != oid.space() {
        reading.report(Problem::ContentForeign { oid, content: id });
    }
    match reading.accept(reading.state.content_size(id))? {
        None => {}
        Some(None) => reading.report(Problem::ContentMissing { oid, content: id }),
        Some(Some(found)) if found != content.size && !planted(Bug::TrustsSizes) => {
            reading.report(Problem::ContentSize { oid, content: id, size: content.size, found });
        }
        Some(Some(_)) => {}
    }
    Ok(())
}

fn check_index_entries(reading: &mut Reading<'_>, indexes: &NodeIndexes, oid: Oid, object: &Object) -> Result<()> {
    for (index, key) in indexes.complete_entries(oid.space(), object) {
        let row = index_rows::entry_key(index, &key, oid.page(), oid.slot());
        if reading.has_row(&row)? == Some(false) {
            reading.report(Problem::IndexEntryMissing { oid, index });
        }
    }
    Ok(())
}

/// Checks a portion of the extents.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check_extents(reading: &mut Reading<'_>, from: Vec<u8>, to: &[u8]) -> Result<()> {
    let node = reading.node();
    reading.each(&from, to, |reading, key, _| {
        let Some(oid) = reading.accept(rows::parse_extent(node, key))? else { return Ok(()) };
        // A damaged object is reported where objects are walked.
        let class = reading.state.get_with(&rows::object_key(oid.page(), oid.slot()), rows::class_in_row);
        let Some(class) = reading.accept(class)? else { return Ok(()) };
        if class.is_none_or(|class| class.is_some_and(|class| class != oid.class())) {
            reading.report(Problem::ExtentStray { oid });
        }
        Ok(())
    })
}
