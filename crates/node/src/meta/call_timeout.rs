//! Time limits for calls of the meta-server that a client's request makes.

use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static UNTIL: Instant;
}

/// Runs `work` with a time limit for all of its calls of a meta-server together.
pub(crate) async fn with_timeout<T>(patience: Duration, work: impl Future<Output = T>) -> T {
    UNTIL.scope(Instant::now() + patience, work).await
}

/// The deadline of a call with this default duration, within the limit that is set.
pub(super) fn deadline(usually: Duration) -> Instant {
    let usual = Instant::now() + usually;
    UNTIL.try_with(|until| usual.min(*until)).unwrap_or(usual)
}
