//! Requests about the members of the cluster.

use meta::catalog::{CatalogEditor, Follower};
use model::Result;
use wire::proto::members;

use super::{CatalogSource, ClusterView};
use crate::catalog_messages::{member_answer_to_proto, member_request_from_proto};

/// Carries out a request with the latest catalogue, and waits until `follower` has seen the change.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the request cannot be read; the errors of the operation.
pub(crate) async fn handle_member_request(
    editor: &CatalogEditor,
    follower: &Follower,
    asked: &members::MemberRequest,
) -> Result<members::MemberAnswer> {
    let request = member_request_from_proto(asked)?;
    follower.wait_for_revision(editor.placement_revision().await?).await?;
    let (answer, changed) = editor.handle_member_request(&follower.catalog(), request).await?;
    if let Some(revision) = changed {
        follower.wait_for_revision(revision).await?;
    }
    Ok(member_answer_to_proto(&answer))
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
