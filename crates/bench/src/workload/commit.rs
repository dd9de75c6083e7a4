//! Small durable transactions: Mortar beside the disk's limit, an append and an `fdatasync` that all waiters share.

use std::cell::Cell as Count;
use std::rc::Rc;
use std::slice;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Client;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::hammer::hammer;
use crate::load::mortar::{self, Mortar};
use crate::load::{Data, Order, Plan, drive};
use crate::mortar::embedded;
use crate::mortar::served::{Engine, Served, runtime};
use crate::rival::group_commit::{GroupCommit, Space};
use crate::run::{Cell, Run};

/// Objects of one transaction, and bytes of each.
const OBJECTS: usize = 4;
const SIZE: usize = 512;
const COMMITTERS: [usize; 3] = [1, 16, 64];
const CLIENTS: usize = 64;
/// The rival's file is written once over so many bytes, where it is prepared.
const PREPARED: u64 = 256 << 20;

/// Measures in process, then over the Unix socket.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let duration = run.choose(Duration::from_secs(5), Duration::from_millis(800));
    let mut figure = Figure {
        id: "commit",
        title: "durable transactions of 4 × 512 B",
        about: "Each committer has one transaction under way: four new objects of 512 bytes. The rival appends the same bytes \
                to a file with one write and one fdatasync for all who wait (leader and followers). In process the \
                committers are threads; over the Unix socket they are connections, and the rival is still in process."
            .into(),
        paper: "",
        parameters: vec![
            format!("{:.1} s a run after a tenth of warm-up", duration.as_secs_f64()),
            "prepared file: written once beforehand, so that no force has to write its size".into(),
        ],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for committers in COMMITTERS {
        let cells = in_process_cells(committers);
        if run.wants("commit", &cells) {
            let mortar = Side::new("Mortar", || in_process(run, committers, duration));
            contest(run, &mut figure, &cells, mortar, committers, duration)?;
        }
    }
    let cell = |client: &str| {
        let case = format!("unix socket, {CLIENTS} clients{client}");
        [Cell { bar: Some(0.6), ..throughput(&case, &format!("{CLIENTS} clients{client}")) }]
    };
    let bare = cell("");
    if run.wants("commit", &bare) {
        let mortar = Side::new("Mortar", || over_socket(run, duration));
        contest(run, &mut figure, &bare, mortar, CLIENTS, duration)?;
    }
    let library = cell(", client library");
    if run.wants("commit", &library) {
        let mortar = Side::new("Mortar", || over_socket_with_library(run, duration));
        contest(run, &mut figure, &library, mortar, CLIENTS, duration)?;
    }
    Ok(vec![figure])
}

fn throughput(case: &str, point: &str) -> Cell {
    let (panel, unit, better) = ("transactions/s".to_owned(), "transactions/s", Better::Higher);
    Cell { case: case.to_owned(), panel, point: point.to_owned(), unit, better, bar: None }
}

/// Throughput and median latency: one is asked for of a lone committer, the other of many.
fn in_process_cells(committers: usize) -> [Cell; 2] {
    let case = format!("{committers} committer{}", if committers == 1 { "" } else { "s" });
    let alone = committers == 1;
    let rate = Cell { bar: if alone { None } else { Some(0.8) }, ..throughput(&case, &case) };
    let latency = Cell {
        case: format!("{case}, p50"),
        panel: "latency of half the transactions, µs".into(),
        point: case.clone(),
        unit: "µs",
        better: Better::Lower,
        bar: alone.then_some(1.0 / 1.3),
    };
    [rate, latency]
}

fn contest(
    run: &Run,
    figure: &mut Figure,
    cells: &[Cell],
    mortar: Side<'_>,
    committers: usize,
    duration: Duration,
) -> Result<()> {
    let bare = |space| move || append(run, committers, duration, space);
    let mut sides = [
        mortar,
        Side::new("append + fdatasync", bare(Space::Grows)),
        Side::new("the same, prepared file", bare(Space::Prepared(PREPARED))).for_reference(),
    ];
    let outcome = interleave(&format!("commit, {}", cells[0].case), Run::REPEATS, &mut sides)?;
    figure.rows.extend(run.rows("commit", &outcome, cells));
    Ok(())
}

/// The content of one transaction's objects.
fn contents() -> [Bytes; OBJECTS] {
    std::array::from_fn(|index| Bytes::from(vec![index as u8 + 1; SIZE]))
}

fn in_process(run: &Run, committers: usize, duration: Duration) -> Result<Vec<f64>> {
    let directory = run.directory("commit")?;
    let store = embedded::open(directory.path())?;
    let measured = hammer(committers, duration, 1, |_| {
        let (store, contents) = (&store, contents());
        Ok(move || embedded::commit_new(store, &contents).map(drop))
    })?;
    Ok(vec![measured.rate, measured.p50_us])
}

fn append(run: &Run, committers: usize, duration: Duration, space: Space) -> Result<Vec<f64>> {
    let directory = run.directory("append")?;
    let log = GroupCommit::create(&directory.path().join("log"), space)?;
    let measured = hammer(committers, duration, 1, |_| {
        let (log, contents) = (&log, contents());
        Ok(move || Ok(log.commit(&contents.each_ref().map(|content| &content[..]))?))
    })?;
    Ok(vec![measured.rate, measured.p50_us])
}

/// The generator's connections: the least that a client can cost.
fn over_socket(run: &Run, duration: Duration) -> Result<Vec<f64>> {
    let served = Served::start(run, Engine::Durable)?;
    let data = Data::new(1024, OBJECTS * SIZE);
    let requests = mortar::creates(&data, OBJECTS);
    let plan = Plan { connections: CLIENTS, pipelining: 1, order: Order::Random(duration) };
    Ok(vec![drive(&Mortar::Commits(OBJECTS), slice::from_ref(&served.unix), &requests, plan)?.rate()])
}

/// As many clients of the client library, all on one thread.
fn over_socket_with_library(run: &Run, duration: Duration) -> Result<Vec<f64>> {
    let served = Served::start(run, Engine::Durable)?;
    runtime()?.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(served.connect().await?);
        }
        let commits = Rc::new(Count::new(0_u64));
        let mut tasks = JoinSet::new();
        let local = LocalSet::new();
        for client in clients {
            let commits = Rc::clone(&commits);
            tasks.spawn_local_on(commit_for_ever(client, commits), &local);
        }
        let measured = local.run_until(async {
            sleep(duration / 10).await;
            let (begun, before) = (Instant::now(), commits.get());
            sleep(duration).await;
            Ok(vec![(commits.get() - before) as f64 / begun.elapsed().as_secs_f64()])
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

async fn commit_for_ever(client: Client, commits: Rc<Count<u64>>) -> Result<()> {
    let contents = contents();
    loop {
        embedded::created(client.commit(embedded::creating(&contents)).await?)?;
        commits.set(commits.get() + 1);
    }
}
