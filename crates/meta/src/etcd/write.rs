//! Writes that happen once, also when answers are lost.
//!
//! A lost answer leaves open whether a write happened, and even whether it still will: a member may have handed it to a
//! leader that is slow. Trying again could do it twice. So every write also puts a *marker*: a key that nobody else writes,
//! with a value that was never used, and expects the marker to be as it was left. Then
//!
//! 1. a write that is sent several times happens at most once, as it changes what it expects of the marker;
//! 2. its next answer tells what became of it: the marker has its value, or it has not happened so far;
//! 3. if it did not and shall not any more (something is not as expected), a *fence* is put into the marker, after which
//!    no copy of it that is still under way can happen.
//!
//! Only if nobody can be asked for so long that patience ends, or the marker itself is gone, the outcome is unknown.
//! Markers belong to a lease, so they vanish some time after their process.

use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::api::{Base64, Compare, DeleteRange, Grant, Int, KeyValue, Lease, LeaseId, Op, Put, Range, Txn, TxnAnswer};
use super::cluster::{self, Cluster, Pause, body, code, error, is_passing};
use super::http::Failure;
use super::keys::Namespace;
use crate::{Change, Expect, Revision, Written, meta_store};

/// Writes at a time; more wait.
const AT_ONCE: usize = 16;
/// How long markers stay after the last write of their process.
const MARKER_TTL: Duration = Duration::from_secs(600);
/// How old their lease may get before it is renewed.
const RENEWED: Duration = Duration::from_secs(120);

/// The markers of this process.
pub(super) struct Markers {
    places: Semaphore,
    idle: parking_lot::Mutex<Vec<Marker>>,
    lease: tokio::sync::Mutex<Option<(Int, Instant)>>,
}

/// A key that only this process writes.
struct Marker {
    key: Base64,
    /// By which revision it was last put.
    revision: Int,
}

/// What became of a write that had an open end.
enum Settled {
    Happened(Int),
    Never,
    Unknown,
}

impl Default for Markers {
    fn default() -> Self {
        let (idle, lease) = (parking_lot::Mutex::default(), tokio::sync::Mutex::default());
        Self { places: Semaphore::new(AT_ONCE), idle, lease }
    }
}

impl Markers {
    /// Does a write once, or says that it did not happen, or that nobody knows. It goes on to the end once it is polled, if
    /// it is let to: whoever gives up waiting should not drop it.
    pub(super) async fn write(
        &self,
        cluster: &Cluster,
        namespace: &Namespace,
        expects: &[Expect],
        changes: &[Change],
    ) -> Result<Written> {
        let closed = |_| Error::new(ErrorKind::Internal, "writers to etcd were shut out");
        let _place = self.places.acquire().await.map_err(closed)?;
        let deadline = cluster.deadline();
        loop {
            let mut marker = self.take(cluster, namespace).await?;
            let writing = Writing::new(cluster, namespace, expects, changes, deadline);
            match writing.run(&mut marker).await? {
                Some(written) => {
                    self.idle.lock().push(marker);
                    return Ok(written);
                }
                // The marker was gone before anything happened: with another one.
                None => {
                    self.idle.lock().clear();
                    *self.lease.lock().await = None;
                }
            }
        }
    }

    /// A marker that nobody uses.
    async fn take(&self, cluster: &Cluster, namespace: &Namespace) -> Result<Marker> {
        let lease = self.lease(cluster).await?;
        if let Some(marker) = { self.idle.lock().pop() } {
            return Ok(marker);
        }
        let key = namespace.marker(rand::random());
        let put = Put { key: key.clone(), value: Base64(b"new".to_vec()), lease, ignore_lease: false };
        let txn = Txn {
            compare: vec![Compare::revision(key.clone(), Int(0))],
            success: vec![Op::Put(put)],
            failure: vec![read(&key)],
        };
        let answer: TxnAnswer = cluster.ask("/v3/kv/txn", &txn).await.map_err(error)?;
        let revision = if answer.succeeded {
            answer.header.revision
        } else {
            // It was put by the first of several attempts.
            let gone =
                || Error::new(ErrorKind::Unavailable, "etcd: a marker vanished as soon as it was put: try again");
            marker_of(answer).ok_or_else(gone)?.mod_revision
        };
        Ok(Marker { key, revision })
    }

    /// The lease of the markers, which has most of its time left.
    async fn lease(&self, cluster: &Cluster) -> Result<Int> {
        let mut lease = self.lease.lock().await;
        let now = Instant::now();
        if let Some((id, renewed)) = *lease {
            if now.saturating_duration_since(renewed) < RENEWED {
                return Ok(id);
            }
            if keep(cluster, id).await?.is_some() {
                *lease = Some((id, now));
                return Ok(id);
            }
            // They have gone with it.
            self.idle.lock().clear();
        }
        let granted = grant(cluster, MARKER_TTL).await?;
        *lease = Some((granted.id, now));
        Ok(granted.id)
    }
}

/// Opens a lease.
pub(super) async fn grant(cluster: &Cluster, ttl: Duration) -> Result<Lease> {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let ttl = Int(i64::try_from(seconds).unwrap_or(i64::MAX));
    let granted: Lease = cluster.ask("/v3/lease/grant", &Grant { ttl }).await.map_err(error)?;
    if granted.id.0 <= 0 || granted.ttl < ttl {
        let message = format!("etcd: it granted lease {} for {} s, of {} s", granted.id.0, granted.ttl.0, ttl.0);
        return Err(Error::new(ErrorKind::Internal, message));
    }
    Ok(granted)
}

/// Renews a lease; `None` if it has ended.
pub(super) async fn keep(cluster: &Cluster, id: Int) -> Result<Option<()>> {
    let answer = cluster.ask::<super::api::Streamed<Lease>>("/v3/lease/keepalive", &LeaseId { id }).await;
    match answer.map_err(error)? {
        super::api::Streamed { result: Some(lease), .. } => Ok((lease.ttl.0 > 0).then_some(())),
        super::api::Streamed { error: Some(why), .. } => {
            Err(error(Failure::Refused { code: why.grpc_code, message: why.message }))
        }
        _ => Err(Error::new(ErrorKind::Unavailable, "etcd: an answer says nothing: try again")),
    }
}

/// A write that is under way.
struct Writing<'a> {
    cluster: &'a Cluster,
    namespace: &'a Namespace,
    expects: &'a [Expect],
    changes: &'a [Change],
    nonce: Base64,
    pause: Pause,
    /// Whether it was sent and not answered: it may happen, now or later.
    is_open: bool,
}

impl<'a> Writing<'a> {
    fn new(
        cluster: &'a Cluster,
        namespace: &'a Namespace,
        expects: &'a [Expect],
        changes: &'a [Change],
        deadline: Instant,
    ) -> Self {
        let nonce = Base64(format!("{:032x}", rand::random::<u128>()).into_bytes());
        Self { cluster, namespace, expects, changes, nonce, pause: Pause::new(deadline), is_open: false }
    }

    /// `None` if the marker was gone, and nothing happened.
    async fn run(mut self, marker: &mut Marker) -> Result<Option<Written>> {
        let request = body(&self.txn(marker)).map_err(error)?;
        loop {
            match self.cluster.attempt::<TxnAnswer>("/v3/kv/txn", request.clone()).await {
                Ok(answer) if answer.succeeded => {
                    marker.revision = answer.header.revision;
                    return Ok(Some(done(answer.header.revision)));
                }
                Ok(answer) => match marker_of(answer) {
                    Some(found) if found.value == self.nonce => {
                        marker.revision = found.mod_revision;
                        return Ok(Some(done(found.mod_revision)));
                    }
                    Some(found) if found.mod_revision == marker.revision => {
                        return self.refused(marker).await.map(|happened| Some(happened.unwrap_or(Written::Conflict)));
                    }
                    _ if self.is_open => return Err(unknown("the marker of the write is gone")),
                    _ => return Ok(None),
                },
                Err(failure) if is_passing(&failure) => {
                    self.is_open |= !matches!(failure, Failure::NotSent(_));
                    if !self.pause.wait(self.cluster.members()).await {
                        return Err(if self.is_open { unknown(&error(failure).to_string()) } else { error(failure) });
                    }
                }
                Err(failure) => match self.refused(marker).await? {
                    Some(happened) => return Ok(Some(happened)),
                    None => return Err(self.refusal(failure)),
                },
            }
        }
    }

    /// It was refused: it has not happened, unless by an earlier attempt; says how that ended.
    async fn refused(&mut self, marker: &mut Marker) -> Result<Option<Written>> {
        if !self.is_open {
            return Ok(None);
        }
        match self.settle(marker).await? {
            Settled::Happened(revision) => Ok(Some(done(revision))),
            Settled::Never => Ok(None),
            Settled::Unknown => Err(unknown("the marker of the write is gone")),
        }
    }

    /// Puts a fence, so that what is still under way cannot happen any more, or finds that it has happened.
    async fn settle(&mut self, marker: &mut Marker) -> Result<Settled> {
        let fence = Base64([b"fence ", &self.nonce.0[..]].concat());
        let put = Put { key: marker.key.clone(), value: fence.clone(), lease: Int(0), ignore_lease: true };
        let txn = Txn {
            compare: vec![Compare::revision(marker.key.clone(), marker.revision)],
            success: vec![Op::Put(put)],
            failure: vec![read(&marker.key)],
        };
        let request = body(&txn).map_err(error)?;
        loop {
            match self.cluster.attempt::<TxnAnswer>("/v3/kv/txn", request.clone()).await {
                Ok(answer) if answer.succeeded => {
                    marker.revision = answer.header.revision;
                    return Ok(Settled::Never);
                }
                Ok(answer) => {
                    let Some(found) = marker_of(answer) else { return Ok(Settled::Unknown) };
                    marker.revision = found.mod_revision;
                    return Ok(match found.value {
                        value if value == self.nonce => Settled::Happened(found.mod_revision),
                        value if value == fence => Settled::Never,
                        _ => Settled::Unknown,
                    });
                }
                Err(failure) => {
                    if !is_passing(&failure) || !self.pause.wait(self.cluster.members()).await {
                        return Err(unknown(&error(failure).to_string()));
                    }
                }
            }
        }
    }

    fn txn(&self, marker: &Marker) -> Txn {
        let revision =
            |revision: Option<Revision>| Int(revision.map_or(0, |revision| i64::try_from(revision.0).unwrap_or(-1)));
        let expects =
            self.expects.iter().map(|one| Compare::revision(self.namespace.key(&one.key), revision(one.revision)));
        let lease = |session: Option<crate::SessionId>| Int(session.map_or(0, |id| i64::try_from(id.0).unwrap_or(-1)));
        let changes = self.changes.iter().map(|change| match change {
            Change::Put { key, value, session } => {
                let (key, value) = (self.namespace.key(key), Base64(value.to_vec()));
                Op::Put(Put { key, value, lease: lease(*session), ignore_lease: false })
            }
            Change::Remove { key } => Op::DeleteRange(DeleteRange { key: self.namespace.key(key) }),
        });
        let (key, value) = (marker.key.clone(), self.nonce.clone());
        let mark = Op::Put(Put { key, value, lease: Int(0), ignore_lease: true });
        Txn {
            compare: expects.chain([Compare::revision(marker.key.clone(), marker.revision)]).collect(),
            success: changes.chain([mark]).collect(),
            failure: vec![read(&marker.key)],
        }
    }

    fn refusal(&self, failure: Failure) -> Error {
        let session = self.changes.iter().find_map(|change| match change {
            Change::Put { session, .. } => *session,
            Change::Remove { .. } => None,
        });
        match (&failure, session) {
            // Which of several it is etcd does not say.
            (Failure::Refused { code: code::NOT_FOUND, .. }, Some(session)) => meta_store::session_ended(session),
            _ => cluster::error(failure),
        }
    }
}

fn done(revision: Int) -> Written {
    Written::Done(Revision(revision.to_u64()))
}

fn read(key: &Base64) -> Op {
    Op::Range(Range { key: key.clone(), ..Range::default() })
}

/// What was read of a marker.
fn marker_of(answer: TxnAnswer) -> Option<KeyValue> {
    answer.responses.into_iter().next()?.response_range?.kvs.into_iter().next()
}

fn unknown(why: &str) -> Error {
    let message = format!("it is not known whether a write to the catalogue happened ({why}): read to find out");
    Error::new(ErrorKind::Unknown, message)
}
