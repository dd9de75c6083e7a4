//! Operations on the openings of bricks. The rules are in [`opening`](crate::opening).

use super::{CatalogEditor, Edited, Result, edit, require};
use crate::catalog::entry::Path;
use crate::catalog::ident::BrickId;
use crate::catalog::member::{BrickOpening, BrickRecord, MAX_REFUSAL};
use crate::opening::plant::{Bug, planted};
use crate::opening::{Opening, OpeningRecord};

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
}
