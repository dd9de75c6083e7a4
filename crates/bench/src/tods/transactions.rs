//! TODS figures 14 and 15: transactions of four new objects at one brick, and over two.

use std::cell::Cell as Count;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, IsolationLevel, PlacementHint};
use hdrhistogram::Histogram;
use model::{ClassId, NodeId, Object};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use super::cluster::{RunningCluster, Storage, commit};
use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::hammer::hammer;
use crate::load::mortar::Commits;
use crate::load::postgres::{self, Postgres, TABLE};
use crate::load::{Data, LoadPlan, Order, Requests, drive};
use crate::mortar::server::runtime;
use crate::rival::group_commit::{FileAllocation, GroupCommit};
use crate::rival::servers;
use crate::run::{MetricSpec, Run};

const CLIENTS: usize = 64;
const OBJECTS: usize = 4;
const SIZE: usize = 512;

fn duration(run: &Run) -> Duration {
    run.choose(Duration::from_secs(4), Duration::from_millis(800))
}

/// The values of the transactions' objects.
fn values() -> Data {
    Data::new(1024, OBJECTS * SIZE)
}

/// Transactions per second of the generator's connections: the minimal cost of a client.
fn measure_bare_clients(
    run: &Run,
    bricks: usize,
    keeps: Storage,
    nodes: impl Fn(Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>>,
) -> Result<Vec<f64>> {
    let cluster = RunningCluster::start(run, bricks, 1, keeps)?;
    let commits = Commits::new(OBJECTS, nodes(cluster.nodes()?));
    let data = values();
    let requests = Requests::gets(&data, |_, _| {});
    let plan = LoadPlan { connections: CLIENTS, pipelining: 1, order: Order::Random(duration(run)) };
    let before = cluster.cpu()?;
    let counted = drive(&commits, &cluster.peers(), &requests, plan)?;
    let cpu = cluster.cpu()?.saturating_sub(before);
    Ok(vec![counted.rate(), cpu.as_secs_f64() * 1e6 / counted.operations_with_warm_up as f64])
}

/// One logical node for each connection.
fn one_node(nodes: Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>> {
    nodes.into_iter().flatten().map(|node| vec![node]).collect()
}

/// No hints: clients place objects as they do for a user.
fn by_default(_: Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>> {
    vec![Vec::new()]
}

/// One logical node of each of two bricks for each connection.
fn two_bricks(nodes: Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>> {
    let [first, second] = nodes.as_slice() else { return Vec::new() };
    first.iter().zip(second).map(|(first, second)| vec![*first, *second]).collect()
}

/// Transactions per second of the same number of clients of the client library, all on one thread.
fn measure_library(
    run: &Run,
    clients: usize,
    bricks: usize,
    spread: fn(Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>>,
) -> Result<LibraryResult> {
    let cluster = RunningCluster::start(run, bricks, 1, Storage::OnDisk)?;
    let nodes = spread(cluster.nodes()?);
    let duration = duration(run);
    runtime()?.block_on(async {
        let counts = Rc::new(Counts::default());
        let (local, mut tasks) = (LocalSet::new(), JoinSet::new());
        for client in 0..clients {
            let (cluster, counts) = (cluster.connect().await?, Rc::clone(&counts));
            let nodes = nodes[client % nodes.len()].clone();
            tasks.spawn_local_on(commit_for_ever(cluster, nodes, counts), &local);
        }
        let measured = local.run_until(async {
            sleep(duration / 10).await;
            let (begun, before) = (Instant::now(), counts.commits.get());
            counts.latencies.borrow_mut().reset();
            sleep(duration).await;
            let rate = (counts.commits.get() - before) as f64 / begun.elapsed().as_secs_f64();
            let p50_us = counts.latencies.borrow().value_at_quantile(0.5) as f64 / 1e3;
            Ok(LibraryResult { rate, p50_us })
        });
        tokio::select! {
            measured = measured => measured,
            ended = tasks.join_next() => match ended {
                Some(Ok(Err(error))) => Err(error),
                _ => Err("a client ended early".into()),
            },
        }
    })
}

/// Results of the clients of the library.
struct LibraryResult {
    rate: f64,
    p50_us: f64,
}

struct Counts {
    commits: Count<u64>,
    latencies: std::cell::RefCell<Histogram<u64>>,
}

impl Default for Counts {
    fn default() -> Self {
        let latencies =
            Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap_or_else(|_| unreachable!("bounds are right"));
        Self { commits: Count::new(0), latencies: latencies.into() }
    }
}

async fn commit_for_ever(cluster: Client, nodes: Vec<NodeId>, counts: Rc<Counts>) -> Result<()> {
    let content = Bytes::from(vec![7; SIZE]);
    loop {
        let begun = Instant::now();
        let transaction = cluster.begin(IsolationLevel::Optimistic);
        for index in 0..OBJECTS {
            let node = nodes.iter().cycle().nth(index);
            let hint = node.map_or(PlacementHint::Anywhere, |node| PlacementHint::At(*node));
            transaction.create_object(ClassId::NONE, Object::blob(content.clone()), hint)?;
        }
        commit(&transaction).await?;
        counts.commits.set(counts.commits.get() + 1);
        counts.latencies.borrow_mut().saturating_record(begun.elapsed().as_nanos() as u64);
    }
}

/// Transactions per second, and the median latency, of threads that share one log in process.
fn measure_append(run: &Run, committers: usize, space: FileAllocation) -> Result<(f64, f64)> {
    let directory = run.directory("append")?;
    let log = GroupCommit::create(&directory.path().join("log"), space)?;
    let pieces = [[7; SIZE]; OBJECTS];
    let measured = hammer(committers, duration(run), 1, |_| {
        let (log, pieces) = (&log, &pieces);
        Ok(move || Ok(log.commit(&pieces.each_ref().map(|piece| &piece[..]))?))
    })?;
    Ok((measured.rate, measured.p50_us))
}

/// Transactions per second of PostgreSQL: one statement that inserts four rows.
fn measure_inserts(run: &Run) -> Result<f64> {
    let directory = run.directory("postgres")?;
    let (_server, address) = servers::postgres(directory.path())?;
    let mut connection = postgres::dial(&address)?;
    let columns = "id bigint GENERATED ALWAYS AS IDENTITY (CACHE 64) PRIMARY KEY, value bytea NOT NULL";
    postgres::run(&mut connection, &format!("CREATE TABLE {TABLE} ({columns})"))?;
    postgres::run(&mut connection, "CHECKPOINT")?;
    let data = values();
    let plan = LoadPlan { connections: CLIENTS, pipelining: 1, order: Order::Random(duration(run)) };
    let requests = postgres::inserts(&data, OBJECTS);
    Ok(drive(&Postgres::Inserts(OBJECTS), std::slice::from_ref(&address), &requests, plan)?.rate())
}

fn throughput(case: &str, bar: Option<f64>) -> MetricSpec {
    MetricSpec {
        case: case.to_owned(),
        panel: "transactions/s".into(),
        point: case.to_owned(),
        unit: "transactions/s",
        better: Better::Higher,
        target_ratio: bar,
    }
}

/// Transactions at one brick.
pub(super) fn local(run: &Run) -> Result<Figure> {
    let mut figure = Figure {
        id: "tods-14",
        title: "local transactions of four inserts",
        about: "Each client has one transaction in flight that creates four objects of 512 bytes at one logical node of one durable \
                brick, through a peer server. Bare clients are the generator's connections, which do only what every client must \
                do; the others are clients of the library, all on one thread, with a hint to place all objects at one \
                logical node, and without hints. The bare log is in the process that \
                measures: threads append the same bytes to one file and share its fdatasync. PostgreSQL gets the \
                generator's connections too, and inserts four rows with one prepared statement."
            .into(),
        paper: "396 transactions/s on 36 bricks, growing linearly with their number.",
        parameters: vec![
            format!("{CLIENTS} clients, {:.1} s a run after a tenth of warm-up", duration(run).as_secs_f64()),
            format!("PostgreSQL: {}", servers::POSTGRES.join(", ")),
        ],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    let mut rates = |name: &str, rival: &str, bar: f64, library_too: bool| -> Result<()> {
        let log = rival != "PostgreSQL";
        let ways = ["", " of the library", " of the library, without hints"];
        for way in ways.into_iter().take(if library_too { ways.len() } else { 1 }) {
            let case = format!("{CLIENTS} {name}{way}");
            let cells = [throughput(&case, Some(bar))];
            let mortar = || {
                Ok(vec![match way {
                    "" => measure_bare_clients(run, 1, Storage::OnDisk, one_node)?[0],
                    " of the library" => measure_library(run, CLIENTS, 1, one_node)?.rate,
                    _ => measure_library(run, CLIENTS, 1, by_default)?.rate,
                }])
            };
            let rival_side = || {
                Ok(vec![if log {
                    measure_append(run, CLIENTS, FileAllocation::Growing)?.0
                } else {
                    measure_inserts(run)?
                }])
            };
            let mut sides = [Side::new("Mortar", mortar), Side::new(rival, rival_side)];
            let outcome = interleave(&format!("tods-14, {case}"), Run::REPEATS, &mut sides)?;
            figure.rows.extend(run.rows("tods-14", &outcome, &cells));
        }
        Ok(())
    };
    rates("clients", "append + fdatasync in process", 0.6, true)?;
    rates("clients", "PostgreSQL", 3.0, true)?;
    Ok(figure)
}

/// Transactions over two bricks.
pub(super) fn distributed(run: &Run) -> Result<Figure> {
    let mut figure = Figure {
        id: "tods-15",
        title: "distributed transactions of four inserts over two bricks",
        about: "As in tods-14 with two bricks: each transaction makes two objects at each of them, beside the same number of \
                objects at one of them. The latency of a lone client is set beside its parts: a read through the peer \
                server (the round trip) and an append that is forced."
            .into(),
        paper: "A third of the local ones.",
        parameters: vec![format!("{CLIENTS} clients, {:.1} s a run after a tenth of warm-up", duration(run).as_secs_f64())],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    let case = format!("{CLIENTS} clients, distributed beside local");
    let mut sides = [
        Side::new("Mortar", || Ok(vec![measure_bare_clients(run, 2, Storage::OnDisk, two_bricks)?[0]])),
        Side::new("local", || Ok(vec![measure_bare_clients(run, 2, Storage::OnDisk, one_node)?[0]])),
    ];
    let outcome = interleave(&format!("tods-15, {case}"), Run::REPEATS, &mut sides)?;
    figure.rows.extend(run.rows("tods-15", &outcome, &[throughput(&case, Some(0.6))]));
    let cell = MetricSpec {
        panel: "latency of half the transactions, µs".into(),
        unit: "µs",
        better: Better::Lower,
        ..throughput("1 client, p50", None)
    };
    let parts = || {
        let round_trip = round_trip(run)?;
        let (_, force) = measure_append(run, 1, FileAllocation::Growing)?;
        Ok(vec![round_trip + force])
    };
    let mut sides = [
        Side::new("Mortar", || Ok(vec![measure_library(run, 1, 2, two_bricks)?.p50_us])),
        Side::new("a round trip and a force", parts),
        Side::new("local", || Ok(vec![measure_library(run, 1, 2, one_node)?.p50_us])).for_reference(),
        Side::new("a round trip", || Ok(vec![round_trip(run)?])).for_reference(),
        Side::new("a force", || Ok(vec![measure_append(run, 1, FileAllocation::Growing)?.1])).for_reference(),
    ];
    let outcome = interleave("tods-15, latency", Run::REPEATS, &mut sides)?;
    figure.rows.extend(run.rows("tods-15", &outcome, &[cell]));
    Ok(figure)
}

/// The median latency of a read of a brick through a peer server, in microseconds.
fn round_trip(run: &Run) -> Result<f64> {
    let cluster = RunningCluster::start(run, 1, 1, Storage::InMemory)?;
    let oid = cluster.fill(&Data::new(16, SIZE))?[0];
    runtime()?.block_on(async {
        let client = cluster.connect().await?;
        let mut latencies = Counts::default().latencies.into_inner();
        let until = Instant::now() + duration(run) / 2;
        while Instant::now() < until {
            let begun = Instant::now();
            client.read_latest(oid).await?;
            latencies.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        Ok(latencies.value_at_quantile(0.5) as f64 / 1e3)
    })
}
