//! The server's memory: idle, and while much is imported.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use model::{ClassId, Kind, Name, Oid, Op, Transaction};

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::mortar::embedded::created;
use crate::mortar::served::{Engine, Served, runtime};
use crate::process::Memory;
use crate::progress;
use crate::run::{Cell, Run};

const MIB: u64 = 1 << 20;
/// What is asked of an idle server, and of one that imports, above idle.
const IDLE_MIB: f64 = 30.0;
const ADDED_MIB: f64 = 64.0;
/// Sizes of the imported files, again and again: many small ones, few large ones.
const SIZES: [usize; 12] = {
    const K: usize = 1 << 10;
    [K, 4 * K, 4 * K, 16 * K, 2 * K, 64 * K, 8 * K, 256 * K, 32 * K, 1 << 20, 4 << 20, 32 << 20]
};
/// Files up to this size travel in a transaction with others, larger ones as uploads.
const SMALL: usize = 256 << 10;
const TRANSACTION: usize = 4 << 20;

/// Measures memory.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let total = run.choose(10 << 30, 1 << 30);
    let cell = |case: &str, panel: &str, bar| Cell {
        case: case.to_owned(),
        panel: panel.to_owned(),
        point: case.to_owned(),
        unit: "MiB",
        better: Better::Lower,
        bar,
    };
    let gib = total / (1 << 30);
    let cells = [
        cell("idle, resident", "idle, MiB", Some(1.0)),
        cell("idle, anonymous", "idle, MiB", None),
        cell(&format!("added by importing {gib} GiB, anonymous"), "importing, MiB", Some(1.0)),
        cell(&format!("added by importing {gib} GiB, resident"), "importing, MiB", None),
    ];
    let mut figure = Figure {
        id: "memory",
        title: "the server's memory",
        about: "mortar dev on a new store, sampled from /proc: idle for two seconds; then the peak while a client imports files \
                of 1 KiB to 32 MiB over the Unix socket. Resident pages include those of the memory-mapped B-tree, \
                which the kernel takes back whenever it needs them; anonymous ones are the server's own."
            .into(),
        paper: "",
        parameters: vec![format!("asked: idle at most {IDLE_MIB} MiB, importing at most {ADDED_MIB} MiB more")],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    if run.wants("memory", &cells) {
        let bars = vec![IDLE_MIB, IDLE_MIB, ADDED_MIB, ADDED_MIB];
        let mut sides =
            [Side::new("Mortar", || import_and_watch(run, total)), Side::new("what was asked", || Ok(bars.clone()))];
        let outcome = interleave("memory", run.choose(Run::REPEATS, 1), &mut sides)?;
        figure.rows = run.rows("memory", &outcome, &cells);
    }
    Ok(vec![figure])
}

/// Idle resident and anonymous, then added anonymous and resident, in MiB.
fn import_and_watch(run: &Run, total: u64) -> Result<Vec<f64>> {
    let served = Served::start(run, Engine::Durable)?;
    thread::sleep(Duration::from_secs(2));
    let idle = served.server.memory()?;
    let (done, imported) = (AtomicBool::new(false), AtomicU64::new(0));
    let peak = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&served, &done, &imported));
        let result = runtime().and_then(|runtime| runtime.block_on(import(&served, total, &imported)));
        done.store(true, Ordering::Relaxed);
        let peak = watcher.join().map_err(|_| "the watcher panicked")?;
        result.and(peak)
    })?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    Ok(vec![
        mib(idle.resident),
        mib(idle.anonymous),
        mib(peak.anonymous.saturating_sub(idle.anonymous)),
        mib(peak.resident.saturating_sub(idle.resident)),
    ])
}

/// The largest memory seen until the import is done.
fn watch(served: &Served, done: &AtomicBool, imported: &AtomicU64) -> Result<Memory> {
    let (mut peak, mut samples) = (Memory::default(), 0_u32);
    while !done.load(Ordering::Relaxed) {
        let now = served.server.memory()?;
        peak.resident = peak.resident.max(now.resident);
        peak.anonymous = peak.anonymous.max(now.anonymous);
        samples += 1;
        if samples.is_multiple_of(1000) {
            let mib = imported.load(Ordering::Relaxed) / MIB;
            progress::line(format_args!("memory: {mib} MiB imported, peak {} KiB anonymous", peak.anonymous));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(peak)
}

/// Imports files until `total` bytes are in.
async fn import(served: &Served, total: u64, imported: &AtomicU64) -> Result<()> {
    let client = served.connect().await?;
    let noise: Bytes = (0..SMALL).map(|at| (at * 131 + at / 251) as u8).collect::<Vec<u8>>().into();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for number in 0_u64.. {
        if imported.load(Ordering::Relaxed) + bytes as u64 >= total {
            break;
        }
        let size = SIZES[number as usize % SIZES.len()];
        if size <= SMALL {
            file(&client, &mut batch, number, noise.slice(..size));
            bytes += size;
        } else {
            let oid = file(&client, &mut batch, number, Bytes::new());
            let mut writer = client.writer();
            for _ in 0..size / SMALL {
                writer.write(noise.clone()).await?;
            }
            batch.push(Op::PutUpload { oid, upload: writer.finish().await? });
            imported.fetch_add(size as u64, Ordering::Relaxed);
        }
        if bytes >= TRANSACTION {
            created(client.commit(Transaction { ops: std::mem::take(&mut batch) }).await?)?;
            imported.fetch_add(bytes as u64, Ordering::Relaxed);
            bytes = 0;
        }
    }
    created(client.commit(Transaction { ops: batch }).await?)?;
    Ok(())
}

/// What importing one file does: an object, its attributes, its name.
fn file(client: &Client, batch: &mut Vec<Op>, number: u64, data: Bytes) -> Oid {
    let oid = Oid::temporary(client.space(), ClassId::NONE, number);
    let attribute =
        |key: &'static str, value: &'static str| Op::SetAttribute { oid, key: key.into(), value: value.into() };
    batch.extend([
        Op::Create { oid, kind: Kind::Blob, data, near: None },
        attribute("mode", "100644"),
        attribute("mtime", "2026-01-01T00:00:00Z"),
        Op::Bind { name: Name { space: client.space(), path: format!("import/{}/{number}", number / 100) }, oid },
    ]);
    oid
}
