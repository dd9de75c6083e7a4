//! A handle by which a driver sends messages on a connection.

use std::fmt;
use std::sync::Arc;

use crate::cluster::Message;
use crate::link::Mailbox;

/// The other end of a connection. Clones refer to the same connection.
#[derive(Clone)]
pub struct PeerHandle(Arc<Mailbox>);

impl PeerHandle {
    /// The end that is reached through `mailbox`.
    #[must_use]
    pub fn new(mailbox: Arc<Mailbox>) -> Self {
        Self(mailbox)
    }

    /// Sends a message. It is lost if the connection has ended; the machines repeat what needs an answer.
    pub fn send(&self, message: &Message) {
        let (request, raw) = message.encode();
        self.0.send_one_way(request, raw);
    }

    /// Ends the connection.
    pub fn hang_up(&self) {
        self.0.hang_up();
    }
}

impl PartialEq for PeerHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for PeerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerHandle({:p})", Arc::as_ptr(&self.0))
    }
}
