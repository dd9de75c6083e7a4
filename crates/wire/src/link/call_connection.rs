//! A connection on which only this side asks, for a few requests.

use std::sync::Arc;

use crate::tasks;
use model::{Error, ErrorKind, Result};
use tokio::task::JoinSet;

use super::driver::{Link, drive};
use super::{Caller, End, Limits, Mailbox, NoService};
use crate::proto::request::Request;
use crate::proto::response::Response;
use crate::transport::Stream;

/// Bytes of unanswered calls; further calls wait.
const BUDGET: usize = 1 << 20;

/// A connection on which only this side asks. It ends with this value.
#[derive(Debug)]
pub struct CallConnection {
    caller: Caller,
    /// Its task, which ends with the value, too.
    _driving: JoinSet<End>,
}

impl CallConnection {
    /// Drives a connection after its handshake. Call it on the runtime that is to drive it.
    #[must_use]
    pub fn open(stream: Stream, max_frame: u32) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let caller = Caller::new(mailbox.clone(), BUDGET);
        let mut driving = JoinSet::new();
        tasks::spawn_in(&mut driving, drive(Link::new(stream, NoService, Limits::default(), max_frame, mailbox)));
        Self { caller, _driving: driving }
    }

    /// Sends a request of which nothing is left if its answer is lost.
    ///
    /// # Errors
    /// The error of the other side; [`ErrorKind::Unavailable`] if the connection ends before the answer.
    pub async fn ask(&self, request: Request) -> Result<Response> {
        let answered = self.caller.call(request, Vec::new()).await;
        answered.map(|answer| answer.response).map_err(|error| match error.kind() {
            ErrorKind::Unknown => Error::new(ErrorKind::Unavailable, "the server cannot answer now").with_source(error),
            _ => error,
        })
    }
}

impl Drop for CallConnection {
    fn drop(&mut self) {
        self.caller.hang_up();
    }
}
