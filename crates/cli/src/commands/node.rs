//! `mortar node`: one process of a cluster.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use client::jobs::JobRunner;
use meta::{Embedded, MetaStore};
use model::{Error, ErrorKind};
use node::cluster_view::ClusterView;
use node::meta::{MetaServer, RemoteMetaStore};
use node::openings::WitnessTable;
use node::process::{BrickProcess, PeerProcess, retry_until_available};
use node::process_clock::ProcessClock;
use node::purpose::Purpose;
use node::{Redirector, RedirectorSettings, check_addresses};
use serde::{Deserialize, Serialize};
use store::{Options, Store};
use tracing::info;
use wire::handshake;
use wire::transport::Address;

use super::dev::{explain_start, explain_start_on, open_for};
use crate::failure::{Failure, Result};
use crate::output::{Output, Report};
use crate::serving::{self, Signals};
use crate::settings::{PartialSettings, ProcessRole, Settings, mib};

/// The name of the server that a start waits for.
const META_SERVER: &str = "the meta-server";

const EXAMPLES: &str = "\
Examples:
  mortar node --role meta --print-config > meta.toml    a file with all settings, to be changed
  mortar node --config meta.toml
  mortar node --role meta --data /srv/meta --listen 127.0.0.1:6690
  mortar node --role brick --data /srv/brick-1 --listen 127.0.0.1:6680 --meta mortar://127.0.0.1:6690
  mortar node --role peer --listen 127.0.0.1:6678 --meta mortar://127.0.0.1:6690
  mortar node --role peer --listen tls:0.0.0.0:6678 --advertise tls:db1:6678 --meta mortars://db1:6690 --tls-cert db1.pem --tls-key db1.key --tls-ca ca.pem --cluster-secret cluster.secret
  mortar node --role redirector --group shed --listen 127.0.0.1:6676 --upstream mortar://db1:6678
  mortar --server mortar://127.0.0.1:6690 space create main

SIGHUP reads certificates, keys and the cluster secret again; they are also read again when they have changed.

Flags count for more than the file. A brick and a peer server wait for the meta-server when they start; later they go on
without it, with what they know. Ctrl-C or SIGTERM ends a process in good order; after anything else start it again.";

/// Run one process of a cluster: a brick, a peer server, a redirector or the meta-server
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Node {
    /// The file with the settings, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: PartialSettings,
    /// Print a file with these settings and their descriptions, and exit
    #[arg(long)]
    print_config: bool,
}

/// The report of a process that has started and joined its cluster.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) role: ProcessRole,
    /// Its number in the cluster; a meta-server and a redirector have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u32>,
    /// The addresses on which it listens.
    pub(crate) addresses: Vec<String>,
    /// The address of `/metrics` and `/health`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http: Option<String>,
    pub(crate) pid: u32,
}

impl Report for Ready {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let number = self.number.map(|number| format!(" {number}")).unwrap_or_default();
        writeln!(out, "{}{number} at {}. Ctrl-C ends it.", self.role.title(), self.addresses.join(", "))?;
        match &self.http {
            Some(http) => writeln!(out, "  http://{http}/metrics  http://{http}/health"),
            None => Ok(()),
        }
    }
}

pub(crate) fn run(args: Node, output: &mut Output) -> Result {
    let given = match &args.config {
        Some(path) => args.settings.with_fallback(PartialSettings::read(path)?)?,
        None => args.settings,
    };
    let settings = Settings::resolve(given)?;
    if args.print_config {
        return output.write_raw(settings.to_toml().as_bytes());
    }
    match settings.role {
        ProcessRole::Peer | ProcessRole::Redirector => allocator::configure_for_memory(),
        ProcessRole::Brick if settings.memory => allocator::configure_for_memory(),
        ProcessRole::Brick | ProcessRole::Meta => allocator::configure_for_disk(),
    }
    serving::start_log(settings.log.as_deref(), settings.log_format)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::file("cannot start", &e))?;
    let done = runtime.block_on(serve(&settings, output));
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

async fn serve(settings: &Settings, output: &mut Output) -> Result {
    let mut signals = Signals::listen()?;
    // Missing or invalid files are reported first.
    let config = settings.config()?;
    if config.cluster_credentials.secret.is_none()
        && config.cluster_credentials.tls.is_none()
        && settings.role != ProcessRole::Meta
    {
        info!(
            "this process has neither a cluster secret nor a certificate: it will be refused once the cluster has users"
        );
    }
    let auth = settings.auth.clone();
    serving::on_hangup(move || auth.reload())?;
    let running = tokio::select! {
        started = RunningServer::start(settings) => started?,
        () = signals.next() => {
            info!("stopped during its start");
            return Ok(());
        }
    };
    output.announce(&running.ready_report(settings.role));
    let why = tokio::select! {
        () = signals.next() => None,
        why = running.wait_superseded() => Some(why),
    };
    let ended = tokio::select! {
        ended = running.end() => ended,
        () = signals.next() => Err(Failure::interrupted("stopped by a second signal; the process recovers at its next start")),
    };
    match why {
        Some(why) => Err(Failure::from(Error::new(ErrorKind::Denied, why))),
        None => ended,
    }
}

/// A running process of a cluster.
enum RunningServer {
    /// A brick.
    Brick(BrickProcess),
    /// A peer server, and its work on jobs.
    Peer(PeerProcess, JobRunner),
    /// A redirector.
    Redirector(Redirector),
    /// The meta-server, and its store if it has one.
    Meta(MetaServer, Option<Store>),
}

impl RunningServer {
    async fn start(settings: &Settings) -> Result<Self> {
        match settings.role {
            ProcessRole::Meta => {
                let (store, catalogue) = open_catalogue(settings)?;
                // Waits while etcd is unreachable.
                let explain = |error| explain_start_on(error, settings.data.as_deref(), Purpose::Catalogue);
                retry_until_available("etcd", || async { catalogue.get(Vec::new()).await }).await.map_err(explain)?;
                let server = MetaServer::start(catalogue, settings.config()?).await.map_err(explain)?;
                Ok(Self::Meta(server, store))
            }
            ProcessRole::Redirector => {
                let (upstream, group) = (settings.upstream.clone(), settings.group.clone());
                let place = RedirectorSettings { upstream, group, advertise: settings.advertise.clone() };
                let started = Redirector::start(place, settings.config()?).await;
                started.map(Self::Redirector).map_err(explain_start)
            }
            role => {
                // Opened before connecting to the meta-server, so that local errors are reported at once.
                let store = if role == ProcessRole::Brick { Some(open(settings, Purpose::Brick)?) } else { None };
                let as_what = if role == ProcessRole::Brick { handshake::Role::Brick } else { handshake::Role::Peer };
                let explain = |error| explain_start_on(error, settings.data.as_deref(), Purpose::Brick);
                let witnesses = WitnessTable::new();
                if let Some(store) = &store {
                    witnesses.add_kept(store).map_err(explain)?;
                }
                let (addresses, membership) = (settings.meta.clone(), settings.membership()?);
                let remote = RemoteMetaStore::new_as_witness(addresses, membership, as_what, witnesses.clone())?;
                // No process serves before it has compared its clock.
                let clock = ProcessClock::of_member();
                retry_until_available(META_SERVER, || clock.compare(&remote)).await?;
                clock.follow(remote.clone());
                let remote: Arc<dyn MetaStore> = Arc::new(remote);
                let follow = || ClusterView::follow_with(remote.clone(), witnesses.clone(), clock.clone());
                let view = retry_until_available(META_SERVER, follow).await?;
                let (config, advertise) = (settings.config()?, &settings.advertise);
                // A brick that cannot listen gets no number: others would wait for it.
                check_addresses(&config).await.map_err(explain_start)?;
                let started = match store {
                    Some(store) => BrickProcess::start(view, store, config, advertise).await.map(Self::Brick),
                    None => PeerProcess::start(view, config, advertise).await.map(|peer| {
                        let jobs = JobRunner::start(peer.job_host().clone());
                        Self::Peer(peer, jobs)
                    }),
                };
                started.map_err(explain)
            }
        }
    }

    /// The addresses on which it listens.
    fn addresses(&self) -> &[Address] {
        match self {
            Self::Brick(brick) => brick.server().addresses(),
            Self::Peer(peer, _) => peer.server().addresses(),
            Self::Redirector(redirector) => redirector.addresses(),
            Self::Meta(meta, _) => meta.addresses(),
        }
    }

    /// The address of `/metrics` and `/health`; `None` if HTTP is off.
    fn http(&self) -> Option<SocketAddr> {
        match self {
            Self::Brick(brick) => brick.server().http(),
            Self::Peer(peer, _) => peer.server().http(),
            Self::Redirector(redirector) => redirector.http(),
            Self::Meta(meta, _) => meta.http(),
        }
    }

    fn ready_report(&self, role: ProcessRole) -> Ready {
        let number = match self {
            Self::Brick(brick) => Some(brick.number()),
            Self::Peer(peer, _) => Some(peer.number()),
            Self::Redirector(_) | Self::Meta(..) => None,
        };
        let http = self.http();
        let addresses = self.addresses().iter().map(Address::to_string).collect();
        Ready { role, number, addresses, http: http.map(|http| http.to_string()), pid: std::process::id() }
    }

    /// Waits until another process has replaced this one.
    async fn wait_superseded(&self) -> String {
        match self {
            Self::Brick(brick) => brick.wait_until_ended().await,
            Self::Peer(peer, _) => peer.wait_until_ended().await,
            // It has no entry in the catalogue that another one could take.
            Self::Redirector(_) => std::future::pending().await,
            Self::Meta(meta, _) => meta.wait_until_ended().await,
        }
    }

    /// Stops the process cleanly.
    async fn end(self) -> Result {
        match self {
            Self::Brick(brick) => brick.end().await?,
            Self::Peer(peer, jobs) => {
                jobs.stop().await;
                peer.end().await?;
            }
            Self::Redirector(redirector) => redirector.shutdown().await?,
            Self::Meta(server, store) => {
                let ended = server.shutdown().await;
                store.map_or(Ok(()), Store::close)?;
                ended?;
            }
        }
        Ok(())
    }
}

/// The catalogue of a meta-server, and its store unless it is in etcd.
pub(crate) fn open_catalogue(settings: &Settings) -> Result<(Option<Store>, Arc<dyn MetaStore>)> {
    if let Some(etcd) = &settings.etcd {
        return Ok((None, Arc::new(meta::Etcd::new(&etcd.config()?)?)));
    }
    let store = open(settings, Purpose::Catalogue)?;
    let explain = |error| explain_start_on(error, settings.data.as_deref(), Purpose::Catalogue);
    let catalogue = Embedded::open(&store).map_err(explain)?;
    Ok((Some(store), Arc::new(catalogue)))
}

/// How the store of a process is opened.
pub(crate) fn store_options(settings: &Settings) -> Options {
    Options {
        mob_bytes: settings.sizes.buffer_bytes(),
        memory_bytes: mib(settings.memory_mib),
        allow_loose_permissions: settings.allow_loose_permissions,
        ..Options::default()
    }
}

/// The store of a process.
pub(crate) fn open(settings: &Settings, purpose: Purpose) -> Result<Store> {
    let options = store_options(settings);
    match &settings.data {
        Some(data) => open_for(data, purpose, options),
        None => Ok(Store::in_memory(options)?),
    }
}
