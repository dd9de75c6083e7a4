//! The service of a connection within the process: the threads that send messages and requests to it call it, too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

use super::direct_sink::join;
use super::mailbox::{Item, Mailbox};
use super::responder::Responder;
use super::{End, Incoming as IncomingRequest, Service};
use crate::direct::{Delivery, DirectQueue, Receiver, SentRequest};
use crate::frame::Raw;
use crate::transport::Stream;

/// The service of a link.
pub(super) enum ServiceSlot<S> {
    /// Only the task of the connection calls it.
    Own(S),
    /// The other end is in this process.
    Shared(Arc<SharedService<S>>, Incoming),
}

impl<S: Service> ServiceSlot<S> {
    /// The service of a connection over `stream`, which `mailbox` belongs to.
    pub(super) fn new(service: S, stream: &Stream, mailbox: &Arc<Mailbox>) -> Self {
        let Some((outgoing, incoming)) = stream.direct_queues() else { return Self::Own(service) };
        mailbox.set_direct(outgoing);
        let shared = Arc::new(SharedService {
            service: Mutex::new(service),
            mailbox: mailbox.clone(),
            runtime: Handle::try_current().ok(),
            has_refused: AtomicBool::new(false),
        });
        incoming.open(shared.clone());
        Self::Shared(shared, Incoming(incoming))
    }

    /// Calls `act` with the service.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut S) -> T) -> T {
        match self {
            Self::Own(service) => act(service),
            Self::Shared(shared, _) => act(&mut shared.lock()),
        }
    }

    /// Passes some of the messages that wait to the service.
    pub(super) fn take_direct(&self) {
        if let Self::Shared(_, Incoming(queue)) = self {
            queue.take_turn();
        }
    }

    /// The connection has ended. What was sent before it was closed in good order is still handled.
    pub(super) fn finish(&self, end: &End) {
        if let (Self::Shared(_, Incoming(queue)), End::Closed | End::HungUp) = (self, end) {
            queue.finish();
        }
    }
}

/// Messages to this end, which are lost when it is dropped.
pub(super) struct Incoming(Arc<DirectQueue>);

impl Drop for Incoming {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A service that several threads call, one at a time.
pub(super) struct SharedService<S> {
    service: Mutex<S>,
    mailbox: Arc<Mailbox>,
    /// What drives the connection. Tasks that requests start run there, whichever thread brings a request.
    runtime: Option<Handle>,
    /// Whether a message broke the protocol: later ones may depend on it, and are not handled.
    has_refused: AtomicBool,
}

impl<S> SharedService<S> {
    fn lock(&self) -> MutexGuard<'_, S> {
        // A service that has panicked gets no more messages, and the connection is about to end.
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, item: Item) {
        // The connection may have ended already.
        let _ = self.mailbox.push(item);
    }
}

impl<S: Service> SharedService<S> {
    /// Handles what has come together: messages, which may overtake requests, then requests.
    fn handle(&self, service: &mut S, deliveries: Vec<Delivery>) -> Result<()> {
        let forced = deliveries.iter().filter_map(|delivery| match delivery {
            Delivery::Message(sent) => sent.forced,
            Delivery::Request(_) => None,
        });
        forced.max().inspect(|forced| service.on_forced(*forced));
        let has_messages = deliveries.iter().any(|delivery| matches!(delivery, Delivery::Message(_)));
        let mut requests = Vec::new();
        let mut messages = deliveries.into_iter().filter_map(|delivery| match delivery {
            Delivery::Message(sent) => Some(sent.message),
            Delivery::Request(request) => {
                requests.push(request);
                None
            }
        });
        if has_messages {
            service.on_messages(&mut messages)?;
        }
        // Collects the requests behind the last message.
        messages.for_each(drop);
        requests.into_iter().try_for_each(|request| self.serve(service, request))
    }

    fn serve(&self, service: &mut S, request: SentRequest) -> Result<()> {
        let SentRequest { request, raw, sink } = request;
        let _context = self.runtime.as_ref().map(Handle::enter);
        let mut refused = None;
        let reply = Responder::to_sink(sink, &self.mailbox, &mut refused);
        service.on_request(IncomingRequest { request, raw: Raw::Owned(join(raw)) }, reply);
        let sent = self.mailbox.take_direct_bytes();
        if sent > 0 {
            service.on_sent(sent);
        }
        refused.map_or(Ok(()), |why| Err(Error::new(ErrorKind::Invalid, why)))
    }
}

impl<S: Service> Receiver for SharedService<S> {
    fn receive(&self, deliveries: Vec<Delivery>) {
        if self.service.is_poisoned() || self.has_refused.load(Ordering::Relaxed) {
            return;
        }
        // The thread belongs to the sender, which a mistake of this service must not end.
        let handled = catch_unwind(AssertUnwindSafe(|| {
            let mut service = self.lock();
            let handled = self.handle(&mut service, deliveries);
            self.mailbox.note_received(self.mailbox.holds_state() || service.holds_state());
            handled
        }));
        match handled {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                self.has_refused.store(true, Ordering::Relaxed);
                self.end(Item::Refuse(why.to_string()));
            }
            Err(_) => self.end(Item::Close),
        }
    }

    fn wake(&self) {
        self.end(Item::TakeDirect);
    }

    fn handle_overrun(&self) {
        self.end(Item::Overrun);
    }
}
