//! Requests about the placement of logical nodes, and moves.

use meta::catalog::{CatalogEditor, Follower, MoveAnswer};
use model::Result;
use wire::proto::moves;

use super::{CatalogSource, ClusterView};
use crate::catalog_messages::move_request_from_proto;

/// Carries out a request with the latest catalogue, and waits until `follower` has seen the change.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the request cannot be read; the errors of the operation.
pub(crate) async fn handle_move_request(
    editor: &CatalogEditor,
    follower: &Follower,
    request: &moves::Move,
) -> Result<MoveAnswer> {
    let asked = move_request_from_proto(request)?;
    follower.wait_for_revision(editor.placement_revision().await?).await?;
    let (answer, changed) = editor.handle_move_request(&follower.catalog(), asked).await?;
    if let Some(revision) = changed {
        follower.wait_for_revision(revision).await?;
    }
    Ok(answer)
}

impl ClusterView {
    /// Carries out a request, and updates this view.
    ///
    /// # Errors
    /// As [`handle_move_request`].
    pub(crate) async fn handle_move_request(&self, request: &moves::Move) -> Result<MoveAnswer> {
        let CatalogSource { editor, follower, .. } = self.source()?;
        let answer = handle_move_request(editor, follower, request).await?;
        self.update_from_catalog();
        Ok(answer)
    }

    /// Waits until this view has the placement map that the catalogue has now.
    ///
    /// # Errors
    /// If the catalogue cannot be read now.
    pub(crate) async fn refresh_placement(&self) -> Result<()> {
        self.wait_for_revision(self.editor()?.placement_revision().await?).await
    }
}
