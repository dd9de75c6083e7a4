//! Requests about the members of the cluster.

use meta::catalog::{CatalogEditor, Follower, MemberAnswer, MemberRequest};
use model::{Error, ErrorKind, Result};
use wire::proto::members;

use super::{CatalogSource, ClusterView};

/// Carries out a request with the latest catalogue, and waits until `follower` has seen the change.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the request cannot be read; the errors of the operation.
pub(crate) async fn handle_member_request(
    editor: &CatalogEditor,
    follower: &Follower,
    asked: &members::MemberRequest,
) -> Result<members::MemberAnswer> {
    let request: MemberRequest = serde_json::from_slice(&asked.request).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("a request about bricks and peer servers cannot be read: {error}"))
    })?;
    follower.wait_for_revision(editor.placement_revision().await?).await?;
    let (answer, changed): (MemberAnswer, _) = editor.handle_member_request(&follower.catalog(), request).await?;
    if let Some(revision) = changed {
        follower.wait_for_revision(revision).await?;
    }
    let answer = serde_json::to_vec(&answer).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    Ok(members::MemberAnswer { answer: answer.into() })
}

impl ClusterView {
    /// Carries out a request, and updates this view.
    ///
    /// # Errors
    /// As [`handle_member_request`].
    pub(crate) async fn handle_member_request(&self, asked: &members::MemberRequest) -> Result<members::MemberAnswer> {
        let CatalogSource { editor, follower, .. } = self.source()?;
        let answered = handle_member_request(editor, follower, asked).await?;
        self.update_from_catalog();
        Ok(answered)
    }
}
