//! Mortar as users run it: the released binary, `mortar dev`, in a process of its own.

use std::path::PathBuf;
use std::process::Command;

use client::cluster::Cluster;
use tempfile::TempDir;

use crate::Result;
use crate::process::{Address, Server};
use crate::run::Run;

/// A running server, with a directory that ends with it.
pub(crate) struct MortarServer {
    pub(crate) server: Server,
    unix: Address,
    // Last: the server has ended when its directory goes.
    _directory: TempDir,
}

impl MortarServer {
    /// Starts a server with an empty store.
    pub(crate) fn start(run: &Run) -> Result<Self> {
        let directory = run.directory("mortar")?;
        let data = std::path::absolute(directory.path())?.join("data");
        let socket = data.with_file_name("mortar.sock");
        let (tcp, unix) = (Address::free_tcp()?, Address::Unix(socket.clone()));
        let mut command = Command::new(binary()?);
        command.args(["dev", "--http", "none", "--data"]).arg(&data).arg("--socket").arg(socket);
        if let Address::Tcp(address) = &tcp {
            command.args(["--listen", &address.to_string()]);
        }
        let addresses = [tcp, unix];
        let server = Server::start("mortar dev", &mut command, &directory.path().join("mortar.log"), &addresses)?;
        let [_, unix] = addresses;
        Ok(Self { server, unix, _directory: directory })
    }

    /// The URL of the Unix socket.
    fn url(&self) -> String {
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

    /// A client on the Unix socket.
    pub(crate) async fn connect(&self) -> Result<Cluster> {
        Ok(Cluster::connect(&self.url()).await?)
    }
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
