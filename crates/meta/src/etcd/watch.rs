//! Watches that continue when their member fails.
//!
//! A watch knows the last revision that it has returned. If its stream ends, is cancelled because the member lost its leader, or is
//! silent for too long, the watch opens another one at the next member, right after that revision. No change is lost or repeated.
//! etcd sends the changes of one revision together; the fragments of large ones are joined.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use model::Result;
use tokio::time;

use super::api::{CreateWatch, EventKind, JsonInt64, StreamError, StreamMessage, WatchAnswer, WatchRequest};
use super::cluster::{body, code, is_transient};
use super::http::{Lines, RequestFailure};
use super::origin::Origin;
use super::{Inner, cluster};
use crate::{ChangedKey, Pending, Prefix, Revision, Watch, WatchBatch, WatchEvent};

/// How long a stream may be silent before another one is opened, because its member may have failed.
const STREAM_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after all members have failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A watch on etcd.
pub(super) struct EtcdWatch {
    inner: Arc<Inner>,
    prefix: Prefix,
    /// Where revisions begin, once a stream was opened.
    origin: Origin,
    /// The last revision whose events were returned or are queued.
    after: Revision,
    stream: Option<(Lines, usize)>,
    /// Events of a revision whose last fragment has not arrived.
    partial: Vec<(Revision, ChangedKey)>,
    ready: VecDeque<WatchBatch>,
    is_compacted: bool,
    /// Number of consecutive failures.
    failures: usize,
}

impl EtcdWatch {
    pub(super) fn new(inner: Arc<Inner>, prefix: Prefix, after: Revision) -> Self {
        let (stream, partial, ready) = (None, Vec::new(), VecDeque::new());
        let origin = Origin::default();
        Self { inner, prefix, origin, after, stream, partial, ready, is_compacted: false, failures: 0 }
    }

    async fn next(&mut self) -> Result<WatchEvent> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(WatchEvent::Changed(batch));
            }
            if self.is_compacted {
                return Ok(WatchEvent::Compacted);
            }
            if self.stream.is_none() {
                if self.failures > 0 && self.failures.is_multiple_of(self.inner.cluster.members()) {
                    time::sleep(RETRY_PAUSE).await;
                    self.failures += 1;
                }
                match self.open().await {
                    Ok(Some(stream)) => self.stream = Some(stream),
                    Ok(None) => self.is_compacted = true,
                    Err(failure) => self.handle_failure(failure)?,
                }
                continue;
            }
            match self.next_line().await {
                Ok(Some(line)) => self.handle_line(&line)?,
                Ok(None) => self.reopen(),
                Err(failure) => self.handle_failure(failure)?,
            }
        }
    }

    /// Opens a stream; `None` if the history after the last revision is not that of this catalogue.
    async fn open(&mut self) -> Result<Option<(Lines, usize)>, RequestFailure> {
        self.origin = self.inner.origin().await?;
        if !self.origin.has_history_after(self.after) {
            return Ok(None);
        }
        let (key, range_end) = self.inner.namespace.range(&self.prefix);
        let start_revision = JsonInt64(self.origin.of_etcd(self.after).0.saturating_add(1));
        let create_request = CreateWatch { key, range_end, start_revision, progress_notify: true, fragment: true };
        self.inner.cluster.stream("/v3/watch", body(&WatchRequest { create_request })?).await.map(Some)
    }

    /// The next line; `None` if the stream ended or was silent for too long.
    async fn next_line(&mut self) -> Result<Option<bytes::Bytes>, RequestFailure> {
        let Some((stream, _)) = &mut self.stream else { return Ok(None) };
        time::timeout(STREAM_TIMEOUT, stream.next()).await.unwrap_or(Ok(None))
    }

    fn handle_line(&mut self, line: &[u8]) -> Result<()> {
        let answer = match serde_json::from_slice::<StreamMessage<WatchAnswer>>(line) {
            Ok(StreamMessage { result: Some(answer), .. }) => answer,
            Ok(StreamMessage { error: Some(StreamError { grpc_code, message }), .. }) => {
                return self.handle_failure(RequestFailure::Refused { code: grpc_code, message });
            }
            Ok(_) => return self.handle_failure(RequestFailure::Lost("an answer to a watch is empty".to_owned())),
            Err(nonsense) => return self.handle_failure(RequestFailure::Lost(nonsense.to_string())),
        };
        if answer.canceled {
            if answer.compact_revision.0 > 0 {
                self.is_compacted = true;
                self.stream = None;
                return Ok(());
            }
            // etcd reports the reason only as text.
            let has_reason = |words: &str| answer.cancel_reason.contains(words);
            let code = match () {
                () if has_reason("permission denied") || has_reason("user name is empty") => code::PERMISSION_DENIED,
                () if has_reason("invalid auth token") => code::UNAUTHENTICATED,
                () => 0,
            };
            return self.handle_failure(RequestFailure::Refused { code, message: answer.cancel_reason });
        }
        if !answer.created {
            self.failures = 0;
        }
        for event in answer.events {
            let is_put = event.kind == EventKind::Put;
            let (key, entry) = match self.inner.namespace.entry(self.origin, event.kv) {
                Ok(entry) => entry,
                Err(foreign) => {
                    // The next call must not continue after this event.
                    self.reopen();
                    return Err(foreign);
                }
            };
            let revision = entry.revision;
            // A member that lags behind may repeat events.
            if revision > self.after {
                self.partial.push((revision, ChangedKey { key, entry: is_put.then_some(entry) }));
            }
        }
        if !answer.fragment {
            let is_progress = self.partial.is_empty() && !answer.created;
            self.flush_partial();
            if is_progress {
                // All events up to this revision have arrived.
                self.after = self.after.max(self.origin.revision(answer.header.revision));
            }
        }
        Ok(())
    }

    /// Makes batches of the events that have arrived.
    fn flush_partial(&mut self) {
        for (revision, changed) in self.partial.drain(..) {
            self.after = self.after.max(revision);
            match self.ready.back_mut() {
                Some(batch) if batch.revision == revision => batch.changes.push(changed),
                _ => self.ready.push_back(WatchBatch { revision, changes: vec![changed] }),
            }
        }
    }

    /// Closes the stream; the next one is opened at another member.
    fn reopen(&mut self) {
        self.partial.clear();
        self.failures += 1;
        if let Some((_, at)) = self.stream.take() {
            self.inner.cluster.switch_member(at);
        }
    }

    fn handle_failure(&mut self, failure: RequestFailure) -> Result<()> {
        self.reopen();
        match failure {
            RequestFailure::Refused { code: code::UNAUTHENTICATED, .. } if self.failures < 2 => {
                self.inner.cluster.forget_token();
                Ok(())
            }
            // The answer is too large; the caller can read the state in parts instead.
            RequestFailure::TooLong | RequestFailure::Refused { code: code::RESOURCE_EXHAUSTED, .. } => {
                self.is_compacted = true;
                Ok(())
            }
            RequestFailure::Mismatch(error) if self.failures >= self.inner.cluster.members() => {
                Err(cluster::to_error(RequestFailure::Mismatch(error)))
            }
            passing if is_transient(&passing) => {
                // Once when no member has served the watch, not at each attempt.
                if self.failures == self.inner.cluster.members() {
                    tracing::warn!(failure = ?passing, "no member of etcd serves a watch of the catalogue; it goes on trying");
                } else {
                    tracing::debug!(failure = ?passing, "a watch continues at another member of etcd");
                }
                Ok(())
            }
            lasting => Err(cluster::to_error(lasting)),
        }
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> Pending<'_, WatchEvent> {
        Box::pin(Self::next(self))
    }
}
