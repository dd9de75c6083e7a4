//! The server's memory: idle, while large files are imported, and while a tree of small files is imported.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, StagedContent, Transaction};

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::mortar::server::{Engine, MortarServer, runtime};
use crate::process::Memory;
use crate::progress;
use crate::run::{MetricSpec, Run};

const MIB: u64 = 1 << 20;
/// The required limits: of an idle server, and of the increase while it imports.
const MAX_IDLE_MIB: f64 = 30.0;
const MAX_ADDED_MIB: f64 = 64.0;
/// Sizes of the imported files, repeated: many small ones, few large ones.
const SIZES: [usize; 12] = {
    const K: usize = 1 << 10;
    [K, 4 * K, 4 * K, 16 * K, 2 * K, 64 * K, 8 * K, 256 * K, 32 * K, 1 << 20, 4 << 20, 32 << 20]
};
/// Files up to this size share a transaction; larger ones are uploaded.
const SMALL_FILE_BYTES: usize = 256 << 10;
const TRANSACTION_BYTES: usize = 4 << 20;
/// Sizes of the files of the tree, repeated: 8.6 KB on average, as below /usr/share.
const TREE_SIZES: [usize; 16] =
    [120, 340, 800, 900, 1200, 1500, 1900, 2400, 3000, 3800, 4700, 6200, 9000, 14_000, 22_000, 65_500];
const FILES_PER_DIRECTORY: usize = 16;

/// Measures memory.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let (total, files) = run.choose((10 << 30, 53_418), (1 << 30, 20_000));
    let cell = |case: &str, panel: &str, bar| MetricSpec {
        case: case.to_owned(),
        panel: panel.to_owned(),
        point: case.to_owned(),
        unit: "MiB",
        better: Better::Lower,
        target_ratio: bar,
    };
    let idle = [cell("idle, resident", "idle, MiB", Some(1.0)), cell("idle, anonymous", "idle, MiB", None)];
    let added = |what: String| {
        [
            cell(&format!("added by importing {what}, anonymous"), "importing, MiB", Some(1.0)),
            cell(&format!("added by importing {what}, resident"), "importing, MiB", None),
        ]
    };
    let large = added(format!("{} GiB", total / (1 << 30)));
    let small = added(format!("{files} small files twice"));
    let mut figure = Figure {
        id: "memory",
        title: "the server's memory",
        about: "mortar dev on a new store, sampled from /proc: idle for two seconds; then the peak while a client imports files \
                of 1 KiB to 32 MiB over the Unix socket; in another server the peak while `mortar import` brings a tree of \
                files of 120 B to 64 KiB, and brings it again under other names. Resident pages include those of the \
                memory-mapped B-tree, which the kernel reclaims whenever it needs them; anonymous pages are the server's own."
            .into(),
        paper: "",
        parameters: vec![format!("required: idle at most {MAX_IDLE_MIB} MiB, importing at most {MAX_ADDED_MIB} MiB more")],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    let repeats = run.choose(Run::REPEATS, 1);
    let mut contest = |cells: &[MetricSpec], asked: &[f64], watch: &dyn Fn() -> Result<Vec<f64>>| -> Result<()> {
        if run.wants("memory", cells) {
            let mut sides = [Side::new("Mortar", watch), Side::new("requirement", || Ok(asked.to_vec()))];
            let outcome = interleave("memory", repeats, &mut sides)?;
            figure.rows.extend(run.rows("memory", &outcome, cells));
        }
        Ok(())
    };
    contest(&[idle, large].concat(), &[MAX_IDLE_MIB, MAX_IDLE_MIB, MAX_ADDED_MIB, MAX_ADDED_MIB], &|| {
        large_files(run, total)
    })?;
    contest(&small, &[MAX_ADDED_MIB, MAX_ADDED_MIB], &|| small_files(run, files))?;
    Ok(vec![figure])
}

/// Idle resident and anonymous, then added anonymous and resident, in MiB.
fn large_files(run: &Run, total: u64) -> Result<Vec<f64>> {
    let (served, idle) = idle_server(run)?;
    let imported = AtomicU64::new(0);
    let work = || runtime().and_then(|runtime| runtime.block_on(import(&served, total, &imported)));
    let [anonymous, resident] = measure_added(&served, idle, &imported, work)?;
    Ok(vec![mib(idle.resident), mib(idle.anonymous), anonymous, resident])
}

/// Added anonymous and resident, in MiB.
fn small_files(run: &Run, files: usize) -> Result<Vec<f64>> {
    let tree = run.directory("tree")?;
    create_tree(tree.path(), files)?;
    let (served, idle) = idle_server(run)?;
    let work = || ["/first", "/second"].iter().try_for_each(|prefix| import_tree(&served, tree.path(), prefix));
    measure_added(&served, idle, &AtomicU64::new(0), work).map(Vec::from)
}

fn idle_server(run: &Run) -> Result<(MortarServer, Memory)> {
    let served = MortarServer::start(run, Engine::Durable)?;
    thread::sleep(Duration::from_secs(2));
    let idle = served.server.memory()?;
    Ok((served, idle))
}

/// Creates a tree of small files with different contents.
fn create_tree(root: &Path, files: usize) -> Result<()> {
    let noise: Vec<u8> = (0..1 << 17).map(|at: usize| (at * 131 + at / 251) as u8).collect();
    for number in 0..files {
        let directory = root.join(format!("{}/{}", number / (FILES_PER_DIRECTORY * 64), number / FILES_PER_DIRECTORY));
        if number.is_multiple_of(FILES_PER_DIRECTORY) {
            fs::create_dir_all(&directory)?;
        }
        let from = number % (1 << 16);
        fs::write(
            directory.join(format!("file-{number}.txt")),
            &noise[from..from + TREE_SIZES[number % TREE_SIZES.len()]],
        )?;
    }
    Ok(())
}

/// Imports a tree with the command line.
fn import_tree(served: &MortarServer, tree: &Path, prefix: &str) -> Result<()> {
    let mut command = served.command()?;
    command.args(["--quiet", "import"]).arg(tree).args(["--prefix", prefix]).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.spawn().and_then(|mut import: Child| import.wait())?;
    if status.success() { Ok(()) } else { Err(format!("mortar import ended with {status}").into()) }
}

/// The largest increase of anonymous and resident memory over `idle` while `work` runs, in MiB.
fn measure_added(
    served: &MortarServer,
    idle: Memory,
    imported: &AtomicU64,
    work: impl FnOnce() -> Result<()>,
) -> Result<[f64; 2]> {
    let done = AtomicBool::new(false);
    let peak = thread::scope(|scope| {
        let watcher = scope.spawn(|| sample_peak(served, &done, imported));
        let result = work();
        done.store(true, Ordering::Relaxed);
        let peak = watcher.join().map_err(|_| "the watcher panicked")?;
        result.and(peak)
    })?;
    Ok([mib(peak.anonymous.saturating_sub(idle.anonymous)), mib(peak.resident.saturating_sub(idle.resident))])
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The largest memory until the import is done.
fn sample_peak(served: &MortarServer, done: &AtomicBool, imported: &AtomicU64) -> Result<Memory> {
    let (mut peak, mut samples) = (Memory::default(), 0_u32);
    while !done.load(Ordering::Relaxed) {
        let now = served.server.memory()?;
        peak.resident = peak.resident.max(now.resident);
        peak.anonymous = peak.anonymous.max(now.anonymous);
        samples += 1;
        if samples.is_multiple_of(1000) {
            let imported = match imported.load(Ordering::Relaxed) / MIB {
                0 => String::new(),
                mib => format!("{mib} MiB imported, "),
            };
            progress::line(format_args!("memory: {imported}peak {} KiB anonymous", peak.anonymous));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(peak)
}

/// Imports files with `total` bytes.
async fn import(served: &MortarServer, total: u64, imported: &AtomicU64) -> Result<()> {
    let cluster = served.connect().await?;
    let noise: Bytes = (0..SMALL_FILE_BYTES).map(|at| (at * 131 + at / 251) as u8).collect::<Vec<u8>>().into();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for number in 0_u64.. {
        if imported.load(Ordering::Relaxed) + bytes as u64 >= total {
            break;
        }
        let size = SIZES[number as usize % SIZES.len()];
        if size <= SMALL_FILE_BYTES {
            batch.push((number, Content::Inline(noise.slice(..size))));
            bytes += size;
        } else {
            let mut writer = cluster.content_writer(None);
            for _ in 0..size / SMALL_FILE_BYTES {
                writer.write(noise.clone()).await?;
            }
            batch.push((number, Content::Staged(writer.finish().await?)));
            imported.fetch_add(size as u64, Ordering::Relaxed);
        }
        if bytes >= TRANSACTION_BYTES {
            store(&cluster, &std::mem::take(&mut batch)).await?;
            imported.fetch_add(bytes as u64, Ordering::Relaxed);
            bytes = 0;
        }
    }
    store(&cluster, &batch).await
}

/// The bytes of a file.
enum Content {
    Inline(Bytes),
    Staged(StagedContent),
}

/// Imports files in one transaction: an object, its attributes and its name for each.
async fn store(cluster: &Client, files: &[(u64, Content)]) -> Result<()> {
    let store_all = |t: Transaction| async move {
        for (number, content) in files {
            let blob = match content {
                Content::Inline(data) => t.create_blob(data.clone())?,
                Content::Staged(staged) => t.create_blob_from(*staged)?,
            };
            t.set_attribute(blob, "mode", Some("100644".into())).await?;
            t.set_attribute(blob, "mtime", Some("2026-01-01T00:00:00Z".into())).await?;
            t.bind(&format!("import/{}/{number}", number / 100), blob).await?;
        }
        Ok(())
    };
    Ok(cluster.transact(store_all).await?)
}
