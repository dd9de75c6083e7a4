//! Operations on the openings of bricks and of the catalogue. The rules are in [`opening`](crate::opening).

use std::collections::BTreeMap;

use super::{CatalogEditor, Edited, Result, edit, require};
use crate::catalog::catalog_draft::CatalogDraft;
use crate::catalog::entry::Path;
use crate::catalog::ident::BrickId;
use crate::catalog::member::{BrickOpening, BrickRecord, Counter, MAX_REFUSAL};
use crate::catalog::snapshot::PLACEMENT_EPOCH;
use crate::opening::plant::{Bug, planted};
use crate::opening::{Opening, OpeningHistory, OpeningRecord};

/// Numbers of openings that are skipped when the loss of changes of the catalogue is accepted.
const SKIPPED_OPENINGS: u64 = 1 << 20;

impl CatalogEditor {
    /// The openings of a brick, read from the store of the catalogue; `None` before the first.
    ///
    /// # Errors
    /// [`CatalogError::Missing`](crate::catalog::CatalogError::Missing) without the brick; those of the store.
    pub async fn opening(&self, id: BrickId) -> Result<Option<OpeningRecord>> {
        let mut draft = self.draft();
        require(draft.get::<BrickRecord>(&Path::Brick(id)).await?, "brick", id)?;
        Ok(draft.get::<BrickOpening>(&Path::Opening(id)).await?.map(|opening| opening.record))
    }

    /// Replaces the record of a brick's openings if it is still `from`, or already `to`. Returns whether it is `to` now.
    ///
    /// # Errors
    /// As [`CatalogEditor::opening`].
    pub async fn replace_opening(
        &self,
        id: BrickId,
        from: Option<OpeningRecord>,
        to: OpeningRecord,
    ) -> Result<Edited<bool>> {
        edit!(self, |draft| {
            require(draft.get::<BrickRecord>(&Path::Brick(id)).await?, "brick", id)?;
            let known = draft.get::<BrickOpening>(&Path::Opening(id)).await?;
            let is_expected = known.as_ref().map(|known| known.record) == from || planted(Bug::ClaimUnchecked);
            let is_done = known.as_ref().is_some_and(|known| known.record == to);
            if is_expected && !is_done {
                // The refusal stands until the opening is confirmed.
                let refused = known.and_then(|known| known.refused).filter(|_| to.claimed.is_some());
                draft.put(&Path::Opening(id), &BrickOpening { record: to, refused })?;
            }
            is_expected || is_done
        })
    }

    /// Notes a position up to which the log of a brick was forced under its last opening.
    ///
    /// Changes nothing if another opening was claimed since, or the position is not higher.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn record_position(&self, id: BrickId, opening: Opening, position: u64) -> Result<Edited<()>> {
        edit!(self, |draft| {
            let known = draft.get::<BrickOpening>(&Path::Opening(id)).await?;
            if let Some(mut known) = known
                && known.record.base == Some(opening)
                && known.record.claimed.is_none()
                && known.record.position < position
            {
                known.record.position = position;
                draft.put(&Path::Opening(id), &known)?;
            }
        })
    }

    /// Notes why the process of a brick refused to serve. The next opening that is confirmed removes the note.
    ///
    /// # Errors
    /// As [`CatalogEditor::opening`].
    pub async fn record_refusal(&self, id: BrickId, why: &str) -> Result<Edited<()>> {
        let refused: String = why.char_indices().take_while(|(at, _)| *at < MAX_REFUSAL - 4).map(|(_, c)| c).collect();
        edit!(self, |draft| {
            require(draft.get::<BrickRecord>(&Path::Brick(id)).await?, "brick", id)?;
            let known = draft.get::<BrickOpening>(&Path::Opening(id)).await?.unwrap_or_default();
            if known.refused.as_ref() != Some(&refused) {
                draft.put(&Path::Opening(id), &BrickOpening { refused: Some(refused.clone()), ..known })?;
            }
        })
    }

    /// The openings of the catalogue itself.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn own_openings(&self) -> Result<OpeningHistory> {
        let mut draft = self.draft();
        own_openings(&mut draft).await
    }

    /// Adds an opening of the catalogue, before a meta-server serves it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn add_own_opening(&self, nonce: u64) -> Result<Edited<OpeningHistory>> {
        edit!(self, |draft| {
            let known = own_openings(&mut draft).await?;
            let revision = self.store.get(Vec::new()).await?.revision;
            let history = known.next(revision.0, nonce);
            draft.put(&Path::CatalogueOpenings, &history)?;
            history
        })
    }

    /// Adds an opening of a catalogue that went back in time, in which earlier openings are not compared any more. Its number is far
    /// above all that the catalogue may have had, because nothing is known of those.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn accept_own_loss(&self) -> Result<Edited<OpeningHistory>> {
        let nonce = rand::random();
        edit!(self, |draft| {
            let before = own_openings(&mut draft).await?;
            let revision = self.store.get(Vec::new()).await?.revision;
            let last = before.last().map_or(0, |last| last.number);
            let known = Opening { number: last.saturating_add(SKIPPED_OPENINGS), nonce };
            let history = before.accept_loss(&[known], revision.0, nonce);
            draft.put(&Path::CatalogueOpenings, &history)?;
            history
        })
    }

    /// Raises counters that another process has seen higher, so that no number is given twice. Returns the raised ones.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn raise_counters(&self, seen: &BTreeMap<String, u64>) -> Result<Vec<String>> {
        let mut raised = Vec::new();
        for (name, next) in seen {
            let path = match name.as_str() {
                PLACEMENT_EPOCH => Path::PlacementMap,
                _ => Path::Counter(name.clone()),
            };
            let changed: Result<Edited<bool>> = edit!(self, |draft| {
                let known = draft.get::<Counter>(&path).await?.unwrap_or_default();
                let is_lower = known.next < *next;
                if is_lower {
                    draft.put(&path, &Counter { next: *next })?;
                }
                is_lower
            });
            if changed?.value {
                raised.push(name.clone());
            }
        }
        Ok(raised)
    }
}

/// The openings of the catalogue. The revision of the entry says from when on the last one counts.
async fn own_openings(draft: &mut CatalogDraft<'_>) -> Result<OpeningHistory> {
    let path = Path::CatalogueOpenings;
    let known = draft.get::<OpeningHistory>(&path).await?.unwrap_or_default();
    Ok(known.with_last_from(draft.revision_of(&path)?.unwrap_or_default().0))
}
