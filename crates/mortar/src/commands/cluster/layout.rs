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
use node::doors::Secret;
use wire::transport::Address;

use super::process::Process;
use crate::failure::{Failure, Result};
use crate::settings::{Doors, Given, MEMORY_MIB, Role, Settings};

/// The file with what the processes know each other by.
const SECRET: &str = "cluster.secret";

/// A process of a cluster, by its files.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// `meta`, `brick-1`, `peer-1`, …
    pub(super) name: String,
    pub(super) role: Role,
    /// The file with its settings.
    pub(super) config: PathBuf,
    /// The file that its log goes to.
    pub(super) log: PathBuf,
    pub(super) address: Address,
    pub(super) http: Option<String>,
    pub(super) memory: bool,
    /// Where others of the cluster reach it.
    pub(super) reached_at: Vec<String>,
    /// Where it keeps its data.
    data: Option<PathBuf>,
}

/// A cluster's directory.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
    /// The meta-server, then bricks, then peer servers.
    pub(super) parts: Vec<Part>,
}

/// How many processes of a role there are to be.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
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
        parts.push(Part::read(&dir, "meta".to_owned())?);
        for role in [Role::Brick, Role::Peer] {
            for number in numbers(&dir, role)? {
                parts.push(Part::read(&dir, format!("{}-{number}", role.name()))?);
            }
        }
        Ok(Self { dir, parts })
    }

    /// The same with the processes that are wanted: makes the files of those that are not there yet.
    pub(super) fn prepare(dir: &Path, wanted: Wanted) -> Result<Self> {
        let cannot = |error| Failure::file(format!("cannot write to {}", dir.display()), &error);
        fs::create_dir_all(dir).map_err(cannot)?;
        let known = if dir.join("meta.toml").exists() { Some(Self::read(dir)?) } else { None };
        let dir = std::path::absolute(dir).map_err(|e| Failure::file("cannot tell the current directory", &e))?;
        let count = |role| {
            let parts = known.iter().flat_map(|layout| &layout.parts);
            parts.filter(|part| part.role == role).count() as u16
        };
        let (bricks, peers) = (count(Role::Brick), count(Role::Peer));
        if let Some(few) = wanted.bricks.filter(|wanted| *wanted < bricks) {
            let message = format!("the cluster in {} has {bricks} bricks, and {few} are wanted", dir.display());
            return Err(
                Failure::usage(message).hint("What the others keep would be missing. Choose another directory.")
            );
        }
        if known
            .iter()
            .flat_map(|layout| &layout.parts)
            .any(|part| part.role != Role::Peer && part.memory != wanted.memory)
        {
            let is = if wanted.memory { "durable" } else { "in memory" };
            let message = format!("the cluster in {} is {is}", dir.display());
            return Err(Failure::usage(message)
                .hint("Start it as it is, with or without --memory, or choose another directory."));
        }
        let bricks = wanted.bricks.unwrap_or(if bricks == 0 { 2 } else { bricks });
        let peers = wanted.peers.unwrap_or(if peers == 0 { 1 } else { peers });
        // A cluster that was made without one has to be told of it: its files are left alone.
        if known.is_none() && !dir.join(SECRET).exists() {
            Secret::create(&dir.join(SECRET))?;
        }
        let mut free = FreePorts::default();
        let meta = Part::provide(&dir, "meta".to_owned(), Role::Meta, wanted.memory, None, &mut free)?;
        let mut parts = vec![meta.clone()];
        for (role, count) in [(Role::Brick, bricks), (Role::Peer, peers)] {
            // Those that there are, and new ones behind them: a number whose file was removed is not used again by itself.
            let mut there = numbers(&dir, role)?;
            let last = there.last().copied().unwrap_or(0);
            let more = usize::from(count).saturating_sub(there.len());
            there.extend((last..).skip(1).take(more));
            for number in there.into_iter().take(count.into()) {
                let name = format!("{}-{number}", role.name());
                parts.push(Part::provide(&dir, name, role, wanted.memory, Some(&meta.address), &mut free)?);
            }
        }
        Ok(Self { dir, parts })
    }

    /// The processes with a role.
    pub(super) fn with(&self, role: Role) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(move |part| part.role == role)
    }

    /// Where clients connect.
    pub(super) fn url(&self) -> String {
        let hosts: Vec<String> = self.with(Role::Peer).map(|peer| peer.address.to_string()).collect();
        format!("mortar://{}/main", hosts.join(","))
    }

    /// Who its tools are.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        let secret = Secret::load(&self.dir.join(SECRET)).ok()?;
        Some(Credentials { user: String::new(), password: secret.shown() })
    }

    /// The file that says who runs.
    pub(super) fn running(&self) -> PathBuf {
        self.dir.join("cluster.json")
    }
}

/// The numbers of the processes with a role that have files, rising.
fn numbers(dir: &Path, role: Role) -> Result<Vec<u32>> {
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

impl Part {
    fn read(dir: &Path, name: String) -> Result<Self> {
        let config = dir.join(format!("{name}.toml"));
        let settings = Settings::of(Given::read(&config)?)?;
        let address = settings.listen.first().cloned();
        let address = address.ok_or_else(|| Failure::usage(format!("{} names no address", config.display())))?;
        let (log, http) = (dir.join(format!("{name}.log")), settings.http.map(|http| http.to_string()));
        let reached_at = if settings.advertise.is_empty() { &settings.listen } else { &settings.advertise };
        let reached_at = reached_at.iter().map(Address::to_string).collect();
        let Settings { role, memory, data, .. } = settings;
        Ok(Self { name, role, config, log, address, http, memory, reached_at, data })
    }

    /// A part whose file is made if there is none.
    fn provide(
        dir: &Path,
        name: String,
        role: Role,
        memory: bool,
        meta: Option<&Address>,
        free: &mut FreePorts,
    ) -> Result<Self> {
        let config = dir.join(format!("{name}.toml"));
        if !config.exists() {
            let memory = memory && role != Role::Peer;
            let settings = Settings {
                role,
                data: (role != Role::Peer && !memory).then(|| PathBuf::from(&name)),
                memory,
                memory_mib: MEMORY_MIB,
                listen: vec![free.take()?.parse()?],
                advertise: Vec::new(),
                http: crate::settings::http(&free.take()?)?,
                meta: meta.cloned().into_iter().collect(),
                etcd: None,
                doors: if dir.join(SECRET).exists() { Doors::with_secret(Path::new(SECRET)) } else { Doors::default() },
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
        let holder = self.data.as_deref().and_then(store::holder).and_then(Process::find);
        holder.is_some_and(|process| process.is_there())
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
    held: Vec<TcpListener>,
}

impl FreePorts {
    fn take(&mut self) -> Result<String> {
        let cannot = |error: io::Error| Failure::file("there is no free port", &error);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?.to_string();
        self.held.push(listener);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted { bricks: None, peers: None, memory: false };

    #[test]
    fn a_cluster_is_found_as_it_was_made_and_grows() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Layout::read(dir.path()).is_err());
        let made = Layout::prepare(dir.path(), WANTED).unwrap();
        let names = |layout: &Layout| layout.parts.iter().map(|part| part.name.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(&made), "meta brick-1 brick-2 peer-1");
        let found = Layout::read(dir.path()).unwrap();
        assert_eq!(format!("{found:?}"), format!("{made:?}"));
        let grown = Layout::prepare(dir.path(), Wanted { bricks: Some(3), peers: Some(2), ..WANTED }).unwrap();
        assert_eq!(names(&grown), "meta brick-1 brick-2 brick-3 peer-1 peer-2");
        assert_eq!(grown.parts[1].address, made.parts[1].address);
        assert!(Layout::prepare(dir.path(), Wanted { bricks: Some(2), ..WANTED }).is_err());
        assert!(Layout::prepare(dir.path(), Wanted { memory: true, ..WANTED }).is_err());
        assert_eq!(names(&Layout::prepare(dir.path(), WANTED).unwrap()), names(&grown));
    }

    #[test]
    fn a_file_that_is_gone_leaves_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        Layout::prepare(dir.path(), Wanted { bricks: Some(3), ..WANTED }).unwrap();
        fs::remove_file(dir.path().join("brick-2.toml")).unwrap();
        let names = |layout: Layout| layout.parts.iter().map(|part| part.name.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(Layout::read(dir.path()).unwrap()), "meta brick-1 brick-3 peer-1");
        assert_eq!(names(Layout::prepare(dir.path(), WANTED).unwrap()), "meta brick-1 brick-3 peer-1");
        let grown = Layout::prepare(dir.path(), Wanted { bricks: Some(3), ..WANTED }).unwrap();
        assert_eq!(names(grown), "meta brick-1 brick-3 brick-4 peer-1");
    }
}
