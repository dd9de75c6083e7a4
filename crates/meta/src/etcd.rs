//! A catalogue in etcd 3.4 or later: for clusters that must survive the loss of a machine.
//!
//! It uses etcd's gateway, JSON over HTTP/1.1, which every member serves at its client address. Requests go to the next member
//! if one does not answer or has no leader, so the loss of a leader is a pause. Reads are linearizable, writes take effect once
//! (`write`), and watches lose nothing (`watch`). Sessions are leases of etcd.

use std::sync::Arc;
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::sync::OnceCell;
use wire::tasks;
use wire::transport::tls;

mod api;
mod cluster;
mod copy;
mod http;
mod keys;
mod login;
mod origin;
mod watch;
mod write;

use crate::{
    Expect, Key, KeyChange, MetaEntry, MetaSession, MetaSessionId, MetaSnapshot, MetaStore, Pending, Prefix, Revision,
    Watch, WriteOutcome, limits, meta_store,
};
use api::{EmptyAnswer, JsonInt64, LeaseId, Op, Range, RangeAnswer, Txn, TxnAnswer};
use cluster::{EtcdCluster, code, to_error};
use http::RequestFailure;
use keys::Namespace;
pub use login::EtcdUser;
use origin::Origin;
use watch::EtcdWatch;
use write::Markers;

/// Most addresses of an etcd.
const MAX_ENDPOINTS: usize = 32;
/// Entries that are read with one request.
const ENTRIES_PER_READ: i64 = 256;
/// How often a read restarts because etcd was compacted meanwhile.
const MAX_READ_RESTARTS: usize = 10;

/// The addresses of an etcd and how to use it.
#[derive(Clone)]
pub struct EtcdConfig {
    /// The members' client addresses: `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The prefix of all keys. An etcd may hold the catalogues of several clusters.
    pub namespace: String,
    /// The user, if etcd requires one.
    pub user: Option<EtcdUser>,
    /// The trusted authorities, and the client certificate if etcd requires one; for `https`.
    pub tls: Option<tls::Client>,
    /// Time limit of one request to one member.
    pub attempt_timeout: Duration,
    /// Time limit of an operation. It should be longer than the election of a leader.
    pub operation_timeout: Duration,
}

impl EtcdConfig {
    /// An etcd with these members and default settings.
    #[must_use]
    pub fn new(endpoints: impl IntoIterator<Item = String>) -> Self {
        let (namespace, user) = ("mortar".to_owned(), None);
        let (attempt, patience) = (Duration::from_secs(3), Duration::from_secs(30));
        Self {
            endpoints: endpoints.into_iter().collect(),
            namespace,
            user,
            tls: None,
            attempt_timeout: attempt,
            operation_timeout: patience,
        }
    }
}

/// A catalogue in etcd. Clones share their connections.
#[derive(Clone)]
pub struct Etcd {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: EtcdCluster,
    namespace: Namespace,
    markers: Markers,
    /// Where revisions begin, once it is known. It does not change while the namespace has a catalogue.
    origin: OnceCell<Origin>,
}

impl Etcd {
    /// The catalogue in this etcd. Does not connect yet.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for invalid addresses or an invalid namespace; those of the file with the password.
    pub fn new(config: &EtcdConfig) -> Result<Self> {
        let (cluster, namespace) = (EtcdCluster::new(config)?, Namespace::new(&config.namespace)?);
        Ok(Self { inner: Arc::new(Inner { cluster, namespace, markers: Markers::default(), origin: OnceCell::new() }) })
    }
}

impl Inner {
    /// Where revisions begin.
    async fn origin(&self) -> Result<Origin, RequestFailure> {
        let load = || async {
            let range = Range { key: self.namespace.origin(), ..Range::default() };
            let answer: RangeAnswer = self.cluster.request("/v3/kv/range", &range).await?;
            Origin::of(answer.kvs.first()).map_err(RequestFailure::Mismatch)
        };
        self.origin.get_or_try_init(load).await.copied()
    }

    /// Reads a prefix in pages, all as of the revision of the first one.
    async fn read(&self, prefix: &Prefix) -> Result<MetaSnapshot> {
        self.read_from(self.origin().await.map_err(to_error)?, prefix).await
    }

    async fn read_from(&self, origin: Origin, prefix: &Prefix) -> Result<MetaSnapshot> {
        for _ in 0..MAX_READ_RESTARTS {
            match self.read_once(origin, prefix).await {
                Err(RequestFailure::Refused { code: code::OUT_OF_RANGE, .. }) => {}
                Err(failure) => return Err(to_error(failure)),
                Ok(state) => return state,
            }
        }
        let message = format!(
            "etcd forgot its history {MAX_READ_RESTARTS} times while the catalogue was read: compact it less often"
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    async fn read_once(&self, origin: Origin, prefix: &Prefix) -> Result<Result<MetaSnapshot>, RequestFailure> {
        let (key, range_end) = self.namespace.range(prefix);
        let mut request = Range { key, range_end, limit: JsonInt64(ENTRIES_PER_READ), revision: JsonInt64(0) };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            let page: RangeAnswer = match self.cluster.request("/v3/kv/range", &request).await {
                // The answer is too large: read fewer entries at a time.
                Err(failure) if is_too_long(&failure) && request.limit.0 > 1 => {
                    request.limit.0 /= 2;
                    continue;
                }
                answered => answered?,
            };
            if request.revision.0 == 0 {
                request.revision = page.header.revision;
            }
            let last = page.kvs.last().map(|found| found.key.clone());
            for found in page.kvs {
                bytes += found.key.0.len() + found.value.0.len();
                match self.namespace.entry(origin, found) {
                    Ok(entry) => entries.push(entry),
                    Err(error) => return Ok(Err(error)),
                }
            }
            if bytes > limits::READ {
                return Ok(Err(meta_store::read_too_large(prefix)));
            }
            match last {
                Some(mut last) if page.more => {
                    last.0.push(0);
                    request.key = last;
                }
                _ => return Ok(Ok(MetaSnapshot { revision: origin.revision(request.revision), entries })),
            }
        }
    }

    async fn get(&self, mut keys: Vec<Key>) -> Result<MetaSnapshot> {
        let origin = self.origin().await.map_err(to_error)?;
        keys.sort_unstable();
        keys.dedup();
        let mut ranges: Vec<Range> =
            keys.iter().map(|key| Range { key: self.namespace.key(key), ..Range::default() }).collect();
        if ranges.is_empty() {
            // Reads the marker, because etcd documents an empty transaction as not linearizable.
            ranges.push(Range { key: self.namespace.marker(0), ..Range::default() });
        }
        let (revision, found) = match self.get_at_once(&ranges).await {
            Err(failure) if is_too_long(&failure) => self.get_each(ranges).await.map_err(to_error)?,
            answered => answered.map_err(to_error)?,
        };
        let mut entries: Vec<(Key, MetaEntry)> = Vec::new();
        for found in found {
            entries.push(self.namespace.entry(origin, found)?);
        }
        Ok(MetaSnapshot { revision: origin.revision(revision), entries })
    }

    async fn get_at_once(&self, ranges: &[Range]) -> Result<(JsonInt64, Vec<api::KeyValue>), RequestFailure> {
        let txn = Txn { success: ranges.iter().cloned().map(Op::Range).collect(), ..Txn::default() };
        let answer: TxnAnswer = self.cluster.request("/v3/kv/txn", &txn).await?;
        let found = answer.responses.into_iter().filter_map(|one| one.response_range).flat_map(|one| one.kvs);
        Ok((answer.header.revision, found.collect()))
    }

    /// Reads ranges with one request each, as of the revision of the first.
    async fn get_each(&self, ranges: Vec<Range>) -> Result<(JsonInt64, Vec<api::KeyValue>), RequestFailure> {
        let (mut revision, mut found) = (JsonInt64(0), Vec::new());
        for range in ranges {
            let answer: RangeAnswer = self.cluster.request("/v3/kv/range", &Range { revision, ..range }).await?;
            if revision.0 == 0 {
                revision = answer.header.revision;
            }
            found.extend(answer.kvs);
        }
        Ok((revision, found))
    }

    async fn end_session(&self, session: MetaSessionId) -> Result<()> {
        let revoked: Result<EmptyAnswer, RequestFailure> =
            self.cluster.request("/v3/lease/revoke", &LeaseId { id: lease_id(session)? }).await;
        match revoked {
            Err(RequestFailure::Refused { code: code::NOT_FOUND, .. }) => Ok(()),
            answered => answered.map(drop).map_err(to_error),
        }
    }

    async fn renew_session(&self, session: MetaSessionId) -> Result<()> {
        let kept = write::renew_lease(&self.cluster, lease_id(session)?).await?;
        kept.ok_or_else(|| meta_store::session_ended(session))
    }
}

fn lease_id(session: MetaSessionId) -> Result<JsonInt64> {
    i64::try_from(session.0).map(JsonInt64).map_err(|_| meta_store::session_ended(session))
}

/// Whether an answer was too large to be sent or received.
fn is_too_long(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::TooLong => true,
        RequestFailure::Refused { code: code::RESOURCE_EXHAUSTED, message } => message.contains("larger than max"),
        _ => false,
    }
}

impl MetaStore for Etcd {
    fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot> {
        Box::pin(async move { self.inner.read(&prefix).await })
    }

    fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot> {
        Box::pin(async {
            meta_store::check_get(&keys)?;
            self.inner.get(keys).await
        })
    }

    fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome> {
        Box::pin(async {
            meta_store::check_write(&expects, &changes)?;
            let inner = self.inner.clone();
            // Runs to its end even if the caller stops waiting, because the state of its marker must be known afterwards.
            let writing = tasks::spawn(async move {
                let origin = inner.origin().await.map_err(to_error)?;
                inner.markers.write(&inner.cluster, &inner.namespace, origin, &expects, &changes).await
            });
            let ended = |_| Error::new(ErrorKind::Unknown, "the process ended during a write to the catalogue");
            writing.await.map_err(ended)?
        })
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>> {
        let watch = EtcdWatch::new(self.inner.clone(), prefix, after);
        Box::pin(async { Ok(Box::new(watch) as Box<dyn Watch>) })
    }

    fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession> {
        Box::pin(async move {
            meta_store::check_ttl(ttl)?;
            let granted = write::grant_lease(&self.inner.cluster, ttl).await?;
            Ok(MetaSession { id: MetaSessionId(granted.id.to_u64()), ttl: Duration::from_secs(granted.ttl.to_u64()) })
        })
    }

    fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        Box::pin(self.inner.renew_session(session))
    }

    fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        Box::pin(self.inner.end_session(session))
    }
}

#[cfg(test)]
mod tests;
