//! The former store of one process, whose requests some workloads measure: `script/bench` runs itself as its server.

use std::path::{Path, PathBuf};
use std::process::Command;

use client::Client;
use node::{Brick, Config};
use store::{Options, Store};
use tempfile::TempDir;
use wire::transport::Address as Listen;

use super::server::runtime;
use crate::Result;
use crate::process::{Address, Server};
use crate::run::Run;

/// The argument with which the benchmark is such a server.
pub(crate) const SERVE: &str = "serve-former-store";

/// Where the server stores its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Durable,
    Memory,
}

/// A running server, with a directory that ends with it.
pub(crate) struct FormerServer {
    pub(crate) server: Server,
    pub(crate) tcp: Address,
    pub(crate) unix: Address,
    // Last: the server has ended when its directory goes.
    pub(crate) directory: TempDir,
}

impl FormerServer {
    /// Starts a server with an empty store.
    pub(crate) fn start(run: &Run, engine: Engine) -> Result<Self> {
        Self::start_in(run.directory("mortar")?, engine)
    }

    /// Starts a server in the directory of an earlier one.
    pub(crate) fn start_in(directory: TempDir, engine: Engine) -> Result<Self> {
        let data = Self::data(&directory)?;
        let socket = data.with_file_name("mortar.sock");
        let (tcp, unix) = (Address::free_tcp()?, Address::Unix(socket.clone()));
        let Address::Tcp(listen) = &tcp else { return Err("the server has no TCP address".into()) };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SERVE).arg(if engine == Engine::Memory { "memory".as_ref() } else { data.as_os_str() });
        command.arg(socket).arg(listen.to_string());
        let addresses = [tcp, unix];
        let server = Server::start("the former store", &mut command, &directory.path().join("mortar.log"), &addresses)?;
        let [tcp, unix] = addresses;
        Ok(Self { server, tcp, unix, directory })
    }

    /// Kills the server, and returns its directory.
    pub(crate) fn kill(mut self) -> Result<TempDir> {
        self.server.kill()?;
        Ok(self.directory)
    }

    /// The path of the store in the directory of a server.
    pub(crate) fn data(directory: &TempDir) -> Result<PathBuf> {
        Ok(std::path::absolute(directory.path())?.join("data"))
    }

    /// A client on the Unix socket.
    pub(crate) async fn connect(&self) -> Result<Client> {
        match &self.unix {
            Address::Unix(path) => Ok(Client::connect(&format!("mortar+unix://{}/main", path.display())).await?),
            Address::Tcp(address) => Ok(Client::connect(&format!("mortar://{address}/main")).await?),
        }
    }
}

/// Serves a store until the process is killed: `SERVE DATA|memory SOCKET HOST:PORT`.
pub(crate) fn serve(arguments: &[String]) -> Result<()> {
    let [data, socket, tcp] = arguments else { return Err("wrong arguments of the former store".into()) };
    let store = match data.as_str() {
        "memory" => Store::in_memory(Options::default())?,
        data => Store::open(Path::new(data), Options::default())?,
    };
    let config = Config { listen: vec![Listen::Unix(socket.into()), tcp.parse()?], ..Config::default() };
    runtime()?.block_on(async {
        let _server = Brick::start(store, config).await?;
        std::future::pending().await
    })
}
