//! Opening a large store after its server was killed under load.
//!
//! A crash leaves transactions that were logged and not yet installed. Opening reads that part of the log and nothing else, for any
//! number of objects.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Client;
use model::Oid;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::Result;
use crate::figure::{Better, Figure, Row, Shape};
use crate::mortar::commit_new;
use crate::mortar::server::{Engine, MortarServer, files_below, runtime};
use crate::plot::quantity;
use crate::progress;
use crate::run::Run;

/// The required time, in addition to the replay of at most one buffer.
const TARGET: Duration = Duration::from_secs(2);
/// Bytes in an object.
const SIZE: usize = 100;
/// Disk space for an object, including log and copied pages, in bytes.
const DISK_BYTES_PER_OBJECT: u64 = 400;
/// Objects of one transaction while the store is filled, and transactions in flight.
const FILL_BATCH: u64 = 1000;
const MAX_FILL_TRANSACTIONS: usize = 8;
/// Filling takes about a minute on a fast disk. After this time it is aborted.
const FILL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Clients that commit when the server is killed, objects per transaction, and for how long they commit.
const WRITERS: usize = 16;
const OBJECTS_PER_COMMIT: u64 = 4;
const LOAD_TIME: Duration = Duration::from_millis(1500);
/// One in this many objects of the initial ones is checked after opening; all committed ones are.
const CHECK_EVERY: usize = 250;

/// Measures opening.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let objects: u64 = run.choose(10_000_000, 200_000);
    let mut figure = Figure {
        id: "open",
        title: "opening after SIGKILL",
        about: format!(
            "A server is filled with objects of {SIZE} bytes, then {WRITERS} clients commit to it, and it is killed among \
             them. Opening ends when the store can be read and written; every acknowledged commit is checked. Then \
             the same with nothing of the store in the system's cache, as after a power cut. For comparison: reading all \
             files of the log once, without processing them."
        ),
        paper: "",
        parameters: vec![format!("required: {} s plus the replay of at most one buffer", TARGET.as_secs())],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    let count = format_count(objects);
    let cases = [format!("{count} objects"), format!("{count} objects, nothing cached")];
    if !cases.iter().any(|case| run.wants_case(figure.id, case)) {
        return Ok(vec![figure]);
    }
    if let Some(why) = run.lack_of_space(objects * DISK_BYTES_PER_OBJECT)? {
        figure.skipped.push(why);
        return Ok(vec![figure]);
    }
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    let mut store = fill(run, objects)?;
    for round in 1..=run.choose(Run::REPEATS, 1) {
        for (cached, opened) in [(true, &mut warm), (false, &mut cold)] {
            let times = crash_and_open(&mut store, cached)?;
            let kept = if cached { "cached" } else { "nothing cached" };
            let (open, read) = (times.open, times.read_log);
            progress::line(format_args!("open: round {round}, {kept}: {open:.2?}; reading the log {read:.2?}"));
            opened.push(times);
        }
    }
    figure.rows = cases.iter().zip([warm, cold]).flat_map(|(case, times)| rows(case, &times)).collect();
    Ok(vec![figure])
}

/// A store without a running server.
struct StoppedStore {
    /// `None` while a server runs.
    directory: Option<TempDir>,
    /// Objects that must exist.
    oids: Vec<Oid>,
}

struct Times {
    open: Duration,
    read_log: Duration,
}

fn rows(case: &str, times: &[Times]) -> [Row; 2] {
    let row = |rival_name: &str, rival: Vec<f64>, bar| Row {
        case: case.to_owned(),
        panel: "opening, s".to_owned(),
        point: case.to_owned(),
        unit: "s",
        better: Better::Lower,
        rival_name: rival_name.to_owned(),
        mortar: times.iter().map(|times| times.open.as_secs_f64()).collect(),
        rival,
        target_ratio: bar,
    };
    let asked = vec![TARGET.as_secs_f64(); times.len()];
    let read = times.iter().map(|times| times.read_log.as_secs_f64()).collect();
    [row("requirement", asked, Some(1.0)), row("reading the log", read, None)]
}

/// Fills a store through a server and keeps some of the identifiers.
fn fill(run: &Run, objects: u64) -> Result<StoppedStore> {
    let served = MortarServer::start(run, Engine::Durable)?;
    let oids = runtime()?.block_on(create(&served, objects))?;
    Ok(StoppedStore { directory: Some(served.kill()?), oids })
}

async fn create(served: &MortarServer, objects: u64) -> Result<Vec<Oid>> {
    let begun = Instant::now();
    let client = served.connect().await?;
    let (mut oids, mut tasks, mut sent) = (Vec::new(), JoinSet::new(), 0);
    while sent < objects || !tasks.is_empty() {
        if sent < objects && tasks.len() < MAX_FILL_TRANSACTIONS {
            let next = FILL_BATCH.min(objects - sent);
            tasks.spawn(commit(client.clone(), next));
            sent += next;
            if sent.is_multiple_of(1_000_000) {
                progress::line(format_args!("open: {} objects in {:.0?}", format_count(sent), begun.elapsed()));
            }
            continue;
        }
        let (_, created) = tasks.join_next().await.ok_or("no transaction is in flight")???;
        oids.extend(created.into_iter().step_by(CHECK_EVERY));
        if begun.elapsed() > FILL_TIMEOUT {
            return Err(format!("the disk is too slow: {} objects in {FILL_TIMEOUT:?}", format_count(sent)).into());
        }
    }
    Ok(oids)
}

async fn commit(client: Client, objects: u64) -> Result<(Client, Vec<Oid>)> {
    let values = vec![Bytes::from_static(&[7; SIZE]); objects as usize];
    let oids = commit_new(&client, &values).await?;
    Ok((client, oids))
}

/// Kills a server during commits, and opens its store.
fn crash_and_open(store: &mut StoppedStore, cached: bool) -> Result<Times> {
    let directory = store.directory.take().ok_or("a server is using the store")?;
    let served = MortarServer::start_in(directory, Engine::Durable)?;
    store.oids.extend(runtime()?.block_on(load(&served))?);
    let directory = served.kill()?;
    let data = MortarServer::data(&directory)?;
    store.directory = Some(directory);
    let log = files_below(&data.join("log"))?;
    if !cached {
        files_below(&data)?.iter().try_for_each(|path| drop_page_cache(path))?;
    }
    let begun = Instant::now();
    log.iter().try_for_each(|path| read_once(path))?;
    let read_log = begun.elapsed();
    if !cached {
        log.iter().try_for_each(|path| drop_page_cache(path))?;
    }
    let open = runtime()?.block_on(open_and_check(&data, &store.oids))?;
    Ok(Times { open, read_log })
}

/// Opens a cluster in this process until it has committed a transaction, and checks its objects afterwards.
async fn open_and_check(data: &Path, oids: &[Oid]) -> Result<Duration> {
    let begun = Instant::now();
    let client = Client::open(data).await?;
    commit_new(&client, &[Bytes::from_static(b"opened")]).await?;
    let open = begun.elapsed();
    for oid in oids {
        if client.read_latest(*oid).await?.is_none_or(|object| object.data.len() != SIZE) {
            return Err(format!("{oid} was acknowledged and does not exist").into());
        }
    }
    client.shutdown().await?;
    Ok(open)
}

/// Commits from many clients for a while, and leaves the last commits in flight. Returns the acknowledged objects.
async fn load(served: &MortarServer) -> Result<Vec<Oid>> {
    let (mut oids, mut tasks) = (Vec::new(), JoinSet::new());
    for _ in 0..WRITERS {
        tasks.spawn(commit(served.connect().await?, OBJECTS_PER_COMMIT));
    }
    let end = Instant::now() + LOAD_TIME;
    while Instant::now() < end {
        let (client, created) = tasks.join_next().await.ok_or("no transaction is in flight")???;
        oids.extend(created);
        tasks.spawn(commit(client, OBJECTS_PER_COMMIT));
    }
    Ok(oids)
}

fn read_once(path: &Path) -> Result<()> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 1 << 20]);
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Evicts a file from the system's page cache.
fn drop_page_cache(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// A number with separated thousands.
fn format_count(number: u64) -> String {
    quantity(number as f64)
}
