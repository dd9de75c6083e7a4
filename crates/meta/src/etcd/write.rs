//! Writes that take effect once, even if answers are lost.
//!
//! After a lost answer it is open whether the write has taken effect, and whether it still will: a member may have
//! forwarded it to a slow leader. Sending it again could apply it twice. Every write therefore also puts a *marker*, a
//! key that no other writer uses, with a value that was never used before, and expects the marker to be unchanged. Then
//!
//! 1. a write that is sent several times takes effect at most once, because it changes its own expectation;
//! 2. its next answer shows the outcome: either the marker has the new value, or the write has not taken effect so far;
//! 3. if it has not and must not any more (another expectation failed), a *fence* is written to the marker, after which no
//!    delayed copy can take effect.
//!
//! The outcome is unknown only if no member answers within the time limit, or if the marker itself is gone. Markers
//! belong to a lease, so they are removed some time after their process ends.

use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::api::{
    Base64, Compare, DeleteRange, Grant, JsonInt64, KeyValue, Lease, LeaseId, Op, Put, Range, Txn, TxnAnswer,
};
use super::cluster::{self, Backoff, EtcdCluster, body, code, is_transient, to_error};
use super::http::RequestFailure;
use super::keys::Namespace;
use super::origin::Origin;
use crate::catalogue_move;
use crate::plant::{Bug, planted};
use crate::{Expect, KeyChange, Revision, WriteOutcome, meta_store};

/// Most concurrent writes; others wait.
const MAX_CONCURRENT_WRITES: usize = 16;
/// How long markers live after the last write of their process.
const MARKER_TTL: Duration = Duration::from_secs(600);
/// Age at which the lease of the markers is renewed.
const LEASE_RENEWAL_AGE: Duration = Duration::from_secs(120);

/// The markers of a process.
pub(super) struct Markers {
    permits: Semaphore,
    idle: parking_lot::Mutex<Vec<Marker>>,
    lease: tokio::sync::Mutex<Option<(JsonInt64, Instant)>>,
}

/// A key that only this process writes.
struct Marker {
    key: Base64,
    /// The revision of its last put.
    revision: JsonInt64,
}

/// The result of a fence.
enum FenceOutcome {
    Committed(JsonInt64),
    NotCommitted,
    Unknown,
}

impl Default for Markers {
    fn default() -> Self {
        let (idle, lease) = (parking_lot::Mutex::default(), tokio::sync::Mutex::default());
        Self { permits: Semaphore::new(MAX_CONCURRENT_WRITES), idle, lease }
    }
}

impl Markers {
    /// Executes a write at most once and returns its outcome, or an error of kind `Unknown`. Do not drop the future before it ends:
    /// the state of the marker would be lost.
    pub(super) async fn write(
        &self,
        cluster: &EtcdCluster,
        namespace: &Namespace,
        origin: Origin,
        expects: &[Expect],
        changes: &[KeyChange],
    ) -> Result<WriteOutcome> {
        let closed = |_| Error::new(ErrorKind::Internal, "the semaphore of writers to etcd was closed");
        let _place = self.permits.acquire().await.map_err(closed)?;
        let deadline = cluster.deadline();
        loop {
            let mut marker = self.acquire_marker(cluster, namespace).await?;
            let writing = MarkedWrite::new(cluster, namespace, origin, expects, changes, deadline);
            match writing.run(&mut marker).await? {
                Some(written) => {
                    self.idle.lock().push(marker);
                    return Ok(written);
                }
                // The marker was removed before the write took effect: repeat with a new one.
                None => {
                    self.idle.lock().clear();
                    *self.lease.lock().await = None;
                }
            }
        }
    }

    /// A marker that no other write uses.
    async fn acquire_marker(&self, cluster: &EtcdCluster, namespace: &Namespace) -> Result<Marker> {
        let lease = self.lease(cluster).await?;
        if let Some(marker) = { self.idle.lock().pop() } {
            return Ok(marker);
        }
        let key = namespace.marker(rand::random());
        let put = Put { key: key.clone(), value: Base64(b"new".to_vec()), lease, ignore_lease: false };
        let txn = Txn {
            compare: vec![Compare::revision(key.clone(), JsonInt64(0))],
            success: vec![Op::Put(put)],
            failure: vec![read_op(&key)],
        };
        let answer: TxnAnswer = cluster.request("/v3/kv/txn", &txn).await.map_err(to_error)?;
        let revision = if answer.succeeded {
            answer.header.revision
        } else {
            // An earlier attempt has put it.
            let gone =
                || Error::new(ErrorKind::Unavailable, "etcd: a marker was removed right after it was put: try again");
            marker_of(answer).ok_or_else(gone)?.mod_revision
        };
        Ok(Marker { key, revision })
    }

    /// The lease of the markers, renewed if it is old.
    async fn lease(&self, cluster: &EtcdCluster) -> Result<JsonInt64> {
        let mut lease = self.lease.lock().await;
        let now = Instant::now();
        if let Some((id, renewed)) = *lease {
            if now.saturating_duration_since(renewed) < LEASE_RENEWAL_AGE {
                return Ok(id);
            }
            if renew_lease(cluster, id).await?.is_some() {
                *lease = Some((id, now));
                return Ok(id);
            }
            // The markers were removed with the lease.
            self.idle.lock().clear();
        }
        let granted = grant_lease(cluster, MARKER_TTL).await?;
        *lease = Some((granted.id, now));
        Ok(granted.id)
    }
}

/// Opens a lease.
pub(super) async fn grant_lease(cluster: &EtcdCluster, ttl: Duration) -> Result<Lease> {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let ttl = JsonInt64(i64::try_from(seconds).unwrap_or(i64::MAX));
    let granted: Lease = cluster.request("/v3/lease/grant", &Grant { ttl }).await.map_err(to_error)?;
    if granted.id.0 <= 0 || granted.ttl < ttl {
        let message =
            format!("etcd granted lease {} for {} s, not for the requested {} s", granted.id.0, granted.ttl.0, ttl.0);
        return Err(Error::new(ErrorKind::Internal, message));
    }
    Ok(granted)
}

/// Renews a lease; `None` if it has ended.
pub(super) async fn renew_lease(cluster: &EtcdCluster, id: JsonInt64) -> Result<Option<()>> {
    let answer = cluster.request::<super::api::StreamMessage<Lease>>("/v3/lease/keepalive", &LeaseId { id }).await;
    match answer.map_err(to_error)? {
        super::api::StreamMessage { result: Some(lease), .. } => Ok((lease.ttl.0 > 0).then_some(())),
        super::api::StreamMessage { error: Some(why), .. } => {
            Err(to_error(RequestFailure::Refused { code: why.grpc_code, message: why.message }))
        }
        _ => Err(Error::new(ErrorKind::Unavailable, "etcd: the answer to a renewal is empty: try again")),
    }
}

/// A write in progress.
struct MarkedWrite<'a> {
    cluster: &'a EtcdCluster,
    namespace: &'a Namespace,
    origin: Origin,
    expects: &'a [Expect],
    changes: &'a [KeyChange],
    nonce: Base64,
    pause: Backoff,
    /// Whether an attempt was sent whose answer was lost: it may take effect, now or later.
    is_uncertain: bool,
}

impl<'a> MarkedWrite<'a> {
    fn new(
        cluster: &'a EtcdCluster,
        namespace: &'a Namespace,
        origin: Origin,
        expects: &'a [Expect],
        changes: &'a [KeyChange],
        deadline: Instant,
    ) -> Self {
        let nonce = Base64(format!("{:032x}", rand::random::<u128>()).into_bytes());
        let pause = Backoff::new(deadline);
        Self { cluster, namespace, origin, expects, changes, nonce, pause, is_uncertain: false }
    }

    /// Runs the write; returns `None` if the marker did not exist and the write had no effect.
    async fn run(mut self, marker: &mut Marker) -> Result<Option<WriteOutcome>> {
        let request = body(&self.txn(marker)?).map_err(to_error)?;
        loop {
            match self.cluster.request_once::<TxnAnswer>("/v3/kv/txn", request.clone()).await {
                Ok(answer) if answer.succeeded => {
                    marker.revision = answer.header.revision;
                    return Ok(Some(self.done_outcome(answer.header.revision)));
                }
                Ok(answer) => {
                    let closed = self.closed_error(&answer);
                    return self.handle_failed_condition(marker, marker_of(answer), closed).await;
                }
                Err(failure) if is_transient(&failure) => {
                    self.is_uncertain |= !matches!(failure, RequestFailure::NotSent(_) | RequestFailure::Mismatch(_));
                    if !self.pause.wait(&failure, self.cluster.members()).await {
                        return Err(if self.is_uncertain {
                            unknown_error(&to_error(failure).to_string())
                        } else {
                            to_error(failure)
                        });
                    }
                }
                Err(failure) => match self.resolve_refusal(marker).await? {
                    Some(happened) => return Ok(Some(happened)),
                    None => return Err(self.refusal_error(failure)),
                },
            }
        }
    }

    /// Handles that a condition of the write does not hold: one of the caller, the marker, or what closes the catalogue.
    async fn handle_failed_condition(
        &mut self,
        marker: &mut Marker,
        found: Option<KeyValue>,
        closed: Option<Error>,
    ) -> Result<Option<WriteOutcome>> {
        match found {
            Some(found) if found.value == self.nonce => {
                marker.revision = found.mod_revision;
                Ok(Some(self.done_outcome(found.mod_revision)))
            }
            Some(found) if found.mod_revision == marker.revision => {
                match (self.resolve_refusal(marker).await?, closed) {
                    (Some(happened), _) => Ok(Some(happened)),
                    (None, Some(error)) => Err(error),
                    (None, None) => Ok(Some(WriteOutcome::Conflict)),
                }
            }
            _ if self.is_uncertain => Err(unknown_error("the marker of the write was removed")),
            _ => closed.map_or(Ok(None), Err),
        }
    }

    /// Why the catalogue accepts no write, by the answer to a failed one.
    fn closed_error(&self, answer: &TxnAnswer) -> Option<Error> {
        let found = |at: usize| answer.responses.get(at)?.response_range.as_ref()?.kvs.first();
        let record = found(1).map_or(JsonInt64(0), |found| found.mod_revision);
        if record != self.origin.record {
            let what = "another catalogue was copied to this namespace of etcd: start this process again";
            return Some(Error::new(ErrorKind::Denied, what));
        }
        let seal = found(2).filter(|_| !catalogue_move::is_cancellation(self.changes))?;
        Some(catalogue_move::sealed_error(&seal.value.0))
    }

    fn done_outcome(&self, revision: JsonInt64) -> WriteOutcome {
        WriteOutcome::Done(self.origin.revision(revision))
    }

    /// Handles a failed expectation: the write had no effect, unless an earlier attempt had. Returns the outcome.
    async fn resolve_refusal(&mut self, marker: &mut Marker) -> Result<Option<WriteOutcome>> {
        if !self.is_uncertain {
            return Ok(None);
        }
        match self.fence(marker).await? {
            FenceOutcome::Committed(revision) => Ok(Some(self.done_outcome(revision))),
            FenceOutcome::NotCommitted => Ok(None),
            FenceOutcome::Unknown => Err(unknown_error("the marker of the write was removed")),
        }
    }

    /// Puts a fence, after which no attempt in flight can take effect, or finds that one has taken effect.
    async fn fence(&mut self, marker: &mut Marker) -> Result<FenceOutcome> {
        let fence = Base64([b"fence ", &self.nonce.0[..]].concat());
        let put = Put { key: marker.key.clone(), value: fence.clone(), lease: JsonInt64(0), ignore_lease: true };
        let txn = Txn {
            compare: vec![Compare::revision(marker.key.clone(), marker.revision)],
            success: vec![Op::Put(put)],
            failure: vec![read_op(&marker.key)],
        };
        let request = body(&txn).map_err(to_error)?;
        loop {
            match self.cluster.request_once::<TxnAnswer>("/v3/kv/txn", request.clone()).await {
                Ok(answer) if answer.succeeded => {
                    marker.revision = answer.header.revision;
                    return Ok(FenceOutcome::NotCommitted);
                }
                Ok(answer) => {
                    let Some(found) = marker_of(answer) else { return Ok(FenceOutcome::Unknown) };
                    marker.revision = found.mod_revision;
                    return Ok(match found.value {
                        value if value == self.nonce => FenceOutcome::Committed(found.mod_revision),
                        value if value == fence => FenceOutcome::NotCommitted,
                        _ => FenceOutcome::Unknown,
                    });
                }
                Err(failure) => {
                    if !is_transient(&failure) || !self.pause.wait(&failure, self.cluster.members()).await {
                        return Err(unknown_error(&to_error(failure).to_string()));
                    }
                }
            }
        }
    }

    fn txn(&self, marker: &Marker) -> Result<Txn> {
        let revision =
            |revision: Option<Revision>| revision.map_or(JsonInt64(0), |revision| self.origin.of_etcd(revision));
        let expects =
            self.expects.iter().map(|one| Compare::revision(self.namespace.key(&one.key), revision(one.revision)));
        let lease = |session: Option<crate::MetaSessionId>| {
            JsonInt64(session.map_or(0, |id| i64::try_from(id.0).unwrap_or(-1)))
        };
        let changes = self.changes.iter().map(|change| match change {
            KeyChange::Put { key, value, session } => {
                let (key, value) = (self.namespace.key(key), Base64(value.to_vec()));
                Op::Put(Put { key, value, lease: lease(*session), ignore_lease: false })
            }
            KeyChange::Remove { key } => Op::DeleteRange(DeleteRange::key(self.namespace.key(key))),
        });
        let (key, value) = (marker.key.clone(), self.nonce.clone());
        let mark = Op::Put(Put { key, value, lease: JsonInt64(0), ignore_lease: true });
        let (record, seal) = (self.namespace.origin(), self.namespace.key(&catalogue_move::seal_key()?));
        let mut compare: Vec<Compare> = expects.collect();
        compare.push(Compare::revision(marker.key.clone(), marker.revision));
        compare.push(Compare::revision(record.clone(), self.origin.record));
        if !catalogue_move::is_cancellation(self.changes) && !planted(Bug::SealIgnored) {
            compare.push(Compare::revision(seal.clone(), JsonInt64(0)));
        }
        let failure = vec![read_op(&marker.key), read_op(&record), read_op(&seal)];
        Ok(Txn { compare, success: changes.chain([mark]).collect(), failure })
    }

    fn refusal_error(&self, failure: RequestFailure) -> Error {
        let session = self.changes.iter().find_map(|change| match change {
            KeyChange::Put { session, .. } => *session,
            KeyChange::Remove { .. } => None,
        });
        match (&failure, session) {
            // etcd does not report which lease was not found.
            (RequestFailure::Refused { code: code::NOT_FOUND, .. }, Some(session)) => {
                meta_store::session_ended(session)
            }
            _ => cluster::to_error(failure),
        }
    }
}

fn read_op(key: &Base64) -> Op {
    Op::Range(Range { key: key.clone(), ..Range::default() })
}

/// The marker that was read.
fn marker_of(answer: TxnAnswer) -> Option<KeyValue> {
    answer.responses.into_iter().next()?.response_range?.kvs.into_iter().next()
}

fn unknown_error(why: &str) -> Error {
    let message = format!("the outcome of a write to the catalogue is unknown ({why}): read the catalogue to find out");
    Error::new(ErrorKind::Unknown, message)
}
