//! Announces a process in the catalogue and renews its session.

use std::sync::Arc;
use std::time::Duration;

use model::ErrorKind;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};

use crate::{MetaSession, MetaStore};

use super::catalog_editor::CatalogEditor;
use super::entry::Path;
use super::error::CatalogError;
use super::ident::{BrickId, PeerId, StartNumber};
use super::member::Liveness;

/// How often a session is renewed within its time to live.
const RENEWALS_PER_TTL: u32 = 3;
/// Pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A server of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerId {
    /// A brick.
    Brick(BrickId),
    /// A peer server.
    Peer(PeerId),
}

impl std::fmt::Display for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Brick(id) => write!(f, "brick {id}"),
            Self::Peer(id) => write!(f, "peer server {id}"),
        }
    }
}

/// Whether this process counts as alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceState {
    /// Other processes count it as alive at least until this time. The time can be past if the catalogue is unreachable.
    AliveUntil(Instant),
    /// A later start of the same server is announced, or the server was removed: this process must end.
    Revoked,
}

/// Announces that a process is alive, until it is dropped.
///
/// If the session expires (the catalogue was unreachable for too long), another one is opened. After a drop the session expires;
/// [`Presence::end`] ends it at once.
pub struct Presence {
    store: Arc<dyn MetaStore>,
    state: watch::Receiver<PresenceState>,
    session: watch::Receiver<MetaSession>,
    task: AbortHandle,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Presence {
    /// Opens a session with this time to live, and announces the process with it.
    ///
    /// # Errors
    /// [`CatalogError::Superseded`] if a later start is announced; [`CatalogError::Missing`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn begin(
        editor: CatalogEditor,
        who: ServerId,
        start: StartNumber,
        ttl: Duration,
    ) -> Result<Self, CatalogError> {
        let living = PresenceTask { editor, server: who, start, ttl };
        let (session, until) = living.open().await?;
        let store = living.editor.store().clone();
        let (life_sender, life) = watch::channel(PresenceState::AliveUntil(until));
        let (session_sender, session) = watch::channel(session);
        let task = tokio::spawn(living.run(life_sender, session_sender)).abort_handle();
        Ok(Self { store, state: life, session, task })
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> PresenceState {
        *self.state.borrow()
    }

    /// Waits until this process must end.
    pub async fn wait_revoked(&self) {
        let mut life = self.state.clone();
        // The task ends only in this state.
        let _ = life.wait_for(|life| *life == PresenceState::Revoked).await;
    }

    /// Ends the session: the process no longer counts as alive.
    ///
    /// # Errors
    /// If the catalogue is unreachable; then the session expires.
    pub async fn end(self) -> Result<(), CatalogError> {
        self.task.abort();
        let session = self.session.borrow().id;
        Ok(self.store.end_session(session).await?)
    }
}

struct PresenceTask {
    editor: CatalogEditor,
    server: ServerId,
    start: StartNumber,
    ttl: Duration,
}

impl PresenceTask {
    /// Opens and announces a session; returns until when it lasts.
    async fn open(&self) -> Result<(MetaSession, Instant), CatalogError> {
        let sent = Instant::now();
        let session = self.editor.store().open_session(self.ttl).await?;
        self.announce(session).await?;
        Ok((session, sent + session.ttl))
    }

    async fn announce(&self, session: MetaSession) -> Result<(), CatalogError> {
        match self.server {
            ServerId::Brick(id) => self.editor.announce_brick(id, self.start, session.id).await?,
            ServerId::Peer(id) => self.editor.announce_peer(id, self.start, session.id).await?,
        };
        Ok(())
    }

    async fn run(self, life: watch::Sender<PresenceState>, sessions: watch::Sender<MetaSession>) {
        let mut pause = self.ttl / RENEWALS_PER_TTL;
        loop {
            time::sleep(pause).await;
            let session = *sessions.borrow();
            match self.renew(session).await {
                Ok((kept, until)) => {
                    pause = self.ttl / RENEWALS_PER_TTL;
                    sessions.send_replace(kept);
                    life.send_replace(PresenceState::AliveUntil(until));
                }
                Err(CatalogError::Superseded { .. } | CatalogError::Missing { .. }) => {
                    life.send_replace(PresenceState::Revoked);
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the session in the catalogue; other processes may consider this one dead");
                    pause = RETRY_PAUSE;
                }
            }
        }
    }

    /// Renews the session, or opens another one if it has expired; and announces this process again if necessary.
    async fn renew(&self, session: MetaSession) -> Result<(MetaSession, Instant), CatalogError> {
        let sent = Instant::now();
        match self.editor.store().renew_session(session.id).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                tracing::warn!(who = ?self.server, "the session in the catalogue has expired; opening a new one");
                return self.open().await;
            }
            Err(error) => return Err(error.into()),
        }
        let path = match self.server {
            ServerId::Brick(id) => Path::AliveBrick(id),
            ServerId::Peer(id) => Path::AlivePeer(id),
        };
        let announced = self.editor.draft().get::<Liveness>(&path).await?;
        if announced.is_none_or(|alive| alive.start != self.start) {
            self.announce(session).await?;
        }
        Ok((session, sent + session.ttl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{BrickRecord, Catalog, Storage};
    use crate::{Embedded, Prefix};

    const TTL: Duration = Duration::from_secs(6);

    async fn with_brick() -> (CatalogEditor, BrickRecord) {
        let editor = CatalogEditor::new(Arc::new(Embedded::in_memory().unwrap()));
        let brick = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value;
        (editor, brick)
    }

    async fn begin(editor: &CatalogEditor, brick: &BrickRecord, start: u64) -> Result<Presence, CatalogError> {
        Presence::begin(editor.clone(), ServerId::Brick(brick.id), StartNumber(start), TTL).await
    }

    async fn is_alive(editor: &CatalogEditor, brick: &BrickRecord) -> bool {
        let catalog = Catalog::load(&editor.store().read(Prefix::all()).await.unwrap());
        catalog.brick(brick.id).unwrap().alive.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn process_is_alive_until_it_ends_or_is_dropped() {
        let (editor, brick) = with_brick().await;
        let presence = begin(&editor, &brick, 1).await.unwrap();
        time::sleep(TTL * 5).await;
        assert!(is_alive(&editor, &brick).await);
        assert!(matches!(presence.state(), PresenceState::AliveUntil(until) if until > Instant::now() + TTL / 2));
        presence.end().await.unwrap();
        assert!(!is_alive(&editor, &brick).await);
        drop(begin(&editor, &brick, 2).await.unwrap());
        assert!(is_alive(&editor, &brick).await);
        time::sleep(TTL * 2).await;
        assert!(!is_alive(&editor, &brick).await);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_process_announces_itself_again() {
        let (editor, brick) = with_brick().await;
        let presence = begin(&editor, &brick, 1).await.unwrap();
        let session = presence.session.borrow().id;
        editor.store().end_session(session).await.unwrap();
        assert!(!is_alive(&editor, &brick).await);
        time::sleep(TTL).await;
        assert!(is_alive(&editor, &brick).await);
        assert_ne!(presence.session.borrow().id, session);
    }

    #[tokio::test(start_paused = true)]
    async fn superseded_process_is_revoked() {
        let (editor, brick) = with_brick().await;
        let old = begin(&editor, &brick, 1).await.unwrap();
        let new = begin(&editor, &brick, 2).await.unwrap();
        assert!(matches!(begin(&editor, &brick, 1).await, Err(CatalogError::Superseded { .. })));
        old.wait_revoked().await;
        assert_eq!(old.state(), PresenceState::Revoked);
        assert!(matches!(new.state(), PresenceState::AliveUntil(_)));
        assert!(is_alive(&editor, &brick).await);
    }
}
