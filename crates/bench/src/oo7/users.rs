//! Users: clients that run an operation at the same time, each in a thread of its own.

use std::panic;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ConnectOptions};
use tokio::runtime::Runtime;

use super::design::Design;
use super::operation::Operation;
use super::space::Space;
use super::traversal::Counts;
use crate::Result;
use crate::mortar::server::runtime;

/// A client with an empty cache, and the module that it traverses.
pub(crate) struct User {
    // Before the runtime, which its tasks need.
    space: Space,
    runtime: Runtime,
    module: u32,
}

impl User {
    pub(crate) fn connect(url: &str, module: u32, with_snapshots: bool) -> Result<Self> {
        let runtime = runtime()?;
        let mut options = ConnectOptions::default();
        options.snapshots = with_snapshots;
        let client = runtime.block_on(Client::connect_with(url, options))?;
        Ok(Self { space: Space::new(client, with_snapshots), runtime, module })
    }

    /// The number of the module that this user traverses.
    pub(crate) fn module(&self) -> u32 {
        self.module
    }

    fn run(&self, operation: Operation, design: &Design) -> client::Result<Counts> {
        self.runtime.block_on(operation.run(&self.space, design, self.module))
    }
}

/// Runs an operation for all users. Returns the time until the last one has finished, and what each has counted.
pub(crate) fn run_all(
    users: &[User],
    operation: Operation,
    design: &Design,
) -> client::Result<(Duration, Vec<Counts>)> {
    let begun = Instant::now();
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = users.iter().map(|user| scope.spawn(move || user.run(operation, design))).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|why| panic::resume_unwind(why)));
        results.collect::<client::Result<Vec<Counts>>>()
    })?;
    Ok((begun.elapsed(), counts))
}
