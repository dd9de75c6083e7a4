//! Contents against the objects that name them.
//!
//! The contents of a logical node are taken in batches of bounded size; for each batch all objects are walked, and those contents are left
//! over that none names (rule 2 of [`super`]). Their bytes are read, too, if that is wanted.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use model::{ContentId, Oid, Result};
use store::Snapshot;

use super::plant::{Bug, planted};
use super::{NodeCheck, Place, Portion, Problem, Reading, behind, is_damage, is_end};
use crate::brick::page_rows::{self as rows, Rows};

/// Contents that are compared with all objects at once: 16 bytes each.
const BATCH: usize = if cfg!(test) { 4 } else { 1 << 20 };
/// Bytes of contents that are read in one step.
const READ_BYTES: u64 = 1 << 20;
/// Contents that are listed in one step.
const LISTED: usize = 4096;

/// A batch of contents while all objects are walked.
pub(super) struct ContentWalk {
    batch: Vec<ContentId>,
    /// The object that has each content, if one was seen.
    named: Vec<Option<Oid>>,
    /// Whether all objects so far could be read: another one may have any of the contents.
    is_known: bool,
    /// The next object.
    from: Vec<u8>,
    /// Where the check continues behind the batch.
    next: Option<Place>,
}

impl ContentWalk {
    /// Takes the batch that begins at a place.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(super) fn begin(check: &NodeCheck<'_>, place: &Place) -> Result<Self> {
        let first = ContentId::range_of(check.node).0;
        let from = place.from.as_slice().try_into().map_or(first, |id| ContentId(u128::from_be_bytes(id)).max(first));
        let (batch, next) = list_batch(&check.store.snapshot()?, check, from)?;
        let next = next.map(|next| Place { table: place.table, from: next.0.to_be_bytes().to_vec() });
        Ok(Self { next, ..Self::of(check, batch) })
    }

    /// The walk for some contents, which are sorted.
    pub(super) fn of(check: &NodeCheck<'_>, batch: Vec<ContentId>) -> Self {
        let named = vec![None; batch.len()];
        Self { batch, named, is_known: true, from: rows::table_range(b'P', check.node).0.to_vec(), next: None }
    }

    /// Compares the batch with the next objects. Behind the last one, [`Portion::next`] is not `place`.
    ///
    /// # Errors
    /// If rows cannot be read for another reason than damage.
    pub(super) fn step(&mut self, check: &NodeCheck<'_>, place: &Place) -> Result<Portion> {
        if self.batch.is_empty() {
            return Ok(Portion { next: self.next.take(), ..Portion::default() });
        }
        let state = check.store.snapshot()?;
        let mut reading = Reading { check, state: &state, portion: Portion::default() };
        if self.walk(&mut reading)? {
            reading.portion.next = Some(place.clone());
            return Ok(reading.portion);
        }
        for (content, _) in self.batch.iter().zip(&self.named).filter(|(_, named)| named.is_none() && self.is_known) {
            if let Some(size) = still_unnamed(&state, *content)? {
                reading.report(Problem::ContentUnnamed { content: *content, size });
            }
        }
        reading.portion.next = self.next.take();
        Ok(reading.portion)
    }

    /// Looks at the next objects. Says whether there are more.
    fn walk(&mut self, reading: &mut Reading<'_>) -> Result<bool> {
        let (_, to) = rows::table_range(b'P', reading.node());
        let rows = reading.rows(&self.from, &to)?;
        // What cannot be read is reported where objects are checked.
        self.is_known &= reading.portion.problems.is_empty();
        reading.portion.problems.clear();
        for (key, value) in &rows {
            let Some((page, Some(slot))) = rows::parse_key(key) else { continue };
            let Ok(content) = rows::content_in_row(page, value) else {
                self.is_known = false;
                continue;
            };
            let Some((class, content)) = content else { continue };
            let Ok(at) = self.batch.binary_search(&content) else { continue };
            let oid = Oid::new(class, page, slot);
            match self.named[at] {
                Some(other) => reading.report(Problem::ContentShared { oid, content, other }),
                None => self.named[at] = Some(oid),
            }
        }
        let Some((last, _)) = rows.last().filter(|_| !is_end(&rows)) else { return Ok(false) };
        self.from = behind(last);
        Ok(true)
    }

    /// The object that has a content, if it was seen.
    pub(super) fn owner(&self, content: ContentId) -> Option<Oid> {
        self.named[self.batch.binary_search(&content).ok()?]
    }
}

/// Reads the next bytes of the contents of the logical node, which compares them with their checksums. A place is that of a content and an
/// offset.
///
/// # Errors
/// If they cannot be read for another reason than damage.
pub(super) fn read_bytes(check: &NodeCheck<'_>, place: &Place) -> Result<Portion> {
    let (first, end) = ContentId::range_of(check.node);
    let (from, offset) = match place.from.split_first_chunk::<16>() {
        Some((id, offset)) => (ContentId(u128::from_be_bytes(*id)), offset.try_into().map_or(0, u64::from_be_bytes)),
        None => (first, 0),
    };
    let state = check.store.snapshot()?;
    let mut reading = Reading { check, state: &state, portion: Portion::default() };
    let Some(Some(id)) = reading.accept(state.contents(from.max(first), end, 1))?.map(|ids| ids.first().copied())
    else {
        return Ok(reading.portion);
    };
    let offset = if id == from { offset } else { 0 };
    let len = match state.content_size(id) {
        Err(error) if is_damage(&error) => 0,
        size => size?.unwrap_or(0).saturating_sub(offset).min(READ_BYTES),
    };
    reading.portion.bytes = len;
    let is_damaged = match state.read_content(id, offset, len) {
        Err(error) if is_damage(&error) => {
            reading.report(Problem::ContentDamaged { content: id, what: error.message().to_owned() });
            true
        }
        read => read.map(|_| false)?,
    };
    // The rest of a damaged content is not read.
    let (next, offset) = if len < READ_BYTES || is_damaged { (id.0 + 1, 0) } else { (id.0, offset + len) };
    let from = [&next.to_be_bytes()[..], &offset.to_be_bytes()].concat();
    reading.portion.next = Some(Place { table: place.table, from });
    Ok(reading.portion)
}

/// The size of a content that exists and is not staged.
fn still_unnamed(state: &Snapshot, content: ContentId) -> Result<Option<u64>> {
    if state.get(&rows::staged_key(content))?.is_some() && !planted(Bug::ForgetsUploads) {
        return Ok(None);
    }
    match state.content_size(content) {
        Err(error) if is_damage(&error) => Ok(None),
        size => size,
    }
}

/// Contents that are not staged, from one on, and where the next batch begins.
fn list_batch(state: &Snapshot, check: &NodeCheck<'_>, from: ContentId) -> Result<(Vec<ContentId>, Option<ContentId>)> {
    let (_, end) = ContentId::range_of(check.node);
    let (mut batch, mut from) = (Vec::new(), from);
    loop {
        let listed = state.contents(from, end, LISTED.min(BATCH))?;
        let Some(last) = listed.last() else { return Ok((batch, None)) };
        from = ContentId(last.0 + 1);
        let staged = staged_contents(state, check, listed[0], *last)?;
        batch.extend(listed.into_iter().filter(|id| !staged.contains(id)));
        if batch.len() >= BATCH {
            return Ok((batch, Some(from)));
        }
    }
}

/// The staged contents in a range, both ends included.
fn staged_contents(
    state: &Snapshot,
    check: &NodeCheck<'_>,
    first: ContentId,
    last: ContentId,
) -> Result<BTreeSet<ContentId>> {
    let mut staged = BTreeSet::new();
    if planted(Bug::ForgetsUploads) {
        return Ok(staged);
    }
    let (_, end) = rows::staged_range(check.node);
    let to = behind(&rows::staged_key(last));
    state.each(&rows::staged_key(first), end.as_slice().min(&to), |key, row| {
        if let Ok((id, _)) = rows::parse_staged(key, row) {
            staged.insert(id);
        }
        ControlFlow::Continue(())
    })?;
    Ok(staged)
}
