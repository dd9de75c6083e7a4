//! `mortar dev`: a whole cluster in one process.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, value_parser};
use client::Url;
use client::jobs::JobRunner;
use meta::Embedded;
use model::{Error, ErrorKind};
use node::auth::Secret;
use node::local_cluster::{BrickDirectories, LocalCluster, MAIN_SPACE, SECRET_FILE};
use node::meta::MetaServer;
use node::purpose::Purpose;
use node::{Config, check_addresses};
use serde::Serialize;
use store::{DirectoryContents, Options, Store};
use tracing::{info, warn};
use wire::transport::Address;

use super::node::open;
use crate::connection::{DATA, LISTEN, SOCKET};
use crate::failure::{Failure, Result};
use crate::output::{Output, Report};
use crate::serving::{self, LogFormat, Signals};
use crate::settings::{
    self, AuthSettings, BUFFER_MIB, MAX_MIB, MEMORY_MIB, MemorySizes, NONE, ProcessRole, ScrubRate, Settings,
    UPLOAD_LEASE_S,
};

/// The default address of `/metrics` and `/health`.
const HTTP: &str = "127.0.0.1:6679";
/// The longest path of a socket that the system allows.
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// The default address of the catalogue, where `mortar node` looks for it, and any free port.
const META_LISTEN: &str = "127.0.0.1:6690";
const LOOPBACK: &str = "127.0.0.1:0";

const EXAMPLES: &str = "\
Examples:
  mortar dev                                    data in ./mortar-data
  mortar dev --data /srv/mortar
  mortar dev --memory --memory-mib 512          nothing is kept, and no more than this held
  mortar dev --listen 127.0.0.1:0 --http none   any free port, no metrics
  mortar dev --bricks 4 --peers 2               more bricks and peer servers in this process
  mortar dev --nodes 256                        the space main can be spread over 256 bricks later
  mortar node --role brick --data brick-2 --cluster-secret mortar-data/cluster.secret
                                                a brick in a process of its own joins; mortar remap --spread uses it
  MORTAR_LOG=debug mortar dev --log-format json

Ctrl-C or SIGTERM ends it in good order; after anything else it recovers when it is started again.";

/// Run a whole cluster in one process: bricks, peer servers and the catalogue
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Dev {
    /// Data directory; made if it does not exist
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Keep everything in memory; it is lost when the process ends
    #[arg(long)]
    memory: bool,
    /// The most that a store in memory holds; then it accepts only changes that free room
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, requires = "memory", value_parser = value_parser!(u32).range(1..))]
    memory_mib: u32,
    /// Changes of each brick in memory that are not in the B-tree yet, in MiB [default: a thousandth of the
    /// machine's memory, 12 to 256]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u32).range(BUFFER_MIB))]
    buffer_mib: Option<u32>,
    /// Objects that each peer server keeps in memory, in MiB [default: 1/64 of the machine's memory, 64 to
    /// 4096]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u32).range(1..=MAX_MIB))]
    cache_mib: Option<u32>,
    /// How long an upload lasts after its last bytes, and uploaded bytes that no object has, in seconds [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u32).range(UPLOAD_LEASE_S))]
    upload_lease_s: Option<u32>,
    /// Listen for TCP connections here, HOST:PORT; port 0 takes a free one; none: not at all
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: String,
    /// Listen on this Unix socket; none: not at all [default: mortar.sock in the data directory; with --memory none]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve /metrics and /health here, or none
    #[arg(long, value_name = "ADDRESS", default_value = HTTP)]
    http: String,
    /// Where processes that join find the catalogue [default: 127.0.0.1:6690 with the default of --listen, else any free port]
    #[arg(long, value_name = "ADDRESS")]
    meta_listen: Option<String>,
    /// Allow addresses that other machines can reach without TLS
    #[arg(long)]
    insecure: bool,
    /// Open a data directory that other users of this machine can enter
    #[arg(long)]
    allow_loose_permissions: bool,
    /// Serve the other bricks when the directory of a brick is missing; its objects are unreachable
    #[arg(long)]
    allow_missing_bricks: bool,
    /// Threads that serve connections [default: one for every two processors, at most 16]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=256))]
    io_threads: Option<u16>,
    /// Run this number of bricks in this process [default: as many as the data directory has, at least 1]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=64))]
    bricks: Option<u16>,
    /// Run this number of peer servers in this process; the first uses --listen, --socket and --http
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    peers: u16,
    /// Make the space main with this number of logical nodes: it can never use more bricks [default: 8, or more for many bricks]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=4096))]
    nodes: Option<u32>,
    /// Format of the log on the error stream; MORTAR_LOG=debug,store=trace sets its level
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// The report of a cluster that has started.
#[derive(Serialize)]
struct Ready {
    /// The addresses of the peer servers, as one URL for the space `main`.
    url: String,
    /// All addresses of the peer servers, as URLs.
    urls: Vec<String>,
    bricks: Vec<String>,
    meta: String,
    /// The address of `/metrics` and `/health` of the first peer server.
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    /// The data directory; absent in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    pid: u32,
    /// The option with which commands find the server; empty if they find it by themselves.
    #[serde(skip)]
    flag: String,
    /// The option with which processes find the catalogue; empty if they find it by themselves, and `None` if its address is another one
    /// after a restart.
    #[serde(skip)]
    join_flag: Option<String>,
}

impl Report for Ready {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.data {
            Some(data) => writeln!(out, "Mortar serves {data}. Ctrl-C ends it.\n")?,
            None => writeln!(out, "Mortar serves from memory; nothing is kept. Ctrl-C ends it.\n")?,
        }
        for url in &self.urls {
            writeln!(out, "  {url}")?;
        }
        if let Some(http) = &self.http {
            writeln!(out, "  http://{http}/metrics  http://{http}/health")?;
        }
        let flag = &self.flag;
        writeln!(out, "\nIn another terminal{}:\n", if flag.is_empty() { ", same directory" } else { "" })?;
        writeln!(out, "  echo hello | mortar{flag} put - /hello")?;
        writeln!(out, "  mortar{flag} get /hello")?;
        writeln!(out, "  mortar{flag} import /usr/share/doc")?;
        writeln!(out, "  mortar{flag} ls -l")?;
        // A process that joins has to find the catalogue again after a restart, and the secret.
        let (Some(data), Some(join)) = (&self.data, &self.join_flag) else { return Ok(()) };
        let secret = Path::new(data).join(SECRET_FILE);
        writeln!(out, "\nA brick in a process of its own joins with:\n")?;
        let brick = "mortar node --role brick --data brick-2 --listen 127.0.0.1:6681";
        writeln!(out, "  {brick}{join} --cluster-secret {}", shell_word(&secret.display().to_string()))
    }
}

pub(crate) fn run(args: &Dev, output: &mut Output) -> Result {
    if args.memory {
        allocator::configure_for_memory()
    } else {
        allocator::configure_for_disk()
    }
    serving::start_log(None, args.log_format)?;
    let config = config(args)?;
    // The servers have their own threads; this thread starts and ends them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::file("cannot start", &e))?;
    runtime.block_on(serve(args, config, output))
}

/// Serves until a signal ends it. `config` is that of the first peer server.
async fn serve(args: &Dev, config: Config, output: &mut Output) -> Result {
    let mut signals = Signals::listen()?;
    let (mut cluster, mut jobs) = (LocalCluster::default(), Vec::new());
    let served = tokio::select! {
        started = start(args, config, &mut cluster) => match started {
            Ok(ready) => {
                jobs = JobRunner::start_all(cluster.peers());
                output.announce(&ready);
                signals.next().await;
                Ok(())
            }
            Err(failure) => Err(failure),
        },
        () = signals.next() => {
            info!("stopped during its start");
            Ok(())
        }
    };
    let end = async {
        JobRunner::stop_all(jobs).await;
        cluster.end().await
    };
    let ended = tokio::select! {
        ended = end => ended.map_err(Failure::from),
        () = signals.next() => {
            Err(Failure::interrupted("stopped by a second signal; the store recovers at its next start"))
        }
    };
    served.and(ended)
}

/// Starts the servers. `config` is that of the first peer server.
async fn start(args: &Dev, config: Config, cluster: &mut LocalCluster) -> Result<Ready> {
    if !args.memory && args.data.join("meta.toml").exists() {
        let message = format!("{} is a directory of `mortar cluster up`", args.data.display());
        return Err(Failure::conflict(message).hint("Start it with that, or name another directory with --data DIR."));
    }
    if !args.memory
        && let DirectoryContents::Other(name) = DirectoryContents::of(&args.data)?
    {
        let message = format!("{} contains other files than a cluster: {name}", args.data.display());
        return Err(Failure::conflict(message).hint("Choose an empty or a new directory with --data DIR."));
    }
    let meta_listen: Address = match &args.meta_listen {
        Some(address) => address.parse()?,
        None if args.listen == LISTEN => META_LISTEN.parse()?,
        None => LOOPBACK.parse()?,
    };
    // Nothing is made for a cluster that cannot be started. One that exists is locked by the process that runs it, which says more.
    if args.memory
        || matches!(DirectoryContents::of(&args.data)?, DirectoryContents::Missing | DirectoryContents::Empty)
    {
        check_addresses(&config).await.map_err(explain_start)?;
        let listen = config.listen.iter().chain([&meta_listen]).cloned().collect();
        check_addresses(&Config { listen, ..config.clone() }).await.map_err(explain_meta_start)?;
    }
    let secret = args.data.join(SECRET_FILE);
    let auth = match args.memory {
        true => AuthSettings::with_shared_secret(Secret::generate()),
        false => AuthSettings::with_secret_file(&secret),
    };
    let loopback: Address = LOOPBACK.parse()?;
    let settings =
        |role: ProcessRole, data: Option<PathBuf>, listen: Vec<Address>, http: Option<SocketAddr>| Settings {
            role,
            data: data.filter(|_| !args.memory),
            memory: args.memory,
            memory_mib: args.memory_mib,
            sizes: MemorySizes { buffer_mib: args.buffer_mib, cache_mib: args.cache_mib },
            upload_lease_s: args.upload_lease_s,
            scrub: ScrubRate::default(),
            listen,
            advertise: Vec::new(),
            http,
            meta: Vec::new(),
            upstream: Vec::new(),
            group: None,
            etcd: None,
            auth: auth.clone(),
            insecure: args.insecure,
            allow_loose_permissions: args.allow_loose_permissions,
            io_threads: args.io_threads,
            connections: Default::default(),
            log: None,
            log_format: args.log_format,
        };
    let of_brick = |data: PathBuf| settings(ProcessRole::Brick, Some(data), vec![loopback.clone()], None);
    let stores = open_stores(args, |data, purpose| open(&of_brick(data), purpose))?;
    if !args.memory && !secret.exists() {
        Secret::create(&secret)?;
    }
    let data = (!args.memory).then_some(&*args.data);
    let explain = |error| explain_start_on(error, data, Purpose::Whole);
    let catalogue = Arc::new(Embedded::open(&stores[&1]).map_err(explain)?);
    let config_of = |settings: Settings| Ok::<_, Failure>(Config { is_reached_in_process: true, ..settings.config()? });
    let of_meta = settings(ProcessRole::Meta, None, vec![meta_listen], None);
    let server =
        MetaServer::start(catalogue.clone(), config_of(of_meta)?).await.map_err(|error| match error.kind() {
            ErrorKind::Corrupt => explain(error),
            _ => explain_meta_start(error),
        })?;
    let meta = join_addresses(server.addresses());
    let peer = |number: u16| {
        let (listen, http) =
            if number == 1 { (config.listen.clone(), config.http) } else { (vec![loopback.clone()], None) };
        config_of(settings(ProcessRole::Peer, None, listen, http))
    };
    let peers = (1..=args.peers).map(peer).collect::<Result<Vec<_>>>()?;
    let brick = config_of(of_brick(args.data.clone()))?;
    let started = cluster.start(catalogue, server, stores, |_| brick.clone(), peers, args.nodes).await;
    started.map_err(|error| match error.kind() {
        ErrorKind::Exists => Failure::from(error)
            .hint("Leave --nodes out, or make another space: `mortar space create NAME --nodes COUNT`."),
        _ => explain(error),
    })?;
    let peers: Vec<_> = cluster.peers().iter().map(|peer| peer.server().addresses().to_vec()).collect();
    let of = |address: &Address| Url { user: None, address: address.clone(), space: MAIN_SPACE.to_owned() }.to_string();
    let urls: Vec<String> = peers.iter().flatten().map(of).collect();
    Ok(Ready {
        url: combined_url(&peers, of),
        flag: server_flag(args, &urls),
        urls,
        bricks: cluster.bricks().iter().map(|brick| join_addresses(brick.server().addresses())).collect(),
        join_flag: match &args.meta_listen {
            None => (meta == META_LISTEN).then(String::new),
            Some(_) => Some(format!(" --join mortar://{meta}")),
        },
        meta,
        http: cluster.peers().iter().find_map(|peer| peer.server().http()).map(|http| http.to_string()),
        data: (!args.memory).then(|| args.data.display().to_string()),
        pid: std::process::id(),
    })
}

/// Opens the stores of the bricks, by the numbers of their directories.
fn open_stores(args: &Dev, open: impl Fn(PathBuf, Purpose) -> Result<Store>) -> Result<BTreeMap<u16, Store>> {
    let bricks = args.bricks.unwrap_or(1);
    let first = open(args.data.clone(), Purpose::Whole)?;
    let mut stores = BTreeMap::new();
    if args.memory {
        for number in 2..=bricks {
            stores.insert(number, open(args.data.clone(), Purpose::Brick)?);
        }
    } else {
        let explain = |error| explain_start_on(error, Some(&args.data), Purpose::Whole);
        let places = BrickDirectories::find(&args.data, &first, bricks).map_err(explain)?;
        match places.check_complete() {
            Err(missing) if args.allow_missing_bricks => warn!(%missing, "its objects are unreachable"),
            checked => checked.map_err(explain_missing)?,
        }
        for (number, data) in places.directories() {
            stores.insert(number, open(data, Purpose::Brick)?);
        }
    }
    stores.insert(1, first);
    Ok(stores)
}

/// The failure to find the directory of a brick, with a hint.
fn explain_missing(error: Error) -> Failure {
    Failure::local(error).hint(
        "Put it back. If it is lost, restore a backup of the whole cluster: `mortar restore FILE --data NEW`. Or serve what the other \
         bricks have, with --allow-missing-bricks.",
    )
}

/// The option with which a command in the same directory finds the server.
fn server_flag(args: &Dev, urls: &[String]) -> String {
    let is_found = !args.memory && args.data == Path::new(DATA) && args.socket.is_none();
    match urls.first() {
        Some(url) if !is_found && args.listen != LISTEN => format!(" --server {}", shell_word(url)),
        _ => String::new(),
    }
}

/// A text as one word of a shell.
fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,[]".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', "'\\''")))
}

/// One URL for several peer servers, by TCP where possible.
fn combined_url(peers: &[Vec<Address>], of: impl Fn(&Address) -> String) -> String {
    let hosts: Vec<&str> = peers
        .iter()
        .filter_map(|addresses| {
            addresses.iter().find_map(|address| match address {
                Address::Tcp(host) => Some(host.as_str()),
                Address::Tls(_) | Address::Unix(_) | Address::InProcess(_) => None,
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

fn config(args: &Dev) -> Result<Config> {
    let mut listen = Vec::new();
    listen.extend(socket(args)?.map(Address::Unix));
    if args.listen != NONE {
        listen.push(args.listen.parse()?);
    }
    if listen.is_empty() {
        return Err(
            Failure::usage("a server needs an address or a socket to listen on").hint("Give --listen or --socket.")
        );
    }
    let threads = args.io_threads.map_or(Config::default().threads, usize::from);
    Ok(Config {
        listen,
        http: settings::parse_http_address(&args.http)?,
        insecure: args.insecure,
        threads,
        ..Config::default()
    })
}

/// The path of the socket, if there is one.
fn socket(args: &Dev) -> Result<Option<PathBuf>> {
    let path = match &args.socket {
        Some(none) if none.as_os_str() == NONE => return Ok(None),
        Some(path) => path.clone(),
        None if args.memory => return Ok(None),
        None => args.data.join(SOCKET),
    };
    let path = std::path::absolute(path).map_err(|e| Failure::file("cannot determine the current directory", &e))?;
    if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
        let message = format!("the socket's path is longer than {MAX_SOCKET_PATH_BYTES} bytes: {}", path.display());
        return Err(Failure::usage(message).hint("Choose a shorter one with --socket PATH, or --socket none."));
    }
    Ok(Some(path))
}

/// Opens the store in a directory, which must have this purpose.
pub(super) fn open_for(data: &Path, purpose: Purpose, options: Options) -> Result<Store> {
    let opened = Store::open(data, options).and_then(|store| {
        purpose.check(&store)?;
        // The opening of a brick is logged with its first change: see docs/decisions/openings.md.
        if purpose == Purpose::Catalogue {
            store.log_opening()?;
        }
        Ok(store)
    });
    opened.map_err(|error| match error.kind() {
        ErrorKind::Denied => explain_loose_permissions(error),
        ErrorKind::Corrupt => explain_damage(error, data, purpose),
        _ => Failure::local(error),
    })
}

/// The failure to start with damaged data, which no running server can scrub, with a hint.
fn explain_damage(error: Error, data: &Path, purpose: Purpose) -> Failure {
    let repair = format!("See what `mortar repair --data {}` can keep, or restore a backup", data.display());
    Failure::local(error).hint(match purpose {
        Purpose::Brick => format!(
            "{repair} of the whole cluster: `mortar restore FILE --data NEW` makes a new directory. An older copy of this directory alone is \
             no remedy: the brick would go back in time, and the cluster would not."
        ),
        Purpose::Whole | Purpose::Catalogue => {
            format!("{repair}: `mortar restore FILE --data NEW` makes a new directory.")
        }
    })
}

/// The failure to open a data directory that other users can enter, in a command that can be told to open it.
fn explain_loose_permissions(error: Error) -> Failure {
    Failure::local(error).hint(
        "Or open it as it is, with --allow-loose-permissions, or with `allow_loose_permissions = true` in the process's file.",
    )
}

/// The failure to open a data directory, with a hint.
pub(super) fn explain_open(error: Error, data: &Path) -> Failure {
    match error.kind() {
        ErrorKind::Corrupt => explain_damage(error, data, Purpose::Whole),
        _ => Failure::local(error),
    }
}

/// The failure to start the meta-server, with a hint.
fn explain_meta_start(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Io => {
            Failure::from(error).hint("If another server uses the port, choose one with --meta-listen HOST:PORT.")
        }
        _ => explain_start(error),
    }
}

/// The failure to start a server with this data directory, with a hint.
pub(super) fn explain_start_on(error: Error, data: Option<&Path>, purpose: Purpose) -> Failure {
    match (error.kind(), data) {
        (ErrorKind::Corrupt, Some(data)) => explain_damage(error, data, purpose),
        _ => explain_start(error),
    }
}

/// The failure to listen, with a hint.
pub(super) fn explain_start(error: Error) -> Failure {
    let kind = error.kind();
    let failure = Failure::from(error);
    match kind {
        ErrorKind::Io => failure
            .hint("If another server uses the port, choose one with --listen HOST:PORT and --http HOST:PORT, or none."),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_words_of_a_shell() {
        for plain in ["mortar://127.0.0.1:6678/main", "mortar+unix:///srv/mortar.sock/main"] {
            assert_eq!(shell_word(plain), plain);
        }
        assert_eq!(shell_word("/my data"), "'/my data'");
        assert_eq!(shell_word("a'b $c"), "'a'\\''b $c'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_server_that_does_not_start_because_of_damage_hints_at_the_repair() {
        let failure =
            |purpose| explain_start_on(Error::new(ErrorKind::Corrupt, "page 7"), Some(Path::new("d")), purpose);
        for purpose in [Purpose::Brick, Purpose::Catalogue, Purpose::Whole] {
            let text = failure(purpose).to_string();
            assert!(text.contains("mortar repair --data d") && !text.contains("scrub"), "{text}");
        }
    }
}
