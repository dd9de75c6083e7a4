//! Gets and puts of small values over a connection: Mortar, Redis and memcached as servers in their own processes.

use std::slice;
use std::time::Duration;

use tempfile::TempDir;

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::load::memcached::{self, Memcached};
use crate::load::mortar::{self, Commits, Mortar, ObjectReads};
use crate::load::redis::{self, Redis};
use crate::load::{Data, LoadPlan, LoadResult, Order, Protocol, Requests, drive};
use crate::mortar::create_all;
use crate::mortar::server::{Engine, MortarServer, runtime};
use crate::process::{Address, Server};
use crate::rival::servers;
use crate::run::{MetricSpec, Run};

const SIZE: usize = 1024;
const CONNECTIONS: usize = 50;
const PIPELINING: [usize; 2] = [1, 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Unix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Get,
    Put,
}

/// A server that is loaded with all keys.
struct LoadedServer<'a, P> {
    address: Address,
    server: Server,
    gets: (P, Requests<'a>),
    puts: (P, Requests<'a>),
    _directory: TempDir,
}

/// Measures all transports, operations and depths of pipelining.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let keys = run.choose(100_000, 50_000) / 16 * 16;
    let duration = run.choose(Duration::from_secs(3), Duration::from_millis(350));
    let data = Data::new(keys, SIZE);
    let mut speed = figure("kv", "gets and puts of 1 KB", keys, duration);
    let mut cost = figure("kv-cpu", "the server's processor time for gets and puts of 1 KB", keys, duration);
    for transport in [Transport::Tcp, Transport::Unix] {
        let cells = all_cells(transport);
        if !cells.iter().any(|(_, _, pair)| run.wants("kv", pair)) {
            continue;
        }
        let mortar = start_mortar(run, transport, &data)?;
        let redis = start_redis(run, transport, &data)?;
        let memcached = start_memcached(run, transport, &data)?;
        for (operation, pipelining, cells) in cells {
            if !run.wants("kv", &cells) {
                continue;
            }
            let plan = LoadPlan { connections: CONNECTIONS, pipelining, order: Order::Random(duration) };
            let mut sides = [
                Side::new("Mortar", || mortar.run(operation, plan)),
                Side::new("Redis", || redis.run(operation, plan)),
                Side::new("memcached", || memcached.run(operation, plan)),
            ];
            let outcome = interleave(&format!("kv, {}", cells[0].case), Run::REPEATS, &mut sides)?;
            let rows = run.rows("kv", &outcome, &cells);
            let (fast, cheap) = rows.into_iter().partition(|row| row.better == Better::Higher);
            speed.rows.extend::<Vec<_>>(fast);
            cost.rows.extend::<Vec<_>>(cheap);
        }
    }
    Ok(vec![speed, cost])
}

fn figure(id: &'static str, title: &'static str, keys: usize, duration: Duration) -> Figure {
    Figure {
        id,
        title,
        about: "One generator drives all three with the same loop: one thread, epoll, requests encoded in advance, random \
                keys; each connection sends a batch, waits for its replies, and sends the next. Every reply is checked \
                for its length and key, one in 64 as a whole. Nothing is pinned to a core; generator and server share the \
                machine."
            .into(),
        paper: "",
        parameters: vec![
            format!("{keys} keys, {CONNECTIONS} connections, {:.2} s a run after a tenth of warm-up", duration.as_secs_f64()),
            "Mortar: mortar dev in memory; gets from its peer server, puts are transactions. Redis: no persistence. memcached: -t 2 -m 1024, text protocol.".into(),
        ],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    }
}

/// The operation, the depth of pipelining, and the cells of throughput and processor time.
fn all_cells(transport: Transport) -> Vec<(Operation, usize, [MetricSpec; 2])> {
    let mut all = Vec::new();
    for operation in [Operation::Get, Operation::Put] {
        for pipelining in PIPELINING {
            let transport = if transport == Transport::Tcp { "tcp" } else { "unix" };
            let verb = if operation == Operation::Get { "get" } else { "put" };
            let case = format!("{transport} {verb} 1 KB, pipelining {pipelining}");
            let point = format!("{verb}, pipelining {pipelining}");
            let cell = |panel: &str, unit, better, bar| MetricSpec {
                case: case.clone(),
                panel: format!("{transport}, {panel}"),
                point: point.clone(),
                unit,
                better,
                target_ratio: bar,
            };
            let speed = cell("operations/s", "operations/s", Better::Higher, Some(1.0));
            let cost = cell("µs of server processor time an operation", "µs/operation", Better::Lower, None);
            all.push((operation, pipelining, [speed, cost]));
        }
    }
    all
}

impl<P: Protocol> LoadedServer<'_, P> {
    /// Operations per second, and microseconds of the server's processor time per operation.
    fn run(&self, operation: Operation, plan: LoadPlan) -> Result<Vec<f64>> {
        let (protocol, requests) = match operation {
            Operation::Get => &self.gets,
            Operation::Put => &self.puts,
        };
        let before = self.server.cpu()?;
        let counted: LoadResult = drive(protocol, slice::from_ref(&self.address), requests, plan)?;
        let cpu = self.server.cpu()?.saturating_sub(before);
        Ok(vec![counted.rate(), cpu.as_secs_f64() * 1e6 / counted.operations_with_warm_up as f64])
    }

    /// Puts every key once.
    fn load(self) -> Result<Self> {
        let (protocol, requests) = &self.puts;
        let plan = LoadPlan { connections: 8, pipelining: 16, order: Order::Once };
        drive(protocol, slice::from_ref(&self.address), requests, plan)?;
        Ok(self)
    }
}

fn start_mortar<'a>(run: &Run, transport: Transport, data: &'a Data) -> Result<LoadedServer<'a, Mortar>> {
    let served = MortarServer::start(run, Engine::Memory)?;
    let oids = runtime()?.block_on(async { create_all(&served.connect().await?, data).await })?;
    Ok(LoadedServer {
        address: if transport == Transport::Tcp { served.tcp } else { served.unix },
        gets: (Mortar::Reads(ObjectReads(data.size())), mortar::read_requests(data, &oids, true)),
        puts: (Mortar::Commits(Commits::replacing(oids)), Requests::gets(data, |_, _| {})),
        server: served.server,
        _directory: served.directory,
    })
}

fn start_redis<'a>(run: &Run, transport: Transport, data: &'a Data) -> Result<LoadedServer<'a, Redis>> {
    let directory = run.directory("redis")?;
    let (server, tcp, unix) = servers::redis(directory.path())?;
    LoadedServer {
        address: if transport == Transport::Tcp { tcp } else { unix },
        server,
        gets: (Redis::gets(data.size()), redis::gets(data)),
        puts: (Redis::puts(), redis::puts(data)),
        _directory: directory,
    }
    .load()
}

fn start_memcached<'a>(run: &Run, transport: Transport, data: &'a Data) -> Result<LoadedServer<'a, Memcached>> {
    let directory = run.directory("memcached")?;
    let address = match transport {
        Transport::Tcp => Address::free_tcp()?,
        Transport::Unix => Address::Unix(directory.path().join("memcached.sock")),
    };
    let server = servers::memcached(directory.path(), &address)?;
    LoadedServer {
        address,
        server,
        gets: (Memcached::gets(data.size()), memcached::gets(data)),
        puts: (Memcached::puts(), memcached::puts(data)),
        _directory: directory,
    }
    .load()
}
