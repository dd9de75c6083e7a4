//! A brick or a peer server that takes part in a cluster: the steps of its start and of its end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use meta::catalog::{self, JobWorker, ServerId, StartNumber};
use model::{Error, ErrorKind, Result};
use store::Store;
use tokio::task::AbortHandle;
use tokio::time;
use tracing::{info, warn};
use wire::link::Answer;
use wire::proto::request::Request;
use wire::tasks;
use wire::transport::Address;

use crate::brick_links::BrickLinks;
use crate::cluster_view::ClusterView;
use crate::member::{self, Member};
use crate::node_placement::BrickId;
use crate::openings::{LocalOpening, open_brick};
use crate::{Brick, Config, OwnClients, PeerServer};

/// Pause after the meta-server could not be reached.
const RETRY_DELAY: Duration = Duration::from_millis(300);
/// The name of the server that a start waits for.
const META_SERVER: &str = "the meta-server";
/// How long a peer server may take until it reaches all bricks, and how often it is asked.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A brick that serves a cluster.
pub struct BrickProcess {
    brick: Brick,
    number: u32,
    member: Member,
    opening: Arc<LocalOpening>,
    view: Arc<ClusterView>,
    /// Its work on jobs.
    jobs: AbortHandle,
}

/// A peer server that serves a cluster.
pub struct PeerProcess {
    server: PeerServer,
    number: u32,
    member: Member,
    job_host: JobHost,
}

/// What the work on jobs needs of the process of a peer server.
#[derive(Clone)]
pub struct JobHost {
    /// The view of the cluster.
    pub view: Arc<ClusterView>,
    /// Who works.
    pub worker: JobWorker,
    /// Where clients of this process connect.
    pub address: Address,
    /// What they give as the password, without a user.
    pub password: String,
    brick_links: Arc<BrickLinks>,
}

impl JobHost {
    /// Sends a request to a brick, as the peer server, and waits for its answer.
    ///
    /// # Errors
    /// The error that the brick answers; [`ErrorKind::Unavailable`] if the request was not sent; [`ErrorKind::Unknown`] if the
    /// connection ends before the answer.
    pub async fn call_brick(&self, brick: catalog::BrickId, request: Request) -> Result<Answer> {
        self.brick_links.call(BrickId(brick.0), request).await
    }
}

impl std::fmt::Debug for JobHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobHost").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl BrickProcess {
    /// Serves a brick. Others reach it at `advertise`; if that is empty, where it listens. Waits while the meta-server is away.
    ///
    /// # Errors
    /// Those of [`member::brick_of`], [`open_brick`] and [`Brick::start_opened`].
    pub async fn start(view: Arc<ClusterView>, store: Store, config: Config, advertise: &[Address]) -> Result<Self> {
        let expected = advertised_addresses(advertise, &config.listen);
        let id = retry_until_available(META_SERVER, || member::brick_of(&view, &store, expected)).await?;
        view.clock.set_process(&ServerId::Brick(id).to_string());
        let start = start_number(&view).await?;
        let open = || open_brick(&view, &store, id, &config.cluster_credentials);
        let opening = retry_until_available(META_SERVER, open).await?;
        let brick = Brick::start_opened(view.clone(), opening.clone(), store, config).await?;
        tasks::spawn(LocalOpening::keep(Arc::downgrade(&opening), Arc::downgrade(&view)));
        let addresses = advertised_addresses(advertise, brick.addresses());
        let announce = || Member::announce(&view, ServerId::Brick(id), start, addresses);
        match retry_until_available(META_SERVER, announce).await {
            Ok(member) => {
                let worker = JobWorker { server: ServerId::Brick(id), start };
                let jobs = tasks::spawn(brick.work_on_jobs(worker)).abort_handle();
                Ok(Self { brick, number: id.0, member, opening, view, jobs })
            }
            Err(error) => Err(end_after(error, brick.shutdown().await)),
        }
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Brick {
        &self.brick
    }

    /// Its number in the cluster.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Waits until another process has replaced this one. Returns why.
    pub async fn wait_until_ended(&self) -> String {
        tokio::select! {
            why = self.opening.wait_until_ended() => why,
            why = self.member.wait_until_ended() => why,
        }
    }

    /// Leaves the cluster, answers what is pending, and closes the store.
    ///
    /// # Errors
    /// If the store cannot be closed.
    pub async fn end(self) -> Result<()> {
        self.jobs.abort();
        let editor = self.view.editor();
        if let Ok(editor) = &editor {
            self.opening.close(editor).await;
        }
        self.member.leave().await;
        let ended = self.brick.shutdown().await;
        editor.map(drop).and(ended)
    }
}

impl PeerProcess {
    /// Serves clients. Others reach it at `advertise`; if that is empty, where it listens. Waits while the meta-server is away.
    ///
    /// # Errors
    /// Those of [`PeerServer::start`].
    pub async fn start(view: Arc<ClusterView>, config: Config, advertise: &[Address]) -> Result<Self> {
        retry_until_available(META_SERVER, || view.keep_number_pool_filled()).await?;
        let start = start_number(&view).await?;
        let own = OwnClients::generate();
        let config = Config { own_clients: Some(own.clone()), ..config };
        let server = PeerServer::start(view.clone(), start.0, config).await?;
        let addresses = advertised_addresses(advertise, server.addresses());
        let announce = async {
            let id = retry_until_available(META_SERVER, || member::peer_at(&view, addresses)).await?;
            view.clock.set_process(&ServerId::Peer(id).to_string());
            let announce = || Member::announce(&view, ServerId::Peer(id), start, addresses);
            Ok((id, retry_until_available(META_SERVER, announce).await?))
        };
        match announce.await {
            Ok((id, member)) => {
                let (worker, address) = (ServerId::Peer(id), Address::InProcess(own.name().to_owned()));
                let worker = JobWorker { server: worker, start };
                let brick_links = server.first_brick_links();
                let job_host = JobHost { view, worker, address, password: own.password(), brick_links };
                Ok(Self { server, number: id.0, member, job_host })
            }
            Err(error) => Err(end_after(error, server.shutdown().await)),
        }
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &PeerServer {
        &self.server
    }

    /// Its number in the cluster.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What the work on jobs needs of this process.
    #[must_use]
    pub fn job_host(&self) -> &JobHost {
        &self.job_host
    }

    /// Waits until it reaches all bricks, but not for ever: one of another process may be away. Damage of a brick does not delay it.
    pub async fn wait_connected(&self) {
        let until = time::Instant::now() + CONNECT_TIMEOUT;
        while let Some(problem) = self.server.connection_problem() {
            if time::Instant::now() >= until {
                return warn!(problem, "the peer server is not healthy yet");
            }
            time::sleep(CONNECT_POLL_INTERVAL).await;
        }
    }

    /// Waits until another process has replaced this one. Returns why.
    pub async fn wait_until_ended(&self) -> String {
        self.member.wait_until_ended().await
    }

    /// Leaves the cluster and answers what is pending.
    ///
    /// # Errors
    /// If the server ends in disorder.
    pub async fn end(self) -> Result<()> {
        self.member.leave().await;
        self.server.shutdown().await
    }
}

/// The error with which a start failed, after its server has ended.
fn end_after(error: Error, ended: Result<()>) -> Error {
    if let Err(second) = ended {
        warn!(error = %second, "a server whose start has failed did not end in good order");
    }
    error
}

/// Repeats an attempt until the server that it needs answers.
///
/// # Errors
/// Those of the attempt, but for [`ErrorKind::Unavailable`] and [`ErrorKind::Unknown`].
pub async fn retry_until_available<T, F>(server: &str, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut is_waiting = false;
    loop {
        match attempt().await {
            Ok(done) => {
                if is_waiting {
                    info!("{server} answers");
                }
                return Ok(done);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                if !std::mem::replace(&mut is_waiting, true) {
                    warn!(%error, "waiting for {server}");
                }
                time::sleep(RETRY_DELAY).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn start_number(view: &ClusterView) -> Result<StartNumber> {
    let attempt = || async { view.editor()?.start_number().await.map_err(Error::from) };
    retry_until_available(META_SERVER, attempt).await
}

/// The addresses by which other processes reach one that listens on these.
fn advertised_addresses<'a>(advertise: &'a [Address], listens: &'a [Address]) -> &'a [Address] {
    if advertise.is_empty() { listens } else { advertise }
}
