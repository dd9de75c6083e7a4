//! A cluster within the caller's process: no server to start, and no address that others reach.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use meta::Embedded as Catalogue;
use model::{Error, ErrorKind, Result};
use node::auth::{ClusterCredentials, Secret};
use node::local_cluster::{BrickDirectories, LocalCluster, MAIN_SPACE, SECRET_FILE};
use node::meta::MetaServer;
use node::purpose::Purpose;
use node::{Config, IoRuntimes};
use store::{DirectoryContents, Options as StoreOptions, Store};
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use wire::tasks;
use wire::transport::Address;

use super::client_core::Core;
use super::jobs::JobRunner;
use super::link::{self, Target};
use super::{Client, ConnectOptions};

/// A whole cluster in this process, in a directory or in memory: what `mortar dev` runs, without an address that other processes
/// reach. It ends when its last handle and the last of its clients are dropped.
///
/// ```no_run
/// # async fn example() -> client::Result<()> {
/// let store = client::Embedded::open("data").await?;
/// let main = store.connect("main", Default::default()).await?;
/// main.transact(|t| async move {
///     let hello = t.create_blob("Hello, world")?;
///     t.bind("hello", hello).await
/// })
/// .await?;
/// store.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Embedded {
    server: Arc<EmbeddedServer>,
}

/// What a client keeps of the servers in its process.
pub(super) struct EmbeddedHandle {
    pub(super) server: Arc<EmbeddedServer>,
    /// Whether the client was opened, so that they end with it.
    pub(super) is_owner: bool,
}

/// The thread that runs the servers.
#[derive(Debug)]
pub(super) struct EmbeddedServer {
    /// Ends the servers when it is dropped.
    stop: watch::Sender<bool>,
    /// The result of their end.
    ended: watch::Receiver<Option<Arc<Result<()>>>>,
    reached: Reached,
    /// Clients, whose connections end with the threads of the servers; `None` once the servers end.
    clients: Mutex<Option<Vec<Weak<Core>>>>,
}

/// How clients reach the servers.
#[derive(Debug)]
struct Reached {
    peers: Vec<Address>,
    /// The threads of the servers. Connections of clients are on them, too.
    runtimes: IoRuntimes,
}

impl Drop for EmbeddedServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl Embedded {
    /// Opens the cluster in a directory, which is created if it does not exist. `mortar dev --data DIR` opens the same directory, but
    /// only one process at a time does.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if another process has opened it; [`ErrorKind::Invalid`] if it contains something else;
    /// [`ErrorKind::Corrupt`] if it is damaged; [`ErrorKind::Denied`] if other users can enter it; those of reading and writing it.
    pub async fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(directory, StoreOptions::for_machine()).await
    }

    /// Opens the cluster in a directory with these options of each brick's store.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub async fn open_with(directory: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        let directory = directory.as_ref();
        let absolute = std::path::absolute(directory).map_err(|error| {
            Error::new(ErrorKind::Io, "the current directory cannot be determined").with_source(error)
        })?;
        Self::start(Place::Directory(absolute), options).await
    }

    /// A cluster in memory, which is lost when it ends.
    ///
    /// # Errors
    /// If the system has no thread or memory for it.
    pub async fn in_memory() -> Result<Self> {
        Self::start(Place::Memory(rand::random()), StoreOptions::default()).await
    }

    async fn start(place: Place, options: StoreOptions) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (tell_ended, ended) = watch::channel(None);
        let (tell_ready, ready) = oneshot::channel();
        let run = move || tell_ended.send_replace(Some(Arc::new(run(&place, &options, tell_ready, stopped))));
        let spawned = thread::Builder::new().name("mortar".to_owned()).spawn(run);
        spawned.map_err(|error| Error::new(ErrorKind::Io, "the system grants no thread").with_source(error))?;
        match ready.await {
            Ok(reached) => {
                let clients = Mutex::new(Some(Vec::new()));
                Ok(Self { server: Arc::new(EmbeddedServer { stop, ended, reached, clients }) })
            }
            Err(_) => Err(end_of(ended).await.err().unwrap_or_else(|| {
                Error::new(ErrorKind::Internal, "the servers of the embedded cluster have ended at their start")
            })),
        }
    }

    /// A client of a space.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such space; [`ErrorKind::Denied`] if the cluster has users, and the credentials in
    /// `options` are none of them.
    pub async fn connect(&self, space: &str, options: ConnectOptions) -> Result<Client> {
        self.connect_as(space, options, false).await
    }

    /// A client of a space, with which the servers end if it `is_owner`.
    async fn connect_as(&self, space: &str, options: ConnectOptions, is_owner: bool) -> Result<Client> {
        let Reached { peers, runtimes } = &self.server.reached;
        let target = Target { peers: peers.clone(), space: space.to_owned(), user: None, group: None };
        let ended = || Error::new(ErrorKind::Unavailable, "the embedded cluster has ended");
        let runtime = runtimes.first().ok_or_else(ended)?;
        let core = tasks::spawn_on(runtime, link::connect_to(target, options)).await.map_err(|_| ended())??;
        if !self.server.add_client(&core) {
            core.close();
            return Err(ended());
        }
        core.embedded_handle().get_or_init(|| EmbeddedHandle { server: self.server.clone(), is_owner });
        Ok(Client { core })
    }

    /// Ends the cluster in good order: closes its clients, answers what is pending, and closes the directory.
    ///
    /// # Errors
    /// If the directory cannot be closed.
    pub async fn shutdown(&self) -> Result<()> {
        self.server.shutdown().await
    }
}

impl EmbeddedServer {
    /// Notes a client, to close it with the servers. Returns false if they are ending.
    fn add_client(&self, core: &Arc<Core>) -> bool {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(clients) = &mut *clients else { return false };
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(core));
        true
    }

    pub(super) async fn shutdown(&self) -> Result<()> {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        clients.iter().filter_map(Weak::upgrade).for_each(|client| client.close());
        self.stop.send_replace(true);
        end_of(self.ended.clone()).await
    }
}

impl Client {
    /// Opens the cluster in a directory within this process, and connects to its space `main`: as [`Embedded::open`]. Close it with
    /// [`Client::shutdown`].
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub async fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(directory, ConnectOptions::default()).await
    }

    /// The same with `options`.
    ///
    /// # Errors
    /// As [`Embedded::open`] and [`Embedded::connect`].
    pub async fn open_with(directory: impl AsRef<Path>, options: ConnectOptions) -> Result<Self> {
        Self::of(Embedded::open(directory).await?, options).await
    }

    /// Runs a cluster in memory within this process, and connects to its space `main`: as [`Embedded::in_memory`]. The cluster ends with
    /// the client.
    ///
    /// # Errors
    /// As [`Embedded::in_memory`].
    pub async fn in_memory() -> Result<Self> {
        Self::in_memory_with(ConnectOptions::default()).await
    }

    /// The same with `options`.
    ///
    /// # Errors
    /// As [`Embedded::in_memory`] and [`Embedded::connect`].
    pub async fn in_memory_with(options: ConnectOptions) -> Result<Self> {
        Self::of(Embedded::in_memory().await?, options).await
    }

    /// The client that owns a cluster.
    async fn of(embedded: Embedded, options: ConnectOptions) -> Result<Self> {
        match embedded.connect_as(MAIN_SPACE, options, true).await {
            Ok(cluster) => Ok(cluster),
            Err(error) => {
                // The directory can be opened again when this returns. What went wrong first is reported.
                let _ = embedded.shutdown().await;
                Err(error)
            }
        }
    }
}

/// Where the objects are.
enum Place {
    Directory(PathBuf),
    /// In memory, under this number.
    Memory(u64),
}

impl Place {
    /// The address of a server of this cluster: always the same for a directory, as the catalogue has it.
    fn address(&self, server: &str) -> Address {
        Address::InProcess(match self {
            Self::Directory(directory) => format!("{}#{server}", directory.display()),
            Self::Memory(number) => format!("memory-{number:x}#{server}"),
        })
    }

    /// The stores of the bricks, the first of which has the catalogue.
    fn open(&self, options: &StoreOptions) -> Result<BTreeMap<u16, Store>> {
        let Self::Directory(directory) = self else {
            return Ok(BTreeMap::from([(1, Store::in_memory(options.clone())?)]));
        };
        if let DirectoryContents::Other(name) = DirectoryContents::of(directory)? {
            let what = format!("{} contains other files than a cluster: {name}", directory.display());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let open = |path: &Path, purpose: Purpose| {
            let store = Store::open(path, options.clone())?;
            purpose.check(&store)?;
            Ok::<_, Error>(store)
        };
        let first = open(directory, Purpose::Whole)?;
        let places = BrickDirectories::find(directory, &first, 1)?;
        places.check_complete()?;
        let mut stores = BTreeMap::from([(1, first)]);
        for (number, path) in places.directories() {
            stores.insert(number, open(&path, Purpose::Brick)?);
        }
        Ok(stores)
    }

    /// The secret of the processes of this cluster.
    fn secret(&self) -> Result<Secret> {
        match self {
            Self::Directory(directory) if directory.join(SECRET_FILE).exists() => {
                Secret::load(&directory.join(SECRET_FILE))
            }
            _ => Ok(Secret::generate()),
        }
    }
}

/// Runs the servers until `stopped` says so, or its sender is dropped.
fn run(
    place: &Place,
    options: &StoreOptions,
    ready: oneshot::Sender<Reached>,
    mut stopped: watch::Receiver<bool>,
) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(ErrorKind::Io, "the system grants no event queue").with_source(error))?;
    runtime.block_on(async {
        let (mut cluster, runtimes) = LocalCluster::with_shared_threads(Config::default().threads)?;
        let served = match serve(place, options, &mut cluster, &runtimes).await {
            Ok(()) => {
                let jobs = JobRunner::start_all(cluster.peers());
                let peers = cluster.peers().iter().flat_map(|peer| peer.server().addresses()).cloned().collect();
                // A caller that has gone away is not served.
                if ready.send(Reached { peers, runtimes }).is_ok() {
                    let _ = stopped.wait_for(|stopped| *stopped).await;
                }
                JobRunner::stop_all(jobs).await;
                Ok(())
            }
            Err(error) => Err(error),
        };
        let ended = cluster.end().await;
        served.and(ended)
    })
}

async fn serve(place: &Place, options: &StoreOptions, cluster: &mut LocalCluster, runtimes: &IoRuntimes) -> Result<()> {
    let cluster_credentials = ClusterCredentials { secret: Some(place.secret()?), ..ClusterCredentials::default() };
    let config = |server: &str| Config {
        listen: vec![place.address(server)],
        io_runtimes: Some(runtimes.clone()),
        cluster_credentials: cluster_credentials.clone(),
        ..Config::default()
    };
    let stores = place.open(options)?;
    let catalogue = Arc::new(Catalogue::open(&stores[&1])?);
    let meta = MetaServer::start(catalogue.clone(), config("meta")).await?;
    let brick = |number: u16| config(&format!("brick-{number}"));
    cluster.start(catalogue, meta, stores, brick, vec![config("peer")], None).await
}

/// Waits for the result of the end.
async fn end_of(mut ended: watch::Receiver<Option<Arc<Result<()>>>>) -> Result<()> {
    let ended = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
    match ended.as_deref() {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(Error::new(error.kind(), error.message_with_causes())),
        None => Err(Error::new(ErrorKind::Internal, "the servers of the embedded cluster have panicked")),
    }
}
