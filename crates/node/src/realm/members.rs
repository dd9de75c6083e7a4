//! Who takes part in the cluster, as somebody outside wants it.

use meta::catalog::{Editor, Follower, MemberAnswer, MemberRequest};
use model::{Error, ErrorKind, Result};
use wire::proto::members;

use super::{Catalogue, Realm};

/// Does what a request wants, by what the catalogue says now, and waits until what was changed is known here.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it cannot be read; those of the operation.
pub(crate) async fn answer(editor: &Editor, follower: &Follower, asked: &members::Ask) -> Result<members::Answered> {
    let request: MemberRequest = serde_json::from_slice(&asked.request).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("a request about bricks and peer servers cannot be read: {error}"))
    })?;
    follower.reach(editor.map_revision().await?).await?;
    let (answer, changed): (MemberAnswer, _) = editor.answer_members(&follower.catalog(), request).await?;
    if let Some(revision) = changed {
        follower.reach(revision).await?;
    }
    let answer = serde_json::to_vec(&answer).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    Ok(members::Answered { answer: answer.into() })
}

impl Realm {
    /// Does what a request wants, so that it is known here: see [`answer`].
    ///
    /// # Errors
    /// As [`answer`].
    pub(crate) async fn members(&self, asked: &members::Ask) -> Result<members::Answered> {
        let Catalogue { editor, follower, .. } = self.catalogue()?;
        let answered = answer(editor, follower, asked).await?;
        self.fill();
        Ok(answered)
    }
}
