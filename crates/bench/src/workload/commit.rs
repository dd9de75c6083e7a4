//! Small durable transactions, compared with the disk's limit: an append and an `fdatasync` that all waiting threads share.

use std::cell::Cell as Count;
use std::rc::Rc;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, blocking};
use tokio::time::sleep;

use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::hammer::hammer;
use crate::load::mortar::Commits;
use crate::load::{Data, LoadPlan, Order, Requests, drive};
use crate::mortar::server::{Engine, MortarServer, runtime};
use crate::mortar::{commit_new, measure_clients};
use crate::rival::group_commit::{FileAllocation, GroupCommit};
use crate::run::{MetricSpec, Run};
use crate::{BoxedError, Result};

/// Objects of one transaction, and bytes of each.
const OBJECTS: usize = 4;
const SIZE: usize = 512;
const COMMITTERS: [usize; 3] = [1, 16, 64];
const CLIENTS: usize = 64;
/// Threads that append to one object, as many bytes as one object of the other transactions.
const APPENDERS: usize = 64;
/// The rival's preallocated file is written once over this many bytes.
const PREALLOCATED_BYTES: u64 = 256 << 20;

/// Measures in process, then over the Unix socket.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let duration = run.choose(Duration::from_secs(5), Duration::from_millis(800));
    let mut figure = Figure {
        id: "commit",
        title: "durable transactions of 4 × 512 B",
        about: "Each committer has one transaction under way: four new objects of 512 bytes. The rival appends the same bytes \
                to a file with one write and one fdatasync for all waiting committers (leader and followers). In process the \
                committers are threads; over the Unix socket they are connections, and the rival is still in process. Appenders \
                are threads that each append 512 bytes to the same object in a transaction."
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
            let mortar = Side::new("Mortar", || measure_in_process(run, committers, duration));
            contest(run, &mut figure, &cells, mortar, committers, (&contents(), duration))?;
        }
    }
    let case = format!("{APPENDERS} appenders to one object");
    let appends = [MetricSpec { target_ratio: Some(0.6), ..throughput(&case, &case) }];
    if run.wants("commit", &appends) {
        let mortar = Side::new("Mortar", || measure_appenders(run, duration));
        contest(run, &mut figure, &appends, mortar, APPENDERS, (&contents()[..1], duration))?;
    }
    let cell = |client: &str| {
        let case = format!("unix socket, {CLIENTS} clients{client}");
        [MetricSpec { target_ratio: Some(0.6), ..throughput(&case, &format!("{CLIENTS} clients{client}")) }]
    };
    let bare = cell("");
    if run.wants("commit", &bare) {
        let mortar = Side::new("Mortar", || measure_over_socket(run, duration));
        contest(run, &mut figure, &bare, mortar, CLIENTS, (&contents(), duration))?;
    }
    let library = cell(", client library");
    if run.wants("commit", &library) {
        let mortar = Side::new("Mortar", || measure_over_socket_with_library(run, duration));
        contest(run, &mut figure, &library, mortar, CLIENTS, (&contents(), duration))?;
    }
    Ok(vec![figure])
}

fn throughput(case: &str, point: &str) -> MetricSpec {
    let (panel, unit, better) = ("transactions/s".to_owned(), "transactions/s", Better::Higher);
    MetricSpec { case: case.to_owned(), panel, point: point.to_owned(), unit, better, target_ratio: None }
}

/// Throughput and median latency: latency is required of a single committer, throughput of many.
fn in_process_cells(committers: usize) -> [MetricSpec; 2] {
    let case = format!("{committers} committer{}", if committers == 1 { "" } else { "s" });
    let alone = committers == 1;
    let rate = MetricSpec { target_ratio: if alone { None } else { Some(0.8) }, ..throughput(&case, &case) };
    let latency = MetricSpec {
        case: format!("{case}, p50"),
        panel: "latency of half the transactions, µs".into(),
        point: case.clone(),
        unit: "µs",
        better: Better::Lower,
        target_ratio: alone.then_some(1.0 / 1.3),
    };
    [rate, latency]
}

fn contest(
    run: &Run,
    figure: &mut Figure,
    cells: &[MetricSpec],
    mortar: Side<'_>,
    committers: usize,
    (written, duration): (&[Bytes], Duration),
) -> Result<()> {
    let bare = |space| move || measure_append(run, committers, (written, duration), space);
    let mut sides = [
        mortar,
        Side::new("append + fdatasync", bare(FileAllocation::Growing)),
        Side::new("the same, prepared file", bare(FileAllocation::Preallocated(PREALLOCATED_BYTES))).for_reference(),
    ];
    let outcome = interleave(&format!("commit, {}", cells[0].case), Run::REPEATS, &mut sides)?;
    figure.rows.extend(run.rows("commit", &outcome, cells));
    Ok(())
}

/// The content of one transaction's objects.
fn contents() -> [Bytes; OBJECTS] {
    std::array::from_fn(|index| Bytes::from(vec![index as u8 + 1; SIZE]))
}

/// Transactions of threads on a cluster in this process.
fn measure_in_process(run: &Run, committers: usize, duration: Duration) -> Result<Vec<f64>> {
    let directory = run.directory("commit")?;
    let client = blocking::Client::open(directory.path().join("data"))?;
    let measured = hammer(committers, duration, 1, |_| {
        let (client, contents) = (client.clone(), contents());
        Ok(move || {
            client.transact(|t| contents.iter().try_for_each(|content| t.create_blob(content.clone()).map(drop)))?;
            Ok(())
        })
    })?;
    client.shutdown()?;
    Ok(vec![measured.rate, measured.p50_us])
}

/// Threads that each append to the same blob in transactions, in this process.
fn measure_appenders(run: &Run, duration: Duration) -> Result<Vec<f64>> {
    let directory = run.directory("commit")?;
    let client = blocking::Client::open(directory.path().join("data"))?;
    let (blob, transaction) = client.transact(|t| Ok((t.create_blob("")?, t.clone())))?;
    let blob = transaction.real_oid(blob).ok_or("a created object has no identifier")?;
    let line = Bytes::from(vec![1; SIZE]);
    let appended = AtomicU64::new(0);
    let measured = hammer(APPENDERS, duration, 1, |_| {
        let (client, line, appended) = (client.clone(), line.clone(), &appended);
        Ok(move || {
            client.transact(|t| t.append(blob, line.clone()))?;
            appended.fetch_add(SIZE as u64, Ordering::Relaxed);
            Ok(())
        })
    })?;
    let (size, appended) = (client.stat(blob)?.map(|stat| stat.size), appended.into_inner());
    client.shutdown()?;
    match size {
        Some(size) if size == appended => Ok(vec![measured.rate]),
        size => Err(format!("{appended} bytes were appended, and the object has {size:?}").into()),
    }
}

fn measure_append(
    run: &Run,
    committers: usize,
    (written, duration): (&[Bytes], Duration),
    space: FileAllocation,
) -> Result<Vec<f64>> {
    let directory = run.directory("append")?;
    let log = GroupCommit::create(&directory.path().join("log"), space)?;
    let measured = hammer(committers, duration, 1, |_| {
        let (log, written) = (&log, written.iter().map(|bytes| &bytes[..]).collect::<Vec<_>>());
        Ok(move || Ok(log.commit(&written)?))
    })?;
    Ok(vec![measured.rate, measured.p50_us])
}

/// Connections of the generator: the minimal cost of a client.
fn measure_over_socket(run: &Run, duration: Duration) -> Result<Vec<f64>> {
    let served = MortarServer::start(run, Engine::Durable)?;
    let nodes = runtime()?.block_on(async { Ok::<_, BoxedError>(served.connect().await?.nodes().to_vec()) })?;
    let data = Data::new(1024, OBJECTS * SIZE);
    let plan = LoadPlan { connections: CLIENTS, pipelining: 1, order: Order::Random(duration) };
    // As clients do: each begins at another logical node.
    let commits = Commits::new(OBJECTS, nodes.into_iter().map(|node| vec![node]).collect());
    let requests = Requests::gets(&data, |_, _| {});
    Ok(vec![drive(&commits, slice::from_ref(&served.unix), &requests, plan)?.rate()])
}

/// The same number of clients of the client library, all on one thread.
fn measure_over_socket_with_library(run: &Run, duration: Duration) -> Result<Vec<f64>> {
    let served = MortarServer::start(run, Engine::Durable)?;
    runtime()?.block_on(async {
        let commits = Rc::new(Count::new(0_u64));
        let clients = served.connect_many(CLIENTS).await?;
        let clients = clients.into_iter().map(|client| commit_for_ever(client, Rc::clone(&commits)));
        let measurement = async {
            sleep(duration / 10).await;
            let (begun, before) = (Instant::now(), commits.get());
            sleep(duration).await;
            Ok(vec![(commits.get() - before) as f64 / begun.elapsed().as_secs_f64()])
        };
        measure_clients(clients, measurement).await
    })
}

async fn commit_for_ever(client: Client, commits: Rc<Count<u64>>) -> Result<()> {
    let contents = contents();
    loop {
        commit_new(&client, &contents).await?;
        commits.set(commits.get() + 1);
    }
}
