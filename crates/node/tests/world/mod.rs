//! A brick on this machine, for tests.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use client::{Client, Committed, Outcome};
use node::{Brick, Config};
use store::{Options, Store};
use tempfile::TempDir;
use wire::transport::Address;

/// A brick that listens on TCP and on a Unix socket, and serves HTTP.
pub(crate) struct World {
    pub(crate) brick: Brick,
    pub(crate) dir: TempDir,
}

impl World {
    /// A brick in memory.
    pub(crate) async fn in_memory() -> Self {
        Self::with(|_| Store::in_memory(Options::default()).unwrap(), |_| ()).await
    }

    /// A brick on this machine's disk.
    pub(crate) async fn durable() -> Self {
        Self::with(|dir| Store::open(&dir.join("store"), Options::default()).unwrap(), |_| ()).await
    }

    /// A brick with this store and an adjusted configuration.
    pub(crate) async fn with(store: impl FnOnce(&Path) -> Store, adjust: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: vec![Address::Tcp("127.0.0.1:0".to_owned()), Address::Unix(dir.path().join("socket"))],
            http: Some("127.0.0.1:0".parse().unwrap()),
            ..Config::default()
        };
        adjust(&mut config);
        let brick = Brick::start(store(dir.path()), config).await.unwrap();
        Self { brick, dir }
    }

    pub(crate) fn tcp(&self) -> String {
        format!("mortar://{}/main", self.brick.addresses()[0])
    }

    pub(crate) fn unix(&self) -> String {
        format!("mortar+unix://{}/main", self.dir.path().join("socket").display())
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.unix()).await.unwrap()
    }
}

/// Runs a test, which fails if it hangs.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs") });
}

/// The commit of a transaction; panics on any other outcome.
pub(crate) fn expect_committed(outcome: Outcome) -> Committed {
    match outcome {
        Outcome::Committed(committed) => committed,
        Outcome::Conflict(conflict) => panic!("{conflict:?}"),
    }
}

/// Bytes of a pseudo-random pattern.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
