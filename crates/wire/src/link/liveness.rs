//! Finds out that the other side of a connection hangs: the connection of a process that is stopped or cut off does not end.

use std::time::Duration;

use tokio::time;

use super::{Caller, Mailbox};
use crate::proto;
use crate::proto::request::Request;

/// How long the other side of a connection may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// How often the connection is checked for activity.
    pub interval: Duration,
    /// How long an answer to a probe may take.
    pub timeout: Duration,
}

impl Liveness {
    /// For servers that may be far away, or busy.
    pub const FAR: Self = Self { interval: Duration::from_secs(2), timeout: Duration::from_secs(3) };
    /// For servers at the same site that do little themselves.
    pub const NEAR: Self = Self { interval: Duration::from_millis(200), timeout: Duration::from_millis(500) };

    /// How long the other side was silent when [`wait_until_silent`] returns.
    #[must_use]
    pub fn in_all(self) -> Duration {
        self.interval + self.timeout
    }
}

/// Waits until the other side of a connection hangs: something `is_expected` of it, it has not been active for an interval, and
/// within the timeout it neither answers a probe nor takes bytes that wait.
pub async fn wait_until_silent(mailbox: &Mailbox, caller: &Caller, patience: Liveness, is_expected: impl Fn() -> bool) {
    loop {
        time::sleep(patience.interval).await;
        if mailbox.take_activity() || !is_expected() {
            continue;
        }
        let probe = caller.call(Request::Ping(proto::Ping {}), Vec::new());
        if time::timeout(patience.timeout, probe).await.is_err() && !mailbox.take_activity() {
            return;
        }
    }
}
