//! Requests to the peer server, each of which it answers once.

use std::sync::Arc;

use bytes::Bytes;
use model::{NodeId, Result};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use wire::cluster::content_id;
use wire::convert;
use wire::link::{Answer, Caller};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::client_core::{CallGuard, CallWaiter, Core, RequestStep};
use super::driver::{ClientCall, closed_error};
use super::rows::FirstRows;

impl Core {
    /// Sends a request to the peer server, which answers once. It is repeated if the connection is lost.
    pub(super) async fn ask(&self, request: Request) -> Result<(Response, Bytes)> {
        self.ask_with_raw(request, Vec::new()).await.map(|(_, answer)| (answer.response, answer.raw))
    }

    /// The same with raw bytes. Returns the connection that has answered, too.
    pub(super) async fn ask_with_raw(&self, request: Request, raw: Vec<Bytes>) -> Result<(Caller, Answer)> {
        self.ask_holding(request, raw, None).await
    }

    /// Asks for a query, which counts as open as long as this permit, or a copy of it, is there.
    pub(super) async fn ask_query(
        &self,
        request: Request,
        raw: Vec<Bytes>,
        open: &Arc<OwnedSemaphorePermit>,
    ) -> Result<(Caller, Answer)> {
        self.ask_holding(request, raw, Some(open)).await
    }

    async fn ask_holding(
        &self,
        request: Request,
        raw: Vec<Bytes>,
        open: Option<&Arc<OwnedSemaphorePermit>>,
    ) -> Result<(Caller, Answer)> {
        let nodes = self.request_nodes(&request);
        let (id, mut steps) = self.with_state(|state, now| {
            let (sender, steps) = mpsc::unbounded_channel();
            let id = state.driver.start(ClientCall::Request(nodes), now);
            state.waiters.insert(id, CallWaiter::Request(sender));
            (id, steps)
        })?;
        let mut guard = CallGuard { core: self, id, is_finished: false };
        let mut next = steps.recv().await;
        loop {
            let caller = match next {
                Some(RequestStep::Send(caller)) => caller,
                Some(RequestStep::Failed(error)) => {
                    guard.is_finished = true;
                    return Err(error);
                }
                None => return Err(closed_error()),
            };
            tokio::select! {
                biased;
                answer = call(&caller, request.clone(), raw.clone(), open) => match answer {
                    Ok(answer) => {
                        guard.is_finished = true;
                        self.with_state(|state, _| {
                            state.waiters.remove(&id);
                            state.driver.handle_answered(id);
                        })?;
                        return Ok((caller, answer));
                    }
                    Err(error) => {
                        self.with_driver(|driver, now| driver.handle_failed(id, error, now))?;
                        next = steps.recv().await;
                    }
                },
                step = steps.recv() => next = step,
            }
        }
    }

    /// The logical nodes that a request needs; none if the peer server answers it alone.
    fn request_nodes(&self, request: &Request) -> Vec<NodeId> {
        match request {
            Request::Query(_) => self.nodes.clone(),
            Request::Reserve(reserve) => vec![NodeId(reserve.node)],
            Request::Scan(scan) => vec![NodeId(scan.node)],
            Request::LookUp(look_up) => vec![NodeId(look_up.node)],
            Request::ListEntries(list) => vec![NodeId(list.node)],
            Request::ListEntriesOf(list) => vec![NodeId(list.node)],
            Request::ListNodeObjects(list) => vec![NodeId(list.node)],
            Request::ReadObject(proto::ReadObject { oid, .. })
            | Request::ReadContent(proto::contents::Read { oid, .. }) => {
                convert::oid(*oid, "object").into_iter().map(|oid| oid.page().node).collect()
            }
            Request::BeginContent(begin) => vec![NodeId(begin.node)],
            Request::WriteContent(proto::contents::Write { content, .. })
            | Request::AbortContent(proto::contents::Abort { content, .. }) => {
                content_id(*content).into_iter().map(|id| id.node()).collect()
            }
            _ => Vec::new(),
        }
    }
}

async fn call(
    caller: &Caller,
    request: Request,
    raw: Vec<Bytes>,
    open: Option<&Arc<OwnedSemaphorePermit>>,
) -> Result<Answer> {
    let mut pending = caller.begin(request, raw).await?;
    match open {
        Some(open) => FirstRows::new(caller, pending, open).answer().await,
        None => pending.answer().await,
    }
}
