//! Mortar as users run it: the released binary, `mortar dev`, in a process of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::Client;
use tempfile::TempDir;

use crate::Result;
use crate::process::{Address, Server};
use crate::run::Run;

/// Where the server stores its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Durable,
    Memory,
}

/// A running server, with a directory that ends with it.
pub(crate) struct MortarServer {
    pub(crate) server: Server,
    pub(crate) tcp: Address,
    pub(crate) unix: Address,
    // Last: the server has ended when its directory goes.
    pub(crate) directory: TempDir,
}

impl MortarServer {
    /// Starts a server with an empty store.
    pub(crate) fn start(run: &Run, engine: Engine) -> Result<Self> {
        Self::start_in(run.directory("mortar")?, engine)
    }

    /// Starts a server in the directory of an earlier one.
    pub(crate) fn start_in(directory: TempDir, engine: Engine) -> Result<Self> {
        Self::start_with(directory, engine, &[])
    }

    /// The same, with more options of `mortar dev`.
    pub(crate) fn start_with(directory: TempDir, engine: Engine, options: &[String]) -> Result<Self> {
        let data = Self::data(&directory)?;
        let socket = data.with_file_name("mortar.sock");
        let (tcp, unix) = (Address::free_tcp()?, Address::Unix(socket.clone()));
        let mut command = Command::new(binary()?);
        command.args(["dev", "--http", "none"]).args(options).arg("--socket").arg(socket);
        match engine {
            Engine::Durable => command.arg("--data").arg(&data),
            Engine::Memory => command.arg("--memory"),
        };
        if let Address::Tcp(address) = &tcp {
            command.args(["--listen", &address.to_string()]);
        }
        let addresses = [tcp, unix];
        let server = Server::start("mortar dev", &mut command, &directory.path().join("mortar.log"), &addresses)?;
        let [tcp, unix] = addresses;
        Ok(Self { server, tcp, unix, directory })
    }

    /// Kills the server, and returns its directory.
    pub(crate) fn kill(mut self) -> Result<TempDir> {
        self.server.kill()?;
        Ok(self.directory)
    }

    /// The data directory in the directory of a server.
    pub(crate) fn data(directory: &TempDir) -> Result<PathBuf> {
        Ok(std::path::absolute(directory.path())?.join("data"))
    }

    /// The URL of the Unix socket.
    pub(crate) fn url(&self) -> String {
        match &self.unix {
            Address::Unix(path) => format!("mortar+unix://{}/main", path.display()),
            Address::Tcp(address) => format!("mortar://{address}/main"),
        }
    }

    /// Runs the command line against this server.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command.arg("--server").arg(self.url());
        Ok(command)
    }

    /// This many clients on the Unix socket.
    pub(crate) async fn connect_many(&self, count: usize) -> Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }

    /// A client on the Unix socket.
    pub(crate) async fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.url()).await?)
    }
}

/// The files in a directory and below it.
pub(crate) fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Bytes that the files below a directory take on the disk.
pub(crate) fn bytes_on_disk(directory: &Path) -> Result<u64> {
    // A file may be removed meanwhile.
    let sizes = files_below(directory)?.into_iter().filter_map(|file| Some(file.metadata().ok()?.blocks() * 512));
    Ok(sizes.sum())
}

/// A runtime for clients with one thread, like the generator.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The `mortar` that was built with this benchmark.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("mortar");
    if !binary.is_file() {
        return Err(format!("{} is missing: script/bench builds it", binary.display()).into());
    }
    Ok(binary)
}
