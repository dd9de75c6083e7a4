//! `mortar dev --bricks N --peers M`: all roles of a cluster in one process.

use std::io::{self, Write};
use std::net::SocketAddr;

use client::Url;
use meta::catalog::SpaceOptions;
use model::ErrorKind;
use node::Config;
use node::auth::Secret;
use node::cluster_view::ClusterView;
use node::meta::MetaServer;
use node::purpose::Purpose;
use serde::Serialize;
use wire::transport::Address;

use super::super::cluster::refuse_foreign_directory;
use super::super::node::{RunningServer, open, open_catalogue};
use super::{Dev, explain_loose_permissions, explain_start};
use crate::connection::SOCKET;
use crate::failure::{Failure, Result};
use crate::output::{Output, Report};
use crate::serving::Signals;
use crate::settings::{AuthSettings, ProcessRole, Settings};

/// The space of a new cluster.
const MAIN_SPACE: &str = "main";
/// The subdirectory of the catalogue.
const META_DATA: &str = "meta";

/// The report of a cluster in one process that has started.
#[derive(Serialize)]
struct Ready {
    /// The addresses of the peer servers, as one URL for the space `main`.
    url: String,
    /// The URL of each of them.
    peers: Vec<String>,
    bricks: Vec<String>,
    meta: String,
    /// The address of `/metrics` and `/health` of the first peer server.
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    /// The data directory; absent in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    pid: u32,
}

impl Report for Ready {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let bricks = crate::output::pluralize(self.bricks.len() as u64, "brick", "bricks");
        let peers = crate::output::pluralize(self.peers.len() as u64, "peer server", "peer servers");
        match &self.data {
            Some(data) => writeln!(out, "A cluster of {bricks} and {peers} serves {data}. Ctrl-C ends it.\n")?,
            None => writeln!(out, "A cluster of {bricks} and {peers} serves from memory. Ctrl-C ends it.\n")?,
        }
        writeln!(out, "  {}", self.url)?;
        if let Some(http) = &self.http {
            writeln!(out, "  http://{http}/metrics  http://{http}/health")?;
        }
        writeln!(out, "\nIn another terminal:\n")?;
        writeln!(out, "  export MORTAR_URL={}", self.url)?;
        writeln!(out, "  echo hello | mortar object put /greeting -")?;
        writeln!(out, "  mortar object get /greeting")?;
        writeln!(out, "  mortar status")
    }
}

/// Serves a cluster until a signal ends it. `config` is that of the first peer server.
pub(super) async fn serve(args: &Dev, config: Config, output: &mut Output) -> Result {
    let mut signals = Signals::listen()?;
    let mut parts = Vec::new();
    let served = tokio::select! {
        started = start(args, config, &mut parts) => match started {
            Ok(ready) => {
                announce(&ready, output)?;
                signals.next().await;
                Ok(())
            }
            Err(failure) => Err(failure),
        },
        () = signals.next() => Err(Failure::interrupted("stopped during its start")),
    };
    let ending = async {
        // In reverse order, because later servers depend on earlier ones.
        for part in parts.into_iter().rev() {
            part.end().await?;
        }
        Ok(())
    };
    let ended = tokio::select! {
        ended = ending => ended,
        () = signals.next() => Err(Failure::interrupted("stopped by a second signal; the cluster recovers at its next start")),
    };
    served.and(ended)
}

/// Starts the meta-server, bricks and peer servers, in this order, into `parts`.
async fn start(args: &Dev, config: Config, parts: &mut Vec<RunningServer>) -> Result<Ready> {
    let (bricks, peers) = (args.bricks.unwrap_or(1), args.peers.unwrap_or(1));
    if !args.memory && args.data.join("meta.toml").exists() {
        let message = format!("{} is a directory of `mortar cluster up`", args.data.display());
        return Err(Failure::conflict(message).hint("Start it with that, or name another directory with --data DIR."));
    }
    if !args.memory && args.data.exists() && !args.data.join(META_DATA).exists() {
        refuse_foreign_directory(&args.data, "a cluster", |name| name == SOCKET)?;
    }
    if !args.memory {
        store::prepare_directory(&args.data, args.allow_loose_permissions).map_err(explain_loose_permissions)?;
    }
    let loopback: Address = "127.0.0.1:0".parse()?;
    // All servers are in this process, so no other process needs the secret.
    let auth = AuthSettings::with_shared_secret(Secret::generate());
    let settings = |role: ProcessRole, name: &str, listen: Vec<Address>, http: Option<SocketAddr>| Settings {
        role,
        data: (!args.memory && role != ProcessRole::Peer).then(|| args.data.join(name)),
        memory: args.memory,
        memory_mib: args.memory_mib,
        listen,
        advertise: Vec::new(),
        http,
        meta: Vec::new(),
        etcd: None,
        auth: auth.clone(),
        insecure: args.insecure,
        allow_loose_permissions: args.allow_loose_permissions,
        io_threads: args.io_threads,
        connections: Default::default(),
        log: None,
        log_format: args.log_format,
    };
    let own = settings(ProcessRole::Meta, META_DATA, vec![loopback.clone()], None);
    let (store, catalogue) = open_catalogue(&own)?;
    let server = MetaServer::start(catalogue.clone(), own.config()?).await.map_err(explain_start)?;
    let meta = join_addresses(server.addresses());
    parts.push(RunningServer::Meta(server, store));
    let realm = ClusterView::follow(catalogue).await?;
    let mut brick_texts = Vec::new();
    for number in 1..=bricks {
        let settings = settings(ProcessRole::Brick, &format!("brick-{number}"), vec![loopback.clone()], None);
        let brick = RunningServer::start_brick(&settings, realm.clone(), open(&settings, Purpose::Brick)?).await?;
        brick_texts.push(join_addresses(brick.addresses()));
        parts.push(brick);
    }
    match realm.create_space(MAIN_SPACE, SpaceOptions::default()).await {
        // The space exists already.
        Err(error) if error.kind() == ErrorKind::Exists => {}
        made => drop(made?),
    }
    let mut urls = Vec::new();
    for number in 1..=peers {
        let (listen, http) =
            if number == 1 { (config.listen.clone(), config.http) } else { (vec![loopback.clone()], None) };
        let settings = settings(ProcessRole::Peer, "", listen, http);
        let peer = RunningServer::start_peer(&settings, realm.clone()).await?;
        urls.push(peer.addresses().to_vec());
        parts.push(peer);
    }
    let of = |address: &Address| Url { user: None, address: address.clone(), space: MAIN_SPACE.to_owned() }.to_string();
    let is_tcp = |address: &&Address| matches!(address, Address::Tcp(_));
    let best = |addresses: &Vec<Address>| addresses.iter().find(is_tcp).or(addresses.first()).map(of);
    Ok(Ready {
        url: combined_url(&urls, of),
        peers: urls.iter().filter_map(best).collect(),
        bricks: brick_texts,
        meta,
        http: parts.iter().find_map(RunningServer::http).map(|http| http.to_string()),
        data: (!args.memory).then(|| args.data.display().to_string()),
        pid: std::process::id(),
    })
}

/// One URL for several peer servers, by TCP where possible.
fn combined_url(peers: &[Vec<Address>], of: impl Fn(&Address) -> String) -> String {
    let hosts: Vec<&str> = peers
        .iter()
        .filter_map(|addresses| {
            addresses.iter().find_map(|address| match address {
                Address::Tcp(host) => Some(host.as_str()),
                Address::Tls(_) | Address::Unix(_) => None,
            })
        })
        .collect();
    match peers.iter().flatten().next() {
        Some(first) if hosts.is_empty() => of(first),
        _ => format!("mortar://{}/{MAIN_SPACE}", hosts.join(",")),
    }
}

fn join_addresses(addresses: &[Address]) -> String {
    addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
}

/// Prints the addresses of the cluster. A closed output does not end it.
fn announce(ready: &Ready, output: &mut Output) -> Result {
    match output.print(ready).and_then(|()| output.flush()) {
        Err(failure) if failure.is_broken_pipe() => Ok(()),
        printed => printed,
    }
}
