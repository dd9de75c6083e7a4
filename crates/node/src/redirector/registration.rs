//! Registers a redirector with the servers above it, so that clients of its group find it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::time;
use tracing::{debug, info, warn};
use wire::connector::Backoff;
use wire::link::CallConnection;
use wire::proto::groups::{Counts, Redirector, Register};
use wire::proto::request::Request;
use wire::transport::Address;

use super::RedirectorStatus;
use super::content_cache::ContentCounts;
use super::group::GroupStatus;
use super::upstream::Upstream;
use crate::server::AGENT;

/// Pauses between attempts to connect.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How often the registration is repeated with new counts, and how long the server above may take to answer.
const INTERVAL: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a redirector registers.
#[derive(Clone, Debug)]
pub(super) struct GroupEntry {
    pub(super) group: String,
    /// Where its members connect to.
    pub(super) addresses: Vec<Address>,
}

impl GroupEntry {
    fn request(&self, status: RedirectorStatus) -> Request {
        let GroupStatus { members, counts, staleness_ms } = status.groups;
        let ContentCounts { reads, kept, kept_bytes } = status.contents;
        let counts = Counts {
            members,
            fetches: counts.fetches,
            fetched_above: counts.fetched_above,
            helped: counts.helped,
            helped_bytes: counts.helped_bytes,
            forged: counts.forged,
            updates: counts.updates,
            invalidations: counts.invalidations,
            staleness_ms,
            content_reads: reads,
            contents_kept: kept,
            contents_kept_bytes: kept_bytes,
        };
        let addresses = self.addresses.iter().map(Address::to_string).collect();
        let (group, agent) = (self.group.clone(), AGENT.to_owned());
        Request::RegisterRedirector(Register {
            redirector: Some(Redirector { group, addresses, agent, counts: Some(counts) }),
        })
    }
}

/// Keeps the registration with one server above, as long as `status` tells the redirector's status.
pub(super) async fn keep_registered(
    upstream: Weak<Upstream>,
    place: usize,
    entry: GroupEntry,
    status: impl Fn() -> Option<RedirectorStatus>,
) {
    let mut pauses = Backoff::new(MIN_PAUSE, MAX_PAUSE);
    let mut last_error = String::new();
    while let Some(current) = upstream.upgrade() {
        let address = current.address(place).clone();
        let error = match register(current, place, &entry, &status, &mut pauses).await {
            Ok(()) => return,
            Err(error) => error,
        };
        let text = error.to_string();
        if text == last_error {
            debug!(%address, %error, "the group is not registered with a server above");
        } else {
            warn!(%address, %error, group = entry.group, "the group is not registered with a server above");
            last_error = text;
        }
        pauses.pause().await;
    }
}

/// Registers again and again on one connection. Returns when the redirector has ended.
async fn register(
    upstream: Arc<Upstream>,
    place: usize,
    entry: &GroupEntry,
    status: &impl Fn() -> Option<RedirectorStatus>,
    pauses: &mut Backoff,
) -> Result<()> {
    let (stream, terms) = upstream.dial_place(place).await?;
    drop(upstream);
    let connection = CallConnection::open(stream, terms.max_frame);
    let mut is_first = true;
    while let Some(status) = status() {
        let late = |_| Err(Error::new(ErrorKind::Unavailable, "it does not answer"));
        let answered = time::timeout(ANSWER_TIMEOUT, connection.ask(entry.request(status)));
        answered.await.unwrap_or_else(late)?;
        if std::mem::take(&mut is_first) {
            pauses.reset();
            info!(group = entry.group, "registered with a server above");
        }
        time::sleep(INTERVAL).await;
    }
    Ok(())
}
