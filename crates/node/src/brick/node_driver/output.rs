//! What a driver of a logical node wants done.

use model::{NodeId, Object, PageId, SpaceId, UploadId};
use protocol::brick::PendingRead;
#[cfg(any(test, feature = "sim"))]
use protocol::commit::Change;
use protocol::commit::{Answer, Request};
use protocol::ident::HlcTimestamp;
#[cfg(any(test, feature = "sim"))]
use protocol::ident::Version;
use store::RowChanges;
use wire::cluster::Message;

/// Which rows a driver submitted: those of this opening of the logical node, since the last time that the store refused rows.
///
/// A result of an earlier life means nothing to a driver: it has submitted the same rows again, or has read what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// The number that the node was opened with.
    pub(crate) opening: u64,
    /// How often the store has refused rows since then.
    pub(crate) refusals: u64,
}

/// A page that a holder has fetched, to be read for a driver.
#[derive(Clone, Copy, Debug)]
pub struct PageRead {
    /// The number with which the node was opened: a later opening does not know the holder.
    pub(super) opening: u64,
    pub(super) ticket: PendingRead,
}

impl PageRead {
    /// The page.
    #[must_use]
    pub fn page(&self) -> PageId {
        self.ticket.page
    }
}

/// Something that a driver wants done, in this order. `C` is a connection.
#[derive(Debug)]
pub(crate) enum DriverOutput<C> {
    /// Send a message.
    Send(C, Message),
    /// Submit rows to the store, behind all that were submitted before, and call [`NodeDriver::handle_written`] once with the result.
    ///
    /// [`NodeDriver::handle_written`]: super::NodeDriver::handle_written
    SubmitRows { life: Life, rows: RowChanges },
    /// Read a page, at any time from now on, and call [`NodeDriver::handle_page_read`] with what was read. Other pages may be read first,
    /// and the page may change in between: its holder is listed, and applies changes that arrive before the page to it (D1, D3).
    ///
    /// [`NodeDriver::handle_page_read`]: super::NodeDriver::handle_page_read
    ReadPage(PageRead),
    /// Ask another logical node.
    Ask { node: NodeId, seen: HlcTimestamp, request: Request<Object> },
    /// Answer another logical node of this brick.
    Answer { to: NodeId, answer: Answer },
    /// Tell another logical node of this brick that a transaction is not taken in here, with the message for its coordinator.
    Deferred { to: NodeId, message: Message },
    /// Ask the catalogue for new classes of a space, and call [`NodeDriver::on_schema_refreshed`] when they are known here.
    ///
    /// [`NodeDriver::on_schema_refreshed`]: super::NodeDriver::on_schema_refreshed
    RefreshSchema { space: SpaceId },
    /// The store has refused rows that cannot be submitted again: close this driver, and open the logical node again with what is stored.
    Reopen,
    /// The store has to abort an upload.
    AbortUpload(UploadId),
    /// A change was turned into rows that are about to be submitted. For checkers; nothing is to be done.
    #[cfg(any(test, feature = "sim"))]
    Appended { version: Version, change: Change<Object> },
}
