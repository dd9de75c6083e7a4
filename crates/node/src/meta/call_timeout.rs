//! How long somebody waits for the catalogue who has less patience than this process.

use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static UNTIL: Instant;
}

/// Does something whose questions to a meta-server are given up after a time, all of them together.
pub(crate) async fn with_timeout<T>(patience: Duration, work: impl Future<Output = T>) -> T {
    UNTIL.scope(Instant::now() + patience, work).await
}

/// Until when a question is tried that is usually tried for so long.
pub(super) fn deadline(usually: Duration) -> Instant {
    let usual = Instant::now() + usually;
    UNTIL.try_with(|until| usual.min(*until)).unwrap_or(usual)
}
