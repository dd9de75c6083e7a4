//! Watches that outlive the member they were opened at.
//!
//! A watch knows the last revision that it has given. Whenever its stream ends, is cancelled because the member lost its
//! leader, or says nothing for a while, it opens another at the next member, right behind that revision: so nothing is lost
//! and nothing comes twice. etcd keeps what one revision did together; large ones come in fragments, which are put together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use model::Result;
use tokio::time;

use super::api::{CreateWatch, EventKind, Int, StreamError, Streamed, WatchAnswer, WatchRequest};
use super::cluster::{body, code, is_passing};
use super::http::{Failure, Lines};
use super::{Inner, cluster};
use crate::{Batch, Changed, Pending, Prefix, Revision, Watch, Watched};

/// How long a stream may say nothing before another is opened: its member may be gone without a word.
const SILENCE: Duration = Duration::from_secs(20);
/// How long to wait when all members have failed.
const AGAIN: Duration = Duration::from_millis(200);

/// A watch.
pub(super) struct EtcdWatch {
    inner: Arc<Inner>,
    prefix: Prefix,
    /// All up to here was given, or is ready.
    after: Revision,
    stream: Option<(Lines, usize)>,
    /// Events of fragments whose last one has not come.
    partial: Vec<(Revision, Changed)>,
    ready: VecDeque<Batch>,
    is_compacted: bool,
    /// Members that failed one after the other.
    failures: usize,
}

impl EtcdWatch {
    pub(super) fn new(inner: Arc<Inner>, prefix: Prefix, after: Revision) -> Self {
        let (stream, partial, ready) = (None, Vec::new(), VecDeque::new());
        Self { inner, prefix, after, stream, partial, ready, is_compacted: false, failures: 0 }
    }

    async fn next(&mut self) -> Result<Watched> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Watched::Changed(batch));
            }
            if self.is_compacted {
                return Ok(Watched::Compacted);
            }
            if self.stream.is_none() {
                if self.failures > 0 && self.failures.is_multiple_of(self.inner.cluster.members()) {
                    time::sleep(AGAIN).await;
                    self.failures += 1;
                }
                match self.open().await {
                    Ok(stream) => self.stream = Some(stream),
                    Err(failure) => self.failed(failure)?,
                }
                continue;
            }
            match self.line().await {
                Ok(Some(line)) => self.take(&line)?,
                Ok(None) => self.reopen(),
                Err(failure) => self.failed(failure)?,
            }
        }
    }

    async fn open(&self) -> Result<(Lines, usize), Failure> {
        let (key, range_end) = self.inner.namespace.range(&self.prefix);
        let start_revision = Int(i64::try_from(self.after.0).unwrap_or(i64::MAX - 1) + 1);
        let create_request = CreateWatch { key, range_end, start_revision, progress_notify: true, fragment: true };
        self.inner.cluster.stream("/v3/watch", body(&WatchRequest { create_request })?).await
    }

    /// The next line; `None` if the stream ended, or says nothing.
    async fn line(&mut self) -> Result<Option<bytes::Bytes>, Failure> {
        let Some((stream, _)) = &mut self.stream else { return Ok(None) };
        time::timeout(SILENCE, stream.next()).await.unwrap_or(Ok(None))
    }

    fn take(&mut self, line: &[u8]) -> Result<()> {
        let answer = match serde_json::from_slice::<Streamed<WatchAnswer>>(line) {
            Ok(Streamed { result: Some(answer), .. }) => answer,
            Ok(Streamed { error: Some(StreamError { grpc_code, message }), .. }) => {
                return self.failed(Failure::Refused { code: grpc_code, message });
            }
            Ok(_) => return self.failed(Failure::Lost("a watch's answer says nothing".to_owned())),
            Err(nonsense) => return self.failed(Failure::Lost(nonsense.to_string())),
        };
        if answer.canceled {
            if answer.compact_revision.0 > 0 {
                self.is_compacted = true;
                self.stream = None;
                return Ok(());
            }
            // The code is only in the words.
            let says = |words: &str| answer.cancel_reason.contains(words);
            let code = match () {
                () if says("permission denied") || says("user name is empty") => code::PERMISSION_DENIED,
                () if says("invalid auth token") => code::UNAUTHENTICATED,
                () => 0,
            };
            return self.failed(Failure::Refused { code, message: answer.cancel_reason });
        }
        if !answer.created {
            self.failures = 0;
        }
        for event in answer.events {
            let is_put = event.kind == EventKind::Put;
            let (key, entry) = match self.inner.namespace.entry(event.kv) {
                Ok(entry) => entry,
                Err(foreign) => {
                    // So that the next call does not go on behind it.
                    self.reopen();
                    return Err(foreign);
                }
            };
            let revision = entry.revision;
            // A member that is behind may give again what another has given.
            if revision > self.after {
                self.partial.push((revision, Changed { key, entry: is_put.then_some(entry) }));
            }
        }
        if !answer.fragment {
            let is_progress = self.partial.is_empty() && !answer.created;
            self.give();
            if is_progress {
                // All up to here was given.
                self.after = self.after.max(Revision(answer.header.revision.to_u64()));
            }
        }
        Ok(())
    }

    /// Makes batches of the events that have come.
    fn give(&mut self) {
        for (revision, changed) in self.partial.drain(..) {
            self.after = self.after.max(revision);
            match self.ready.back_mut() {
                Some(batch) if batch.revision == revision => batch.changes.push(changed),
                _ => self.ready.push_back(Batch { revision, changes: vec![changed] }),
            }
        }
    }

    /// Goes on at another member.
    fn reopen(&mut self) {
        self.partial.clear();
        self.failures += 1;
        if let Some((_, at)) = self.stream.take() {
            self.inner.cluster.leave(at);
        }
    }

    fn failed(&mut self, failure: Failure) -> Result<()> {
        self.reopen();
        match failure {
            Failure::Refused { code: code::UNAUTHENTICATED, .. } if self.failures < 2 => {
                self.inner.cluster.forget_token();
                Ok(())
            }
            // More at once than can be taken: reading goes in parts.
            Failure::TooLong | Failure::Refused { code: code::RESOURCE_EXHAUSTED, .. } => {
                self.is_compacted = true;
                Ok(())
            }
            passing if is_passing(&passing) => {
                tracing::debug!(failure = ?passing, "a watch goes on at another member of etcd");
                Ok(())
            }
            lasting => Err(cluster::error(lasting)),
        }
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> Pending<'_, Watched> {
        Box::pin(Self::next(self))
    }
}
