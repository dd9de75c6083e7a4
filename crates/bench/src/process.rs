//! Servers that a benchmark starts and stops, on loopback addresses and in their own directories.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::Result;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A running server. Dropping it stops the process.
pub(crate) struct Server {
    name: String,
    child: Child,
}

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// All resident pages, including those of mapped files.
    pub(crate) resident: u64,
    /// Resident pages without a backing file.
    pub(crate) anonymous: u64,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// A loopback address that is free now.
    pub(crate) fn free_tcp() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self::Tcp(listener.local_addr()?))
    }

    fn accepts_connections(&self) -> bool {
        match self {
            Self::Tcp(address) => TcpStream::connect(address).is_ok(),
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
        }
    }
}

impl Server {
    /// Starts `command` and waits until all of `addresses` accept connections. Its output goes to `log`.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path, addresses: &[Address]) -> Result<Self> {
        let output = fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        unsafe {
            // The server ends even if the benchmark is killed.
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().map_err(|error| format!("{name} does not start: {error}"))?;
        let mut server = Self { name: name.to_owned(), child };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !addresses.iter().all(Address::accepts_connections) {
            let text = || fs::read_to_string(log).unwrap_or_default();
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{name} ended with {status}:\n{}", text()).into());
            }
            if Instant::now() > deadline {
                return Err(format!("{name} does not answer at {addresses:?} after 20 s:\n{}", text()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Processor time of all threads so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The second field is a name in parentheses that may contain blanks; user and system time are fields 14 and 15.
        let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
        let ticks =
            fields.and_then(|fields| Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?));
        let ticks = ticks.ok_or_else(|| format!("cannot read the processor time of {}", self.name))?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Current memory of the process and of all its descendants, in KiB. Of a page that several processes share, each has its part.
    pub(crate) fn proportional_memory(&self) -> Result<u64> {
        let parents = parents()?;
        let is_ours = |process: u32| {
            let mut ancestors = std::iter::successors(Some(process), |process| parents.get(process).copied());
            ancestors.any(|ancestor| ancestor == self.child.id())
        };
        // A process may end meanwhile.
        let sizes = parents.keys().copied().filter(|process| is_ours(*process)).filter_map(|process| {
            let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.trim().split(' ').next()?.parse::<u64>().ok()
        });
        Ok(sizes.sum())
    }

    /// Current memory.
    pub(crate) fn memory(&self) -> Result<Memory> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').trim().split(' ').next()?.parse::<u64>().ok()
        };
        match (field("VmRSS"), field("RssAnon")) {
            (Some(resident), Some(anonymous)) => Ok(Memory { resident, anonymous }),
            _ => Err(format!("cannot read the memory of {}", self.name).into()),
        }
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the server to end, and kills it if it does not end within ten seconds.
    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            crate::progress::line(format_args!("{} was not stopped: {error}", self.name));
        }
    }
}

/// The parent of each process.
fn parents() -> Result<HashMap<u32, u32>> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        // The second field is a name in parentheses that may contain blanks; the parent is field 4.
        let parent = text.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent| (process, parent)));
    }
    Ok(parents)
}

/// Finds a program in the search path, and where Debian installs servers.
pub(crate) fn find_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/bin".into()])
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| format!("{name} is not installed; script/bench installs it when run as root").into())
}
