//! Finds out that the other side of a connection hangs: the connection of a process that is stopped or cut off does not end.

use std::time::Duration;

use tokio::time;

use super::{Caller, Mailbox};
use crate::proto;
use crate::proto::request::Request;

/// How often a connection is checked for activity, and how long an answer to a probe may take.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the other side may have been silent when [`wait_until_silent`] returns.
pub const SILENCE_TIMEOUT: Duration = PROBE_INTERVAL.saturating_add(PROBE_TIMEOUT);

/// Waits until the other side of a connection hangs: something `is_expected` of it, it has not been active for two seconds, and
/// within three more it neither answers a probe nor takes bytes that wait.
pub async fn wait_until_silent(mailbox: &Mailbox, caller: &Caller, is_expected: impl Fn() -> bool) {
    loop {
        time::sleep(PROBE_INTERVAL).await;
        if mailbox.take_activity() || !is_expected() {
            continue;
        }
        if time::timeout(PROBE_TIMEOUT, caller.call(Request::Ping(proto::Ping {}), Vec::new())).await.is_err()
            && !mailbox.take_activity()
        {
            return;
        }
    }
}
