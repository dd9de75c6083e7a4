//! The files of a cluster on one machine.
//!
//! ```text
//!   DIR/cluster.json             who runs: written by `up`, removed when all have ended
//!   DIR/cluster.secret           what the processes know each other by
//!   DIR/meta.toml  brick-1.toml  peer-1.toml …     settings: made once, then left alone
//!   DIR/meta/      brick-1/                        data
//!   DIR/meta.log   brick-1.log   peer-1.log …
//! ```

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use client::{Credentials, Url};
use node::auth::Secret;
use wire::transport::Address;

use super::process::Process;
use crate::failure::{Failure, Result};
use crate::settings::{AuthSettings, MEMORY_MIB, PartialSettings, ProcessRole, Settings};

/// The file with what the processes know each other by.
const SECRET_FILE: &str = "cluster.secret";

/// A process of a cluster, by its files.
#[derive(Clone, Debug)]
pub(super) struct ProcessFiles {
    /// `meta`, `brick-1`, `peer-1`, …
    pub(super) name: String,
    pub(super) role: ProcessRole,
    /// The file with its settings.
    pub(super) config: PathBuf,
    /// The file that its log goes to.
    pub(super) log: PathBuf,
    pub(super) address: Address,
    pub(super) http: Option<String>,
    pub(super) memory: bool,
    /// Where others of the cluster reach it.
    pub(super) advertised: Vec<String>,
    /// Where it keeps its data.
    data: Option<PathBuf>,
}

/// A cluster's directory.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
    /// The meta-server, then bricks, then peer servers.
    pub(super) processes: Vec<ProcessFiles>,
}

/// How many processes of a role there are to be.
#[derive(Clone, Copy)]
pub(super) struct ClusterSize {
    pub(super) bricks: Option<u16>,
    pub(super) peers: Option<u16>,
    pub(super) memory: bool,
}

impl Layout {
    /// The cluster in a directory.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir).map_err(|e| Failure::file("cannot tell the current directory", &e))?;
        let mut parts = Vec::new();
        let meta = dir.join("meta.toml");
        if !meta.exists() {
            return Err(Failure::not_found(format!("there is no cluster in {}", dir.display()))
                .hint("`mortar cluster up --data DIR` makes one."));
        }
        parts.push(ProcessFiles::read(&dir, "meta".to_owned())?);
        for role in [ProcessRole::Brick, ProcessRole::Peer] {
            for number in numbers(&dir, role)? {
                parts.push(ProcessFiles::read(&dir, format!("{}-{number}", role.name()))?);
            }
        }
        Ok(Self { dir, processes: parts })
    }

    /// The same with the processes that are wanted: makes the files of those that are not there yet.
    pub(super) fn prepare(dir: &Path, wanted: ClusterSize) -> Result<Self> {
        let cannot = |error| Failure::file(format!("cannot write to {}", dir.display()), &error);
        fs::create_dir_all(dir).map_err(cannot)?;
        let known = if dir.join("meta.toml").exists() { Some(Self::read(dir)?) } else { None };
        let dir = std::path::absolute(dir).map_err(|e| Failure::file("cannot tell the current directory", &e))?;
        let count = |role| {
            let parts = known.iter().flat_map(|layout| &layout.processes);
            parts.filter(|part| part.role == role).count() as u16
        };
        let (bricks, peers) = (count(ProcessRole::Brick), count(ProcessRole::Peer));
        if let Some(few) = wanted.bricks.filter(|wanted| *wanted < bricks) {
            let message = format!("the cluster in {} has {bricks} bricks, and {few} are wanted", dir.display());
            return Err(
                Failure::usage(message).hint("What the others keep would be missing. Choose another directory.")
            );
        }
        if known
            .iter()
            .flat_map(|layout| &layout.processes)
            .any(|part| part.role != ProcessRole::Peer && part.memory != wanted.memory)
        {
            let is = if wanted.memory { "durable" } else { "in memory" };
            let message = format!("the cluster in {} is {is}", dir.display());
            return Err(Failure::usage(message)
                .hint("Start it as it is, with or without --memory, or choose another directory."));
        }
        let bricks = wanted.bricks.unwrap_or(if bricks == 0 { 2 } else { bricks });
        let peers = wanted.peers.unwrap_or(if peers == 0 { 1 } else { peers });
        // A cluster that was made without one has to be told of it: its files are left alone.
        if known.is_none() && !dir.join(SECRET_FILE).exists() {
            Secret::create(&dir.join(SECRET_FILE))?;
        }
        let mut free = FreePorts::default();
        let meta =
            ProcessFiles::read_or_create(&dir, "meta".to_owned(), ProcessRole::Meta, wanted.memory, None, &mut free)?;
        let mut parts = vec![meta.clone()];
        for (role, count) in [(ProcessRole::Brick, bricks), (ProcessRole::Peer, peers)] {
            // Those that there are, and new ones behind them: a number whose file was removed is not used again by itself.
            let mut there = numbers(&dir, role)?;
            let last = there.last().copied().unwrap_or(0);
            let more = usize::from(count).saturating_sub(there.len());
            there.extend((last..).skip(1).take(more));
            for number in there.into_iter().take(count.into()) {
                let name = format!("{}-{number}", role.name());
                parts.push(ProcessFiles::read_or_create(
                    &dir,
                    name,
                    role,
                    wanted.memory,
                    Some(&meta.address),
                    &mut free,
                )?);
            }
        }
        Ok(Self { dir, processes: parts })
    }

    /// The processes with a role.
    pub(super) fn with_role(&self, role: ProcessRole) -> impl Iterator<Item = &ProcessFiles> {
        self.processes.iter().filter(move |part| part.role == role)
    }

    /// Where clients connect.
    pub(super) fn url(&self) -> String {
        let hosts: Vec<String> = self.with_role(ProcessRole::Peer).map(|peer| peer.address.to_string()).collect();
        format!("mortar://{}/main", hosts.join(","))
    }

    /// Who its tools are.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        let secret = Secret::load(&self.dir.join(SECRET_FILE)).ok()?;
        Some(Credentials { user: String::new(), password: secret.primary() })
    }

    /// The file that says who runs.
    pub(super) fn running_file(&self) -> PathBuf {
        self.dir.join("cluster.json")
    }
}

/// The numbers of the processes with a role that have files, rising.
fn numbers(dir: &Path, role: ProcessRole) -> Result<Vec<u32>> {
    let cannot = |error| Failure::file(format!("cannot read {}", dir.display()), &error);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        let number = name.to_str().and_then(|name| {
            let digits = name.strip_prefix(role.name())?.strip_prefix('-')?.strip_suffix(".toml")?;
            // As it is written here: not 01.
            digits.parse::<u32>().ok().filter(|number| number.to_string() == digits)
        });
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

impl ProcessFiles {
    fn read(dir: &Path, name: String) -> Result<Self> {
        let config = dir.join(format!("{name}.toml"));
        let settings = Settings::resolve(PartialSettings::read(&config)?)?;
        let address = settings.listen.first().cloned();
        let address = address.ok_or_else(|| Failure::usage(format!("{} names no address", config.display())))?;
        let (log, http) = (dir.join(format!("{name}.log")), settings.http.map(|http| http.to_string()));
        let reached_at = if settings.advertise.is_empty() { &settings.listen } else { &settings.advertise };
        let reached_at = reached_at.iter().map(Address::to_string).collect();
        let Settings { role, memory, data, .. } = settings;
        Ok(Self { name, role, config, log, address, http, memory, advertised: reached_at, data })
    }

    /// A part whose file is made if there is none.
    fn read_or_create(
        dir: &Path,
        name: String,
        role: ProcessRole,
        memory: bool,
        meta: Option<&Address>,
        free: &mut FreePorts,
    ) -> Result<Self> {
        let config = dir.join(format!("{name}.toml"));
        if !config.exists() {
            let memory = memory && role != ProcessRole::Peer;
            let settings = Settings {
                role,
                data: (role != ProcessRole::Peer && !memory).then(|| PathBuf::from(&name)),
                memory,
                memory_mib: MEMORY_MIB,
                listen: vec![free.next_address()?.parse()?],
                advertise: Vec::new(),
                http: crate::settings::parse_http_address(&free.next_address()?)?,
                meta: meta.cloned().into_iter().collect(),
                etcd: None,
                auth: if dir.join(SECRET_FILE).exists() {
                    AuthSettings::with_secret_file(Path::new(SECRET_FILE))
                } else {
                    AuthSettings::default()
                },
                insecure: false,
                io_threads: None,
                log: None,
                log_format: Default::default(),
            };
            let cannot = |error| Failure::file(format!("cannot write {}", config.display()), &error);
            // Whole or not at all: a file that is there is left alone later.
            let part = dir.join(format!("{name}.toml.part"));
            fs::write(&part, settings.to_toml()).and_then(|()| fs::rename(&part, &config)).map_err(cannot)?;
        }
        Self::read(dir, name)
    }

    /// Whether it has data of a start before.
    pub(super) fn has_run(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.exists())
    }

    /// Whether somebody runs it with other settings than those of its file.
    pub(super) fn runs_elsewhere(&self) -> bool {
        let holder = self.data.as_deref().and_then(store::lock_owner).and_then(Process::find);
        holder.is_some_and(|process| process.is_running())
    }

    /// The URL by which tools ask it how it is.
    pub(super) fn url(&self) -> String {
        url_of(self.address.clone())
    }
}

/// The URL of a process of the cluster.
pub(super) fn url_of(address: Address) -> String {
    Url { user: None, address, space: "main".to_owned() }.to_string()
}

/// Ports of this machine that nobody has: held until all are chosen, so that none is chosen twice.
#[derive(Default)]
struct FreePorts {
    listeners: Vec<TcpListener>,
}

impl FreePorts {
    fn next_address(&mut self) -> Result<String> {
        let cannot = |error: io::Error| Failure::file("there is no free port", &error);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?.to_string();
        self.listeners.push(listener);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT_SIZE: ClusterSize = ClusterSize { bricks: None, peers: None, memory: false };

    #[test]
    fn a_cluster_is_found_as_it_was_made_and_grows() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Layout::read(dir.path()).is_err());
        let made = Layout::prepare(dir.path(), DEFAULT_SIZE).unwrap();
        let names =
            |layout: &Layout| layout.processes.iter().map(|part| part.name.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(&made), "meta brick-1 brick-2 peer-1");
        let found = Layout::read(dir.path()).unwrap();
        assert_eq!(format!("{found:?}"), format!("{made:?}"));
        let grown =
            Layout::prepare(dir.path(), ClusterSize { bricks: Some(3), peers: Some(2), ..DEFAULT_SIZE }).unwrap();
        assert_eq!(names(&grown), "meta brick-1 brick-2 brick-3 peer-1 peer-2");
        assert_eq!(grown.processes[1].address, made.processes[1].address);
        assert!(Layout::prepare(dir.path(), ClusterSize { bricks: Some(2), ..DEFAULT_SIZE }).is_err());
        assert!(Layout::prepare(dir.path(), ClusterSize { memory: true, ..DEFAULT_SIZE }).is_err());
        assert_eq!(names(&Layout::prepare(dir.path(), DEFAULT_SIZE).unwrap()), names(&grown));
    }

    #[test]
    fn a_file_that_is_gone_leaves_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        Layout::prepare(dir.path(), ClusterSize { bricks: Some(3), ..DEFAULT_SIZE }).unwrap();
        fs::remove_file(dir.path().join("brick-2.toml")).unwrap();
        let names =
            |layout: Layout| layout.processes.iter().map(|part| part.name.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(Layout::read(dir.path()).unwrap()), "meta brick-1 brick-3 peer-1");
        assert_eq!(names(Layout::prepare(dir.path(), DEFAULT_SIZE).unwrap()), "meta brick-1 brick-3 peer-1");
        let grown = Layout::prepare(dir.path(), ClusterSize { bricks: Some(3), ..DEFAULT_SIZE }).unwrap();
        assert_eq!(names(grown), "meta brick-1 brick-3 brick-4 peer-1");
    }
}
