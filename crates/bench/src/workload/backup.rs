//! Backups of a cluster: what they cost its clients, and how fast they and restores are.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, CommitOutcome, IsolationLevel, Object, Oid, PlacementHint};
use model::{ClassId, NodeId};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Row, Shape};
use crate::hammer::new_histogram;
use crate::mortar::server::{Engine, MortarServer, binary, files_below, runtime};
use crate::mortar::{commit_new, measure_clients, write_again};
use crate::progress;
use crate::run::{MetricSpec, Run};

/// Bricks of the cluster.
const BRICKS: usize = 8;
/// Clients, each of which writes its own two objects again and again, and bytes in one.
const CLIENTS: usize = 32;
const SIZE: usize = 64;
/// The pause between two backups under load.
const PAUSE: Duration = Duration::from_secs(1);
/// By how much backups may slow clients down.
const SLOWED: f64 = 0.95;
/// Bytes in an object of the store that is backed up, and objects of one transaction while it is filled.
const FILL_SIZE: usize = 1024;
const FILL_BATCH: usize = 1000;
/// How fast a backup and a restore have to be, beside a copy of as many bytes.
const BACKUP: f64 = 0.7;
const RESTORE: f64 = 0.5;
/// One of so many objects is changed before an increment.
const CHANGED: usize = 100;

/// Measures both.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let mut figures = vec![under_load(run)?];
    figures.extend(throughput(run)?);
    Ok(figures)
}

// ------------------------------------------------------------------------------------------------ under load

/// What clients see in a window of time.
struct Window {
    rate: f64,
    p99_ms: f64,
}

/// Clients beside backups, and without.
fn under_load(run: &Run) -> Result<Figure> {
    let cases = ["transactions", "p99"];
    let window = run.choose(Duration::from_secs(20), Duration::from_secs(3));
    let rows = match cases.iter().any(|case| run.wants_case("backup-load", case)) {
        true => runtime()?.block_on(load_rows(run, window))?,
        false => Vec::new(),
    };
    Ok(Figure {
        id: "backup-load",
        title: "clients beside backups",
        about: format!(
            "{CLIENTS} clients of the library on the Unix socket of mortar dev with {BRICKS} bricks each write two objects of {SIZE} bytes \
             of their own, which were created at two logical nodes, in durable transactions, one after another. Windows in which a \
             backup is taken {} s after the one before ended, and windows without, take turns. The p99 may be longer by two round trips and \
             a force, for which the median latency of a transaction stands.",
            PAUSE.as_secs()
        ),
        paper: "",
        parameters: vec![format!("{} s a window", window.as_secs())],
        shape: Shape::Bars,
        rows: rows.into_iter().filter(|row| run.wants_case("backup-load", &row.case)).collect(),
        skipped: Vec::new(),
    })
}

async fn load_rows(run: &Run, window: Duration) -> Result<Vec<Row>> {
    let served = MortarServer::start_with(run.directory("mortar")?, Engine::Durable, &bricks())?;
    let archive = served.directory.path().join("archive");
    let latencies = Rc::new(RefCell::new(new_histogram()?));
    let mut writers = Vec::new();
    for (number, client) in served.connect_many(CLIENTS).await?.into_iter().enumerate() {
        let nodes = client.nodes().to_vec();
        let at = |step: usize| nodes[(number + step) % nodes.len()];
        let objects = vec![create_at(&client, at(0)).await?, create_at(&client, at(1)).await?];
        writers.push(write_again(client, objects, SIZE, Rc::clone(&latencies)));
    }
    let (mut quiet, mut backed_up, mut allowed) = (Vec::new(), Vec::new(), Vec::new());
    let measurement = async {
        // The first window is warm-up.
        for round in 0..=Run::REPEATS {
            for with_backups in [false, true] {
                latencies.borrow_mut().reset();
                let begun = Instant::now();
                let backups = match with_backups {
                    true => back_up_until(&served, &archive, begun + window).await?,
                    false => {
                        sleep(window).await;
                        0
                    }
                };
                let latencies = latencies.borrow();
                let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
                let ms = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e6;
                let (p99_ms, median_ms) = (ms(0.99), ms(0.5));
                progress::line(format_args!(
                    "backup-load: round {round}, {backups} backups: {rate:.0} transactions/s, p99 {p99_ms:.1} ms, median {median_ms:.1} ms"
                ));
                if round > 0 && with_backups {
                    backed_up.push(Window { rate, p99_ms });
                } else if round > 0 {
                    quiet.push(Window { rate, p99_ms });
                    allowed.push(p99_ms + median_ms);
                }
            }
        }
        Ok(())
    };
    measure_clients(writers, measurement).await?;
    let row = |case: &str, unit, better, mortar: Vec<f64>, rival: Vec<f64>, target| Row {
        case: case.to_owned(),
        panel: format!("{case}, {unit}"),
        point: case.to_owned(),
        unit,
        better,
        rival_name: "without backups".to_owned(),
        mortar,
        rival,
        target_ratio: target,
    };
    let rates = |windows: &[Window]| windows.iter().map(|window| window.rate).collect();
    let p99s = |windows: &[Window]| windows.iter().map(|window| window.p99_ms).collect::<Vec<f64>>();
    Ok(vec![
        row("transactions", "transactions/s", Better::Higher, rates(&backed_up), rates(&quiet), Some(SLOWED)),
        row("p99", "ms", Better::Lower, p99s(&backed_up), p99s(&quiet), None),
        Row {
            rival_name: "requirement".to_owned(),
            ..row("p99", "ms", Better::Lower, p99s(&backed_up), allowed, Some(1.0))
        },
    ])
}

/// Takes backups until this moment; returns how many.
async fn back_up_until(served: &MortarServer, archive: &Path, until: Instant) -> Result<usize> {
    let mut count = 0;
    while Instant::now() < until {
        let mut command = served.command()?;
        command.arg("backup").arg("--overwrite").arg(archive);
        spawn_blocking(move || run_quietly(&mut command)).await??;
        count += 1;
        sleep(PAUSE.min(until.saturating_duration_since(Instant::now()))).await;
    }
    Ok(count)
}

async fn create_at(client: &Client, node: NodeId) -> Result<Oid> {
    let t = client.begin(IsolationLevel::Optimistic);
    let created =
        t.create_object(ClassId::NONE, Object::blob(Bytes::from_static(&[0; SIZE])), PlacementHint::At(node))?;
    match t.commit().await? {
        CommitOutcome::Committed(_) => t.real_oid(created).ok_or_else(|| "a created object has no identifier".into()),
        other => Err(format!("a transaction without concurrent ones ended with {other:?}").into()),
    }
}

// ------------------------------------------------------------------------------------------------ throughput

/// Backup and restore beside a copy of the store's directory.
fn throughput(run: &Run) -> Result<Vec<Figure>> {
    let objects = run.choose(1_000_000, 20_000);
    let cell = |case: &str, target| MetricSpec {
        case: case.to_owned(),
        panel: "MiB/s".to_owned(),
        point: case.to_owned(),
        unit: "MiB/s",
        better: Better::Higher,
        target_ratio: Some(target),
    };
    let cells = [cell("backup", BACKUP), cell("restore", RESTORE)];
    let less = |case: &str, unit| MetricSpec {
        panel: case.to_owned(),
        unit,
        better: Better::Lower,
        target_ratio: None,
        ..cell(case, 0.0)
    };
    let increment_cells = [less("time of an increment", "s"), less("bytes of an increment", "MiB")];
    let (rows, increment_rows) =
        match run.wants("backup-speed", &cells) || run.wants("backup-increment", &increment_cells) {
            true => speed_rows(run, objects, &cells, &increment_cells)?,
            false => (Vec::new(), Vec::new()),
        };
    let increment = Figure {
        id: "backup-increment",
        title: "increments",
        about: format!(
            "One of {CHANGED} of the same objects has been changed since a full backup. `mortar backup --since` writes what differs, beside another full backup."
        ),
        paper: "",
        parameters: vec![format!("{objects} objects")],
        shape: Shape::Bars,
        rows: increment_rows,
        skipped: Vec::new(),
    };
    let speed = Figure {
        id: "backup-speed",
        title: "backup and restore",
        about: format!(
            "A cluster of {BRICKS} bricks in mortar dev has objects of {FILL_SIZE} bytes, which clients have written. `mortar backup` writes \
             them to a file, and `mortar restore` makes a store of that, which it verifies. Beside it, `cp -r` copies a directory that has \
             as many bytes as the archive, in as many files as there are bricks. All files are forced at the end of each."
        ),
        paper: "",
        parameters: vec![format!("{objects} objects")],
        shape: Shape::Bars,
        rows,
        skipped: Vec::new(),
    };
    Ok(vec![speed, increment])
}

/// The rows of both figures.
fn speed_rows(
    run: &Run,
    objects: usize,
    cells: &[MetricSpec],
    increment_cells: &[MetricSpec],
) -> Result<(Vec<Row>, Vec<Row>)> {
    let served = MortarServer::start_with(run.directory("mortar")?, Engine::Durable, &bricks())?;
    let to_change = runtime()?.block_on(async {
        let client = served.connect().await?;
        let values: Vec<Bytes> = (0..FILL_BATCH).map(incompressible).collect();
        let mut to_change = Vec::new();
        for _ in 0..objects.div_ceil(FILL_BATCH) {
            to_change.extend(commit_new(&client, &values).await?.into_iter().step_by(CHANGED));
        }
        Ok::<_, crate::BoxedError>(to_change)
    })?;
    let directory = run.directory("backups")?;
    let (archive, restored) = (directory.path().join("archive"), directory.path().join("restored"));
    let (files, copied) = (directory.path().join("files"), directory.path().join("copied"));
    let back_up = || {
        let mut command = served.command()?;
        command.arg("backup").arg(&archive);
        remove_earlier(&archive)?;
        measure_time(&directory, || run_quietly(&mut command))
    };
    back_up()?;
    let bytes = archive.metadata()?.len();
    fs::create_dir(&files)?;
    split(&archive, &files)?;
    let rate = |time: Duration| bytes as f64 / f64::from(1 << 20) / time.as_secs_f64();
    let mut sides = [
        Side::new("Mortar", || {
            let backup = back_up()?;
            let mut command = Command::new(binary()?);
            command.arg("restore").arg(&archive).arg("--data").arg(&restored);
            let restore = measure_time(&directory, || run_quietly(&mut command))?;
            fs::remove_dir_all(&restored)?;
            Ok(vec![rate(backup), rate(restore)])
        }),
        Side::new("cp -r", || {
            let mut command = Command::new("cp");
            command.arg("-r").arg(&files).arg(&copied);
            let copy = measure_time(&directory, || run_quietly(&mut command))?;
            fs::remove_dir_all(&copied)?;
            Ok(vec![rate(copy), rate(copy)])
        }),
    ];
    let repeats = run.choose(Run::REPEATS, 1);
    let outcome = interleave("backup-speed", repeats, &mut sides)?;
    let speed = run.rows("backup-speed", &outcome, cells);
    runtime()?.block_on(change(&served, &to_change))?;
    let changed = directory.path().join("increment");
    let mib = |path: &Path| Ok::<_, crate::BoxedError>(path.metadata()?.len() as f64 / f64::from(1 << 20));
    let full = directory.path().join("full");
    let mut take = |options: &[&Path], out: &Path| {
        let mut command = served.command()?;
        command.arg("backup").args(options).arg(out);
        remove_earlier(out)?;
        let time = measure_time(&directory, || run_quietly(&mut command))?;
        Ok::<_, crate::BoxedError>(vec![time.as_secs_f64(), mib(out)?])
    };
    let take = RefCell::new(&mut take);
    let mut sides = [
        Side::new("Mortar", || take.borrow_mut()(&[Path::new("--since"), &archive], &changed)),
        Side::new("a full backup", || take.borrow_mut()(&[], &full)),
    ];
    let outcome = interleave("backup-increment", repeats, &mut sides)?;
    Ok((speed, run.rows("backup-increment", &outcome, increment_cells)))
}

/// Changes objects, each once.
async fn change(served: &MortarServer, objects: &[Oid]) -> Result<()> {
    let client = served.connect().await?;
    for batch in objects.chunks(FILL_BATCH) {
        client
            .transact(|t| {
                let batch = batch.to_vec();
                async move {
                    for (number, oid) in batch.into_iter().enumerate() {
                        t.put(oid, Object::blob(incompressible(FILL_BATCH + number))).await?;
                    }
                    Ok(())
                }
            })
            .await?;
    }
    Ok(())
}

/// Copies an archive to as many files as there are bricks.
fn split(archive: &Path, files: &Path) -> Result<()> {
    let bytes = archive.metadata()?.len();
    let mut from = File::open(archive)?;
    for number in 0..BRICKS {
        let mut part = std::io::Read::take(&mut from, bytes.div_ceil(BRICKS as u64));
        std::io::copy(&mut part, &mut File::create(files.join(number.to_string()))?)?;
    }
    let files = files_below(files)?;
    files.iter().try_for_each(|file| Ok(File::open(file)?.sync_all()?))
}

/// Bytes of an object that look random.
fn incompressible(seed: usize) -> Bytes {
    let words = (0..FILL_SIZE / 8).map(|word| model::checksum::mix((seed * FILL_SIZE + word) as u64 + 1));
    words.flat_map(u64::to_le_bytes).collect()
}

/// How long something takes, with everything that it leaves to be written to the disk of `directory`.
fn measure_time(directory: &tempfile::TempDir, act: impl FnOnce() -> Result<()>) -> Result<Duration> {
    rustix::fs::syncfs(File::open(directory.path())?)?;
    let begun = Instant::now();
    act()?;
    rustix::fs::syncfs(File::open(directory.path())?)?;
    Ok(begun.elapsed())
}

/// Removes what an earlier run has written, whose time counts for neither side.
fn remove_earlier(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Runs a command that has to succeed.
fn run_quietly(command: &mut Command) -> Result<()> {
    let ended = command.stdin(Stdio::null()).output()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr)).into()),
    }
}

fn bricks() -> [String; 2] {
    ["--bricks".to_owned(), BRICKS.to_string()]
}
