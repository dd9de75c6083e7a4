//! Membership of a process in its cluster: its number in the catalogue, and the entry that it is alive.
//!
//! 1. A brick's number is kept in its store, with the identity of the cluster. A brick that has lost its store is a new
//!    brick, and a store never becomes part of another cluster.
//! 2. A peer server has the number that the catalogue has for its addresses.
//! 3. A process that is alive has an entry, which belongs to a session that the process renews. While the meta-server is
//!    unreachable, the processes continue to work together; afterwards each process enters itself again.
//! 4. The entry of a brick says if the brick refuses to serve because of its clock. Such a brick gets no logical nodes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use meta::catalog::{BrickId, CatalogEditor, CatalogError, Edited, Liveness, PeerId, ServerId, StartNumber, Storage};
use meta::{MetaSession, MetaSessionId};
use model::{Error, ErrorKind, Result};
use store::{RowChanges, Store};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time;
use tracing::{error, info, warn};
use wire::connector::Backoff;
use wire::tasks;
use wire::transport::Address;

use crate::blocking;
use crate::cluster_view::ClusterView;

/// The row of a brick's store with the numbers of the cluster and the brick.
pub(crate) const IDENTITY_ROW: &[u8] = b"member";
/// Pauses between attempts to renew the session while the catalogue cannot be reached.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_millis(750);
/// Time limit of ending the session when the process ends. Otherwise it expires.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Keeps the entry of a process alive until it is dropped.
pub struct Member {
    editor: CatalogEditor,
    task: AbortHandle,
    session: watch::Receiver<Option<MetaSessionId>>,
    ended: watch::Receiver<Option<String>>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("session", &*self.session.borrow()).finish_non_exhaustive()
    }
}

/// The number of the brick with this store: the number in the store, or a new one.
///
/// # Errors
/// [`ErrorKind::Denied`] if the store belongs to another cluster, or the brick was removed from this one; other kinds if
/// the catalogue or the store cannot be changed.
pub async fn brick_of(realm: &ClusterView, store: &Store, addresses: &[Address]) -> Result<BrickId> {
    let editor = realm.editor()?;
    let cluster = editor.parameters().await?.cluster;
    let row = store.clone();
    let known = blocking::wait(move || row.row(IDENTITY_ROW)).await?;
    if let Some(row) = known {
        let (of, brick) = parse_identity(&row)?;
        if of != cluster {
            let what = format!("this store is of cluster {of}; the meta-server is of cluster {cluster}");
            return Err(Error::new(ErrorKind::Denied, what));
        }
        if realm.catalog().is_some_and(|catalog| catalog.brick(brick).is_none()) {
            let what = format!("brick {brick} was removed from the cluster: start it with an empty data directory");
            return Err(Error::new(ErrorKind::Denied, what));
        }
        return Ok(brick);
    }
    let storage = if store.is_in_memory() { Storage::Memory } else { Storage::Durable };
    let Edited { value: brick, revision } = editor.add_brick(&addresses_to_strings(addresses), storage).await?;
    let mut changes = RowChanges::new();
    changes.put(IDENTITY_ROW, Bytes::from(format!("1 {cluster} {}", brick.id)));
    let store = store.clone();
    blocking::wait(move || store.commit_rows(changes)).await?;
    realm.wait_for_revision(revision).await?;
    info!(brick = brick.id.0, cluster, "this is a new brick");
    Ok(brick.id)
}

/// Enters another cluster in the store of a brick. The brick keeps its number.
///
/// # Errors
/// Those of the store.
pub(crate) fn set_cluster(store: &Store, cluster: &str, brick: BrickId) -> Result<()> {
    let mut changes = RowChanges::new();
    changes.put(IDENTITY_ROW, Bytes::from(format!("1 {cluster} {brick}")));
    store.commit_rows(changes).map(drop)
}

/// The number of the brick that a store belongs to; `None` if it belongs to none.
///
/// # Errors
/// If the row cannot be read.
pub fn stored_brick(store: &Store) -> Result<Option<BrickId>> {
    store.row(IDENTITY_ROW)?.map(|row| parse_identity(&row).map(|(_, brick)| brick)).transpose()
}

/// The number of the cluster that a store belongs to; `None` if it belongs to none.
///
/// # Errors
/// If the row cannot be read.
pub(crate) fn stored_cluster(store: &Store) -> Result<Option<String>> {
    store.row(IDENTITY_ROW)?.map(|row| parse_identity(&row).map(|(cluster, _)| cluster)).transpose()
}

/// Decodes the row of a brick: the cluster and the number of the brick.
fn parse_identity(row: &[u8]) -> Result<(String, BrickId)> {
    let text = str::from_utf8(row).unwrap_or_default();
    let mut words = text.split(' ');
    let parsed = match (words.next(), words.next(), words.next().map(str::parse), words.next()) {
        (Some("1"), Some(cluster), Some(Ok(brick)), None) => Some((cluster.to_owned(), BrickId(brick))),
        _ => None,
    };
    parsed.ok_or_else(|| {
        let what = format!(
            "the store names its brick as {text:?}, which this version cannot read: a newer version has written it"
        );
        Error::new(ErrorKind::Unsupported, what)
    })
}

/// The number of the peer server with these addresses.
///
/// # Errors
/// If the catalogue cannot be changed.
pub async fn peer_at(realm: &ClusterView, addresses: &[Address]) -> Result<PeerId> {
    let addresses = addresses_to_strings(addresses);
    let catalog = realm.catalog();
    let known = catalog
        .as_ref()
        .and_then(|catalog| catalog.peers().find(|(peer, _)| peer.addresses == addresses).map(|(peer, _)| peer.id));
    match known {
        Some(peer) => Ok(peer),
        None => {
            let Edited { value: peer, revision } = realm.editor()?.add_peer(&addresses).await?;
            realm.wait_for_revision(revision).await?;
            info!(peer = peer.id.0, "this is a new peer server");
            Ok(peer.id)
        }
    }
}

impl Member {
    /// Enters a process as alive with its addresses, and keeps the entry.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if a later start of the same member has entered itself; errors of the catalogue's store.
    pub async fn announce(
        realm: &Arc<ClusterView>,
        server: ServerId,
        start: StartNumber,
        addresses: &[Address],
    ) -> Result<Self> {
        let editor = realm.editor()?.clone();
        let (tell_session, session) = watch::channel(None);
        let (tell_end, ended) = watch::channel(None);
        let ttl = Duration::from_millis(editor.parameters().await?.session_ttl_ms);
        let (addresses, known) = (addresses_to_strings(addresses), Arc::downgrade(realm));
        let life = Announcer { editor: editor.clone(), cluster_view: known, server, start, addresses, ttl };
        let first = life.announce().await?;
        tell_session.send_replace(Some(first.session.id));
        let task = tasks::spawn(async move {
            let why = life.keep_announced(first, tell_session).await;
            error!(%server, why, "this process is not a member of its cluster any more");
            tell_end.send_replace(Some(why));
        });
        Ok(Self { editor, task: task.abort_handle(), session, ended })
    }

    /// Waits until this process is not a member any more. Returns why: another process has replaced it, or it was removed.
    pub async fn wait_until_ended(&self) -> String {
        let mut ended = self.ended.clone();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The task is stopped only when this value is dropped.
            None => std::future::pending().await,
        }
    }

    /// Removes the entry, as the process ends.
    pub async fn leave(self) {
        self.task.abort();
        let session = *self.session.borrow();
        if let Some(session) = session {
            let ending = time::timeout(LEAVE_TIMEOUT, self.editor.store().end_session(session));
            if let Ok(Err(error)) = ending.await {
                info!(%error, "the entry of this process cannot be removed; it will expire");
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The entry that a process has made.
struct Announced {
    session: MetaSession,
    /// Whether it says that the process refuses to serve.
    is_refused: bool,
}

/// Makes and keeps the entry of a process.
struct Announcer {
    editor: CatalogEditor,
    cluster_view: Weak<ClusterView>,
    server: ServerId,
    start: StartNumber,
    addresses: Vec<String>,
    ttl: Duration,
}

impl Announcer {
    /// Enters the process as alive, in a new session.
    async fn announce(&self) -> Result<Announced, CatalogError> {
        let session = self.editor.store().open_session(self.ttl).await?;
        let refused = self.refusal();
        self.enter(session, refused.clone()).await?;
        match self.server {
            ServerId::Brick(id) => drop(self.editor.set_brick_addresses(id, &self.addresses).await?),
            ServerId::Peer(id) => drop(self.editor.set_peer_addresses(id, &self.addresses).await?),
        }
        Ok(Announced { session, is_refused: refused.is_some() })
    }

    /// Makes the entry of the process, or changes it.
    async fn enter(&self, session: MetaSession, refused: Option<String>) -> Result<(), CatalogError> {
        match self.server {
            ServerId::Brick(id) => {
                let liveness = Liveness { start: self.start, refused };
                self.editor.announce_brick_as(id, &liveness, session.id).await?;
            }
            ServerId::Peer(id) => {
                self.editor.announce_peer(id, self.start, session.id).await?;
            }
        }
        Ok(())
    }

    /// Why the process serves nothing because of its clock; `None` if it serves.
    fn refusal(&self) -> Option<String> {
        self.cluster_view.upgrade().and_then(|view| view.clock.refusal())
    }

    /// Waits for a while, or until a brick begins or ends to refuse to serve.
    async fn wait(&self, pause: Duration, is_refused: bool) {
        let changes = self.cluster_view.upgrade().map(|view| view.clock.changes());
        let changed = async {
            match changes {
                Some(mut changes) if matches!(self.server, ServerId::Brick(_)) => {
                    while self.refusal().is_some() == is_refused && changes.changed().await.is_ok() {}
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = time::sleep(pause) => {}
            () = changed => {}
        }
    }

    /// Keeps the entry; returns why that is not possible any more.
    async fn keep_announced(&self, mut known: Announced, tell: watch::Sender<Option<MetaSessionId>>) -> String {
        let (mut is_away, mut backoff) = (false, Backoff::new(MIN_BACKOFF, MAX_BACKOFF));
        loop {
            match is_away {
                true => backoff.pause().await,
                false => {
                    backoff.reset();
                    self.wait(known.session.ttl * 2 / 5, known.is_refused).await;
                }
            }
            if let Some(newer) = self.newer_start() {
                let (who, start) = (self.server, self.start);
                return format!("{who} was started again as number {newer}; this process is number {start} and ends");
            }
            match self.renew(&known).await {
                Ok(now) => {
                    if std::mem::take(&mut is_away) {
                        info!("the catalogue is back");
                    }
                    if now.session.id != known.session.id {
                        info!("the entry of this process had expired and was renewed");
                        tell.send_replace(Some(now.session.id));
                    }
                    known = now;
                }
                Err(error @ (CatalogError::Superseded { .. } | CatalogError::Missing { .. })) => {
                    return error.to_string();
                }
                Err(error) => Self::warn_unreachable(&mut is_away, &error.into()),
            }
        }
    }

    /// Renews the session, or makes another entry in a new one if it has expired. Changes the entry if the process refuses to serve now, or does
    /// not any more.
    async fn renew(&self, known: &Announced) -> Result<Announced, CatalogError> {
        let session = known.session;
        match self.editor.store().renew_session(session.id).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return self.announce().await,
            renewed => renewed?,
        }
        let refused = self.refusal();
        let is_refused = refused.is_some();
        if is_refused != known.is_refused {
            self.enter(session, refused).await?;
        }
        Ok(Announced { session, is_refused })
    }

    /// The start number of a later process that has replaced this one.
    fn newer_start(&self) -> Option<StartNumber> {
        let catalog = self.cluster_view.upgrade()?.catalog()?;
        let alive = match self.server {
            ServerId::Brick(id) => catalog.brick(id)?.alive.clone(),
            ServerId::Peer(id) => catalog.peer(id)?.alive.clone(),
        };
        alive.map(|alive| alive.start).filter(|start| *start > self.start)
    }

    fn warn_unreachable(is_away: &mut bool, error: &Error) {
        if !std::mem::replace(is_away, true) {
            warn!(%error, "the catalogue cannot be reached; this process continues with its copy");
        }
    }
}

fn addresses_to_strings(addresses: &[Address]) -> Vec<String> {
    addresses.iter().map(Address::to_string).collect()
}

#[cfg(test)]
mod tests {
    use meta::catalog::Parameters;
    use meta::{Embedded, MetaStore};
    use store::Options;

    use super::*;

    async fn cluster() -> Arc<dyn MetaStore> {
        let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let parameters = Parameters { session_ttl_ms: 1_000, ..Parameters::generate() };
        CatalogEditor::new(store.clone()).set_up(&parameters).await.unwrap();
        store
    }

    #[tokio::test]
    async fn a_store_is_the_same_brick_again_and_of_no_other_cluster() {
        let realm = ClusterView::follow(cluster().await).await.unwrap();
        let address: Vec<Address> = vec!["127.0.0.1:1".parse().unwrap()];
        let store = Store::in_memory(Options::default()).unwrap();
        let brick = brick_of(&realm, &store, &address).await.unwrap();
        assert_eq!(brick_of(&realm, &store, &address).await.unwrap(), brick);
        let other = Store::in_memory(Options::default()).unwrap();
        assert_ne!(brick_of(&realm, &other, &address).await.unwrap(), brick);
        let elsewhere = ClusterView::follow(cluster().await).await.unwrap();
        let refused = brick_of(&elsewhere, &store, &address).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    }

    #[tokio::test]
    async fn a_process_whose_place_is_taken_learns_it() {
        let realm = ClusterView::follow(cluster().await).await.unwrap();
        let address: Vec<Address> = vec!["127.0.0.1:1".parse().unwrap()];
        let peer = peer_at(&realm, &address).await.unwrap();
        assert_eq!(peer_at(&realm, &address).await.unwrap(), peer);
        let mut members = Vec::new();
        for _ in 0..2 {
            let start = realm.editor().unwrap().start_number().await.unwrap();
            members.push(Member::announce(&realm, ServerId::Peer(peer), start, &address).await.unwrap());
        }
        assert!(members[0].wait_until_ended().await.contains("peer server 1"));
        assert!(time::timeout(Duration::from_millis(500), members[1].wait_until_ended()).await.is_err());
        let alive = |realm: &ClusterView| realm.catalog().unwrap().peer(peer).unwrap().alive.is_some();
        assert!(alive(&realm));
        for member in members {
            member.leave().await;
        }
        while alive(&realm) {
            time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn row_of_a_brick_is_read_or_refused() {
        assert_eq!(parse_identity(b"1 abc 7").unwrap(), ("abc".to_owned(), BrickId(7)));
        for wrong in [&b"2 abc 7"[..], b"1 abc", b"1 abc x", b"1 abc 7 8", b"", b"\xff"] {
            assert_eq!(parse_identity(wrong).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}
