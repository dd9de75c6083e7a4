//! The stores that the Java program uses, each started for one run.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Result;
use crate::mortar::server::{Engine, MortarServer, bytes_on_disk};
use crate::process::{Address, Server};
use crate::rival::servers;
use crate::run::Run;

/// A side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StoreKind {
    /// `mortar dev` on a directory, over TCP.
    Mortar,
    /// Mortar within the Java process, on a directory.
    EmbeddedMortar,
    /// Mortar within the Java process, in memory.
    MemoryMortar,
    DataNucleus,
    Hibernate,
    H2,
    EclipseStore,
    /// No store: a class that is not enhanced.
    Plain,
}

/// A store that runs, or the directory of one that the Java process will open.
pub(super) enum RunningStore {
    Mortar(MortarServer),
    Postgres(Server, Address, TempDir),
    Directory(TempDir),
}

impl StoreKind {
    /// The name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mortar => "Mortar",
            Self::EmbeddedMortar => "Mortar, embedded",
            Self::MemoryMortar => "Mortar, in memory",
            Self::DataNucleus => "DataNucleus on PostgreSQL",
            Self::Hibernate => "Hibernate on PostgreSQL",
            Self::H2 => "Hibernate on H2",
            Self::EclipseStore => "EclipseStore",
            Self::Plain => "plain Java",
        }
    }

    /// The value of `--side` of the Java program.
    pub(super) fn side(self) -> &'static str {
        match self {
            Self::Mortar | Self::EmbeddedMortar | Self::MemoryMortar => "mortar",
            Self::DataNucleus => "datanucleus",
            Self::Hibernate => "hibernate",
            Self::H2 => "h2",
            Self::EclipseStore => "eclipsestore",
            Self::Plain => "plain",
        }
    }

    /// Whether PostgreSQL must be installed.
    pub(super) fn needs_postgres(self) -> bool {
        matches!(self, Self::DataNucleus | Self::Hibernate)
    }

    /// The class path, below the directory of the Java program. Directories with enhanced classes precede those without.
    pub(super) fn class_path(self) -> &'static [&'static str] {
        match self {
            Self::Mortar | Self::EmbeddedMortar | Self::MemoryMortar => {
                &["enhanced", "classes", "sides/mortar/*", "sides/datanucleus/*"]
            }
            Self::DataNucleus => &["enhanced", "classes", "sides/datanucleus/*", "sides/rdbms/*", "sides/jdbc/*"],
            Self::Hibernate | Self::H2 => &["classes", "sides/hibernate/*", "sides/jdbc/*"],
            Self::EclipseStore | Self::Plain => &["classes", "sides/eclipsestore/*"],
        }
    }

    /// The options of the Java virtual machine.
    pub(super) fn virtual_machine(self) -> &'static [&'static str] {
        match self {
            // All its objects are on the heap. Its documentation asks for the export.
            Self::EclipseStore => &["-Xmx12g", "--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"],
            _ => &["-Xmx4g"],
        }
    }

    /// Starts the store, empty.
    pub(super) fn start(self, run: &Run) -> Result<RunningStore> {
        Ok(match self {
            Self::Mortar => RunningStore::Mortar(MortarServer::start(run, Engine::Durable)?),
            Self::DataNucleus | Self::Hibernate => {
                let directory = run.directory("postgres")?;
                let (server, address) = servers::postgres(directory.path())?;
                RunningStore::Postgres(server, address, directory)
            }
            _ => RunningStore::Directory(run.directory(self.side())?),
        })
    }

    /// The value of `--url` of the Java program.
    pub(super) fn url(self, running: &RunningStore) -> Result<String> {
        let directory = |directory: &TempDir| std::path::absolute(directory.path().join("data"));
        Ok(match running {
            RunningStore::Mortar(served) => format!("mortar://{}/main", text(&served.tcp)),
            RunningStore::Postgres(_, address, _) => format!("jdbc:postgresql://{}/postgres", text(address)),
            RunningStore::Directory(at) => match self {
                Self::EmbeddedMortar => format!("mortar:embedded:{}", directory(at)?.display()),
                Self::MemoryMortar => "mortar:memory:bench".to_owned(),
                // With the default it writes up to half a second after the commit.
                Self::H2 => format!("jdbc:h2:file:{};WRITE_DELAY=0", directory(at)?.join("h2").display()),
                _ => directory(at)?.display().to_string(),
            },
        })
    }
}

fn text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => path.display().to_string(),
    }
}

impl RunningStore {
    /// The server, if there is one.
    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Mortar(served) => Some(&served.server),
            Self::Postgres(server, ..) => Some(server),
            Self::Directory(_) => None,
        }
    }

    /// The directory of the run, where logs go.
    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Mortar(served) => served.directory.path(),
            Self::Postgres(_, _, directory) | Self::Directory(directory) => directory.path(),
        }
    }

    /// Bytes of its files on the disk, of PostgreSQL without its log, whose length depends on the settings.
    pub(super) fn bytes_on_disk(&self) -> Result<u64> {
        let (data, log): (PathBuf, Option<PathBuf>) = match self {
            Self::Mortar(served) => (MortarServer::data(&served.directory)?, None),
            Self::Postgres(_, _, directory) => {
                let data = directory.path().join("postgres");
                (data.clone(), Some(data.join("pg_wal")))
            }
            Self::Directory(directory) => (directory.path().join("data"), None),
        };
        if !data.exists() {
            return Ok(0);
        }
        let log = log.map_or(Ok(0), |log| bytes_on_disk(&log))?;
        Ok(bytes_on_disk(&data)?.saturating_sub(log))
    }
}
