//! The files of a cluster on one machine.
//!
//! ```text
//!   DIR/cluster.json             the running processes: written by `up`, removed when all have ended
//!   DIR/cluster.secret           authenticates the processes to each other
//!   DIR/meta.toml  brick-1.toml  peer-1.toml …     settings: written once; a process chooses its ports at its first start
//!   DIR/meta/      brick-1/                        data
//!   DIR/meta.log   brick-1.log   peer-1.log …
//! ```

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use client::{Credentials, Url};
use node::auth::Secret;
use store::DirectoryContents;
use wire::transport::Address;

use super::process::Process;
use crate::failure::{Failure, Result};
use crate::settings::{AuthSettings, MEMORY_MIB, MemorySizes, PartialSettings, ProcessRole, ScrubRate, Settings};

/// The file with the secret of the processes.
const SECRET_FILE: &str = "cluster.secret";
/// The file with the running processes.
const RUNNING_FILE: &str = "cluster.json";
/// The file in a data directory that its process has open.
const LOCK_FILE: &str = "LOCK";
/// The address of a process that has not chosen its ports yet.
const FREE_PORT: &str = "127.0.0.1:0";

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
    /// The addresses by which others reach it.
    pub(super) advertised: Vec<String>,
    /// Its data directory.
    data: Option<PathBuf>,
}

/// A process whose settings file cannot be used.
#[derive(Clone, Debug)]
pub(super) struct InvalidFile {
    pub(super) name: String,
    pub(super) role: ProcessRole,
    pub(super) config: PathBuf,
    pub(super) log: PathBuf,
    pub(super) failure: Failure,
}

/// A cluster's directory.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
    /// The meta-server, then bricks, then peer servers.
    pub(super) processes: Vec<ProcessFiles>,
    /// Processes with damaged files.
    pub(super) invalid: Vec<InvalidFile>,
}

/// The requested number of processes of each role.
#[derive(Clone, Copy)]
pub(super) struct ClusterSize {
    pub(super) bricks: Option<u16>,
    pub(super) peers: Option<u16>,
    pub(super) memory: bool,
}

impl Layout {
    /// The cluster in a directory. A damaged file of a process does not hide the others.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir).map_err(|e| Failure::file("cannot determine the current directory", &e))?;
        let meta = dir.join("meta.toml");
        if !meta.exists() && matches!(DirectoryContents::of(&dir), Ok(DirectoryContents::Store)) {
            let what = format!(
                "{} is the directory of one process, such as `mortar dev`, and of no cluster of processes",
                dir.display()
            );
            return Err(Failure::not_found(what)
                .hint("`mortar status` shows the health of `mortar dev` with all of its bricks."));
        }
        if !meta.exists() {
            return Err(Failure::not_found(format!("there is no cluster in {}", dir.display()))
                .hint("`mortar cluster up --data DIR` makes one."));
        }
        let mut names = vec![(ProcessRole::Meta, "meta".to_owned())];
        for role in [ProcessRole::Brick, ProcessRole::Peer] {
            names.extend(numbers(&dir, role)?.into_iter().map(|number| (role, format!("{}-{number}", role.name()))));
        }
        let mut layout = Self { dir, processes: Vec::new(), invalid: Vec::new() };
        for (role, name) in names {
            match ProcessFiles::read(&layout.dir, name.clone()) {
                Ok(process) => layout.processes.push(process),
                Err(failure) => {
                    let file = |extension: &str| layout.dir.join(format!("{name}.{extension}"));
                    let (config, log) = (file("toml"), file("log"));
                    layout.invalid.push(InvalidFile { name, role, config, log, failure });
                }
            }
        }
        Ok(layout)
    }

    /// The cluster with the requested processes. Writes missing files.
    pub(super) fn prepare(dir: &Path, wanted: ClusterSize) -> Result<Self> {
        if !dir.exists() {
            store::prepare_directory(dir, false).map_err(Failure::local)?;
        }
        let known = if dir.join("meta.toml").exists() { Some(Self::read(dir)?) } else { None };
        match &known {
            Some(known) => known.invalid.iter().try_for_each(|invalid| Err(invalid.failure.clone()))?,
            None => refuse_foreign_directory(dir, "a cluster", |name| {
                [SECRET_FILE, RUNNING_FILE].contains(&name) || name.ends_with(".toml.part")
            })?,
        }
        store::prepare_directory(dir, false).map_err(Failure::local)?;
        let dir = std::path::absolute(dir).map_err(|e| Failure::file("cannot determine the current directory", &e))?;
        let count = |role| {
            let parts = known.iter().flat_map(|layout| &layout.processes);
            parts.filter(|part| part.role == role).count() as u16
        };
        let (bricks, peers) = (count(ProcessRole::Brick), count(ProcessRole::Peer));
        if let Some(few) = wanted.bricks.filter(|wanted| *wanted < bricks) {
            let message =
                format!("the cluster in {} has {bricks} bricks; it cannot be started with {few}", dir.display());
            return Err(Failure::usage(message)
                .hint("The objects of the other bricks would be missing. Choose another directory."));
        }
        if known
            .iter()
            .flat_map(|layout| &layout.processes)
            .any(|part| part.role != ProcessRole::Peer && part.memory != wanted.memory)
        {
            let is = if wanted.memory { "on disk" } else { "in memory" };
            let message = format!("the cluster in {} keeps its data {is}", dir.display());
            return Err(Failure::usage(message)
                .hint("Start it with the same --memory setting as before, or choose another directory."));
        }
        let bricks = wanted.bricks.unwrap_or(if bricks == 0 { 2 } else { bricks });
        let peers = wanted.peers.unwrap_or(if peers == 0 { 1 } else { peers });
        // An existing cluster without a secret stays without one.
        if known.is_none() && !dir.join(SECRET_FILE).exists() {
            Secret::create(&dir.join(SECRET_FILE))?;
        }
        let meta = ProcessFiles::read_or_create(&dir, "meta".to_owned(), ProcessRole::Meta, wanted.memory, None)?;
        let mut parts = vec![meta.clone()];
        for (role, count) in [(ProcessRole::Brick, bricks), (ProcessRole::Peer, peers)] {
            // The existing numbers, and new ones after them. The number of a removed file is not reused.
            let mut there = numbers(&dir, role)?;
            let last = there.last().copied().unwrap_or(0);
            let more = usize::from(count).saturating_sub(there.len());
            there.extend((last..).skip(1).take(more));
            for number in there.into_iter().take(count.into()) {
                let name = format!("{}-{number}", role.name());
                let meta = Some(&meta.address);
                parts.push(ProcessFiles::read_or_create(&dir, name, role, wanted.memory, meta)?);
            }
        }
        Ok(Self { dir, processes: parts, invalid: Vec::new() })
    }

    /// The processes with a role.
    pub(super) fn with_role(&self, role: ProcessRole) -> impl Iterator<Item = &ProcessFiles> {
        self.processes.iter().filter(move |part| part.role == role)
    }

    /// The URL for clients.
    pub(super) fn url(&self) -> String {
        let hosts: Vec<String> = self.with_role(ProcessRole::Peer).map(|peer| peer.address.to_string()).collect();
        format!("mortar://{}/main", hosts.join(","))
    }

    /// The credentials of tools in this directory.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        let secret = Secret::load(&self.dir.join(SECRET_FILE)).ok()?;
        Some(Credentials { user: String::new(), password: secret.primary() })
    }

    /// The file with the running processes.
    pub(super) fn running_file(&self) -> PathBuf {
        self.dir.join(RUNNING_FILE)
    }
}

/// Refuses a directory that contains files other than those that `is_own` accepts.
fn refuse_foreign_directory(dir: &Path, what: &str, is_own: impl Fn(&str) -> bool) -> Result {
    let cannot = |error| Failure::file(format!("cannot read {}", dir.display()), &error);
    for entry in fs::read_dir(dir).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        if !name.to_str().is_some_and(&is_own) {
            let message = format!("{} contains other files than {what}: {}", dir.display(), name.display());
            return Err(Failure::conflict(message).hint("Choose an empty or a new directory with --data DIR."));
        }
    }
    Ok(())
}

/// The numbers of the processes with a role that have files, ascending.
fn numbers(dir: &Path, role: ProcessRole) -> Result<Vec<u32>> {
    let cannot = |error| Failure::file(format!("cannot read {}", dir.display()), &error);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        let number = name.to_str().and_then(|name| {
            let digits = name.strip_prefix(role.name())?.strip_prefix('-')?.strip_suffix(".toml")?;
            // Only the form that this program writes: not 01.
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

    /// A process. Its file is written if it does not exist.
    fn read_or_create(
        dir: &Path,
        name: String,
        role: ProcessRole,
        memory: bool,
        meta: Option<&Address>,
    ) -> Result<Self> {
        let config = dir.join(format!("{name}.toml"));
        if !config.exists() {
            let memory = memory && role != ProcessRole::Peer;
            let settings = Settings {
                role,
                data: (role != ProcessRole::Peer && !memory).then(|| PathBuf::from(&name)),
                memory,
                memory_mib: MEMORY_MIB,
                sizes: MemorySizes::default(),
                upload_lease_s: None,
                scrub: ScrubRate::default(),
                listen: vec![FREE_PORT.parse()?],
                advertise: Vec::new(),
                http: crate::settings::parse_http_address(FREE_PORT)?,
                meta: meta.cloned().into_iter().collect(),
                upstream: Vec::new(),
                group: None,
                etcd: None,
                auth: if dir.join(SECRET_FILE).exists() {
                    AuthSettings::with_secret_file(Path::new(SECRET_FILE))
                } else {
                    AuthSettings::default()
                },
                insecure: false,
                allow_loose_permissions: false,
                io_threads: None,
                connections: Default::default(),
                log: None,
                log_format: Default::default(),
            };
            write_whole(&config, &settings.to_toml())?;
        }
        Self::read(dir, name)
    }

    /// Writes the address of the meta-server into the file of a process.
    pub(super) fn set_meta(&self, meta: &Address) -> Result {
        let lines = |address: &Address| format!("meta = [\"{}\"]", crate::settings::meta_url(address));
        self.replace_lines(&[(lines(&FREE_PORT.parse()?), lines(meta))])
    }

    /// Writes the addresses that a process has chosen at its first start into its file, so that they are kept.
    pub(super) fn set_addresses(&mut self, addresses: &[String], http: Option<&str>) -> Result {
        let Some(address) = addresses.first() else { return Ok(()) };
        let listen = |address: &str| format!("listen = [\"{address}\"]");
        let http_line = |address: &str| format!("http = \"{address}\"");
        let mut changes = vec![(listen(FREE_PORT), listen(address))];
        changes.extend(http.map(|http| (http_line(FREE_PORT), http_line(http))));
        self.replace_lines(&changes)?;
        if let Some(dir) = self.config.parent() {
            *self = Self::read(dir, self.name.clone())?;
        }
        Ok(())
    }

    /// Replaces lines of the settings file.
    fn replace_lines(&self, changes: &[(String, String)]) -> Result {
        let cannot = |error| Failure::file(format!("cannot read {}", self.config.display()), &error);
        let text = fs::read_to_string(&self.config).map_err(cannot)?;
        let replace = |line| changes.iter().find(|(old, _)| old == line).map_or(line, |(_, new)| new.as_str());
        let mut changed: String = text.lines().map(replace).collect::<Vec<_>>().join("\n");
        changed.push('\n');
        if changed == text { Ok(()) } else { write_whole(&self.config, &changed) }
    }

    /// Whether it has data from an earlier start.
    pub(super) fn has_run(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.exists())
    }

    /// The number of the process that has its data open, or had it open last.
    pub(super) fn lock_owner(&self) -> Option<u32> {
        self.data.as_deref().and_then(store::lock_owner)
    }

    /// Whether this is its process, and not one of another directory that listens at the same address, such as one of which this is a copy: it has
    /// the data here open, or, if it has none, was started with the settings here. The number in the lock proves nothing: it may be copied, too.
    pub(super) fn is_of(&self, process: &Process) -> bool {
        match &self.data {
            Some(data) => process.has_open(&data.join(LOCK_FILE)),
            None => process.is_configured_by(&self.config),
        }
    }

    /// Whether a process with other settings runs on its data.
    pub(super) fn runs_elsewhere(&self) -> bool {
        let holder = self.lock_owner().and_then(Process::find);
        holder.is_some_and(|process| process.is_running())
    }

    /// The URL for status requests.
    pub(super) fn url(&self) -> String {
        url_of(self.address.clone())
    }
}

/// The URL of a process of the cluster.
pub(super) fn url_of(address: Address) -> String {
    Url { user: None, address, space: "main".to_owned() }.to_string()
}

/// Writes a file atomically, because later starts read it.
fn write_whole(path: &Path, text: &str) -> Result {
    let part = path.with_extension("toml.part");
    let written = write_private(&part, text).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| Failure::file(format!("cannot write {}", path.display()), &error))
}

/// Writes a file that only its owner can read.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DEFAULT_SIZE: ClusterSize = ClusterSize { bricks: None, peers: None, memory: false };

    #[test]
    fn layout_is_read_as_written_and_grows() {
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
    fn chosen_ports_are_written_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut made = Layout::prepare(dir.path(), DEFAULT_SIZE).unwrap();
        made.processes[0].set_addresses(&["127.0.0.1:4001".to_owned()], Some("127.0.0.1:4002")).unwrap();
        let meta = made.processes[0].address.clone();
        made.processes[1].set_meta(&meta).unwrap();
        let found = Layout::read(dir.path()).unwrap();
        assert_eq!(found.processes[0].address.to_string(), "127.0.0.1:4001");
        assert_eq!(found.processes[0].http.as_deref(), Some("127.0.0.1:4002"));
        let brick = fs::read_to_string(&found.processes[1].config).unwrap();
        assert!(brick.contains("meta = [\"mortar://127.0.0.1:4001\"]"), "{brick}");
        made.processes[0].set_addresses(&["127.0.0.1:5".to_owned()], None).unwrap();
        assert_eq!(made.processes[0].address.to_string(), "127.0.0.1:4001");
    }

    #[test]
    fn damaged_file_hides_no_other_process() {
        let dir = tempfile::tempdir().unwrap();
        Layout::prepare(dir.path(), DEFAULT_SIZE).unwrap();
        fs::write(dir.path().join("brick-2.toml"), "listen = [").unwrap();
        let found = Layout::read(dir.path()).unwrap();
        let names: Vec<&str> = found.processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(names, ["meta", "brick-1", "peer-1"]);
        assert_eq!(found.invalid[0].name, "brick-2");
        let refused = Layout::prepare(dir.path(), DEFAULT_SIZE).unwrap_err();
        assert!(refused.to_string().contains("brick-2.toml"), "{refused}");
    }

    #[test]
    fn directory_with_other_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "").unwrap();
        let refused = Layout::prepare(dir.path(), DEFAULT_SIZE).unwrap_err();
        assert_eq!(refused.exit(), crate::failure::Exit::Conflict);
        assert!(refused.to_string().contains("thesis.txt"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn written_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = dir.path().join("cluster");
        Layout::prepare(&cluster, DEFAULT_SIZE).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&cluster), 0o700);
        for file in fs::read_dir(&cluster).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
        fs::set_permissions(&cluster, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Layout::prepare(&cluster, DEFAULT_SIZE).is_err());
    }

    #[test]
    fn removed_file_leaves_a_gap() {
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
