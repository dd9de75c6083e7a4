//! A handle by which a driver sends messages on a connection.

use std::fmt;
use std::sync::Arc;

use protocol::page_cache::FetchReply;
use protocol::tree::Down;

use crate::cluster::Message;
use crate::link::Mailbox;
use crate::proto::request::Request;

/// Tells the position up to which a log is forced.
pub type PositionSource = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The other end of a connection. Clones refer to the same connection.
#[derive(Clone)]
pub struct PeerHandle {
    mailbox: Arc<Mailbox>,
    /// Of a brick's log: each answer to a coordinator says it.
    forced: Option<PositionSource>,
}

impl PeerHandle {
    /// The end that is reached through `mailbox`.
    #[must_use]
    pub fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, forced: None }
    }

    /// The same at a brick, the answers of which say up to where its log is forced.
    #[must_use]
    pub fn of_brick(mailbox: Arc<Mailbox>, forced: PositionSource) -> Self {
        Self { mailbox, forced: Some(forced) }
    }

    /// Sends a message. It is lost if the connection has ended; the machines repeat what needs an answer. If [much is
    /// unsent](Self::is_behind), [`FetchReply::Stale`] replaces a page; the receiver then fetches the page again. This bounds the unsent
    /// bytes of a connection on which many pages are fetched.
    pub fn send(&self, mut message: Message) {
        if let Message::Down { message: Down::Fetched { reply: reply @ FetchReply::Page(_), .. }, .. } = &mut message
            && self.mailbox.is_behind()
        {
            *reply = FetchReply::Stale;
        }
        let forced = self.forced.as_ref().filter(|_| matches!(message, Message::Answer { .. }));
        let forced = forced.map(|forced| forced());
        self.mailbox.send_message(message, forced);
    }

    /// Whether so much is unsent that large messages are to be sent later.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.mailbox.is_behind()
    }

    /// Whether messages wait until the other side takes them. What was sent before may still be on its way then.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.mailbox.has_unsent()
    }

    /// Sends a request that wants no answer.
    pub fn send_request(&self, request: Request) {
        self.mailbox.send_one_way(request, Vec::new());
    }

    /// Ends the connection.
    pub fn hang_up(&self) {
        self.mailbox.hang_up();
    }
}

impl PartialEq for PeerHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mailbox, &other.mailbox)
    }
}

impl fmt::Debug for PeerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerHandle({:p})", Arc::as_ptr(&self.mailbox))
    }
}
