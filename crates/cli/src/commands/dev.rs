//! `mortar dev`: a store, or a whole cluster, in one process.

mod cluster;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use client::Url;
use model::{Error, ErrorKind};
use node::purpose::Purpose;
use node::{Brick, Config};
use serde::Serialize;
use store::{Options, Store};
use wire::transport::Address;

use crate::allocator;
use crate::connection::{DATA, LISTEN, SOCKET};
use crate::failure::{Failure, Result};
use crate::output::{Output, Report};
use crate::serving::{self, LogFormat, Signals};
use crate::settings::{self, MEMORY_MIB, NONE};

/// The default address of `/metrics` and `/health`.
const HTTP: &str = "127.0.0.1:6679";
/// The longest path of a socket that the system allows.
const MAX_SOCKET_PATH_BYTES: usize = 107;

const EXAMPLES: &str = "\
Examples:
  mortar dev                                    data in ./mortar-data
  mortar dev --data /srv/mortar
  mortar dev --memory --memory-mib 512          nothing is kept, and no more than this held
  mortar dev --listen 127.0.0.1:0 --http none   any free port, no metrics
  mortar dev --bricks 4 --peers 2               a cluster in this process, its data in ./mortar-data too
  MORTAR_LOG=debug mortar dev --log-format json

Ctrl-C or SIGTERM ends it in good order; after anything else it recovers when it is started again.";

/// Run a server
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
    /// Listen for TCP connections here, HOST:PORT; port 0 takes a free one; none: not at all
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: String,
    /// Listen on this Unix socket; none: not at all [default: mortar.sock in the data directory; with --memory none]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve /metrics and /health here, or none
    #[arg(long, value_name = "ADDRESS", default_value = HTTP)]
    http: String,
    /// Allow addresses that other machines can reach; this server has no users
    #[arg(long)]
    insecure: bool,
    /// Open a data directory that other users of this machine can enter
    #[arg(long)]
    allow_loose_permissions: bool,
    /// Threads that serve connections [default: one for every two processors, at most 16]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=256))]
    io_threads: Option<u16>,
    /// Run a cluster with this number of bricks, all in this process [default, with --peers: 1]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=64))]
    bricks: Option<u16>,
    /// Run a cluster with this number of peer servers; the first uses --listen, --socket and --http [default, with
    /// --bricks: 1]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=64))]
    peers: Option<u16>,
    /// Format of the log on the error stream; MORTAR_LOG=debug,store=trace sets its level
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// The report of a server that has started.
#[derive(Serialize)]
struct Ready {
    /// The addresses as URLs for the space `main`.
    urls: Vec<String>,
    /// The address of `/metrics` and `/health`.
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    /// The data directory; absent in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    pid: u32,
    #[serde(skip)]
    flag: String,
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
        writeln!(out, "  mortar{flag} ls -l")
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
    if args.bricks.is_some() || args.peers.is_some() {
        return runtime.block_on(cluster::serve(args, config, output));
    }
    let store = match args.memory {
        true => Store::in_memory(Options { memory_bytes: (args.memory_mib as usize) << 20, ..Options::default() })?,
        false => open_for(&args.data, Purpose::Standalone, args.allow_loose_permissions)?,
    };
    runtime.block_on(serve(args, config, store, output))
}

async fn serve(args: &Dev, config: Config, store: Store, output: &mut Output) -> Result {
    let mut signals = Signals::listen()?;
    let brick = Brick::start(store, config).await.map_err(explain_start)?;
    announce(args, &brick, output)?;
    signals.next().await;
    tokio::select! {
        ended = brick.shutdown() => Ok(ended?),
        () = signals.next() => {
            Err(Failure::interrupted("stopped by a second signal; the store recovers at its next start"))
        }
    }
}

/// Prints the addresses of the server. A closed output does not end the server.
fn announce(args: &Dev, brick: &Brick, output: &mut Output) -> Result {
    let urls: Vec<String> = brick
        .addresses()
        .iter()
        .map(|address| Url { user: None, address: address.clone(), space: "main".to_owned() }.to_string())
        .collect();
    let found_by_itself = !args.memory && args.data == Path::new(DATA) && args.socket.is_none();
    let flag = match urls.first() {
        Some(url) if !found_by_itself && args.listen != LISTEN => format!(" --server {url}"),
        _ => String::new(),
    };
    let ready = Ready {
        urls,
        http: brick.http().map(|address| address.to_string()),
        data: (!args.memory).then(|| args.data.display().to_string()),
        pid: std::process::id(),
        flag,
    };
    match output.print(&ready).and_then(|()| output.flush()) {
        Err(failure) if failure.is_broken_pipe() => Ok(()),
        printed => printed,
    }
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
pub(super) fn open_for(data: &Path, purpose: Purpose, allow_loose_permissions: bool) -> Result<Store> {
    let options = Options { allow_loose_permissions, ..Options::default() };
    let opened = Store::open(data, options).and_then(|store| {
        purpose.check(&store)?;
        if purpose != Purpose::Brick {
            store.log_opening()?;
        }
        Ok(store)
    });
    opened.map_err(|error| match (purpose, error.kind()) {
        (Purpose::Brick, ErrorKind::Corrupt) => Failure::local(error).hint(format!(
            "See what `mortar repair --data {}` can keep. A backup or a copy of this directory is no remedy: the brick would go back \
             in time, and the cluster would not.",
            data.display()
        )),
        (_, ErrorKind::Denied) => explain_loose_permissions(error),
        _ => explain_open(error, data),
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
    let kind = error.kind();
    let failure = Failure::local(error);
    match kind {
        ErrorKind::Corrupt => failure.hint(format!(
            "Restore a backup into another directory, or see what `mortar repair --data {}` can save.",
            data.display()
        )),
        _ => failure,
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
