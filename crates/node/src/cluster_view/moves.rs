//! Where logical nodes are, and that they move, as somebody outside wants it.

use meta::catalog::{CatalogEditor, Follower, MoveAnswer, MoveRequest};
use model::{Error, ErrorKind, Result};
use wire::proto::moves;

use super::{CatalogSource, ClusterView};

/// Does what a request wants, by what the catalogue says now, and waits until what was changed is known here.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it cannot be read; those of the operation.
pub(crate) async fn handle_move_request(
    editor: &CatalogEditor,
    follower: &Follower,
    request: &moves::Move,
) -> Result<MoveAnswer> {
    let asked: MoveRequest = serde_json::from_slice(&request.request).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("a request of where logical nodes are cannot be read: {error}"))
    })?;
    follower.wait_for_revision(editor.placement_revision().await?).await?;
    let (answer, changed) = editor.handle_move_request(&follower.catalog(), asked).await?;
    if let Some(revision) = changed {
        follower.wait_for_revision(revision).await?;
    }
    Ok(answer)
}

impl ClusterView {
    /// Does what a request wants, so that it is known here: see [`answer`].
    ///
    /// # Errors
    /// As [`answer`].
    pub(crate) async fn handle_move_request(&self, request: &moves::Move) -> Result<MoveAnswer> {
        let CatalogSource { editor, follower, .. } = self.source()?;
        let answer = handle_move_request(editor, follower, request).await?;
        self.update_from_catalog();
        Ok(answer)
    }

    /// Waits until all is known here that the catalogue says now of where logical nodes are.
    ///
    /// # Errors
    /// If whatever keeps the catalogue cannot be asked now.
    pub(crate) async fn refresh_placement(&self) -> Result<()> {
        self.wait_for_revision(self.editor()?.placement_revision().await?).await
    }
}

/// An answer as it is sent.
///
/// # Errors
/// None, unless there is a mistake here.
pub(crate) fn encode(answer: &MoveAnswer) -> Result<moves::Moved> {
    let answer = serde_json::to_vec(answer).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    Ok(moves::Moved { answer: answer.into() })
}
