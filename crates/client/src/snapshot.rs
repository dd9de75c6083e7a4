//! A lasting view of what was committed at one moment.

use std::ops::Deref;

use model::Result;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use crate::link::Link;
use crate::view::{Source, View, unexpected};

/// What was committed when it was taken, whatever is committed later.
///
/// The server holds it for this client's connection: if that breaks, or if nothing is read for longer than the server
/// allows (a minute, unless configured), reads fail as [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable): take
/// another. Dropping it ends it.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) view: View,
}

impl Snapshot {
    pub(crate) async fn open(link: &Link) -> Result<Self> {
        let (session, answer) = link.read_at(Request::OpenSnapshot(proto::OpenSnapshot {})).await?;
        match answer.response {
            Response::SnapshotOpened(opened) => {
                let source = Source::Snapshot { session, id: opened.snapshot, space: link.space() };
                Ok(Self { view: View { source } })
            }
            other => Err(unexpected(&other)),
        }
    }
}

impl Deref for Snapshot {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Source::Snapshot { session, id, .. } = &self.view.source {
            session.tell(Request::CloseSnapshot(proto::CloseSnapshot { snapshot: *id }));
        }
    }
}
