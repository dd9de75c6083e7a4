//! Commits at full rate for ten minutes: latency, memory and disk must not grow after the first minute. Then the server is killed, and
//! commits at every logical node again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{CommitOutcome, IsolationLevel, Object, PlacementHint};
use hdrhistogram::Histogram;
use model::ClassId;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::figure::{Better, Figure, Row, Shape};
use crate::hammer::new_histogram;
use crate::mortar::server::{Engine, MortarServer, bytes_on_disk, runtime};
use crate::mortar::{commit_new, measure_clients, write_again};
use crate::progress;
use crate::run::Run;
use crate::{BoxedError, Result};

/// Clients, each of which writes its own object again and again, and the bytes of an object.
const CLIENTS: usize = 64;
const SIZE: usize = 64;
/// Windows of the run. The first one is warm-up, the second one is what the last one is compared with.
const WINDOWS: usize = 10;
/// By how much the last window may be worse than the second one.
const FLAT: f64 = 0.9;
/// Latencies scatter more than sizes.
const FLAT_LATENCY: f64 = 0.67;
/// By when a killed server must commit at every logical node.
const RESTART: Duration = Duration::from_secs(2);

/// What was measured in a window.
#[derive(Clone, Copy, Debug)]
struct Window {
    rate: f64,
    p99_us: f64,
    anonymous_mib: f64,
    resident_mib: f64,
    disk_mib: f64,
}

/// The cases: what the last window is compared with the second one by, and the restart.
const CASES: [&str; 6] = ["transactions", "p99", "anonymous memory", "resident memory", "disk", "restart"];

/// Measures the windows and the restart, whatever cases of them are selected.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let window = run.choose(Duration::from_secs(60), Duration::from_secs(2));
    let rows = match CASES.iter().any(|case| run.wants_case("endurance", case)) {
        true => measure_rows(run, window)?,
        false => Vec::new(),
    };
    Ok(vec![Figure {
        id: "endurance",
        title: "ten minutes of commits",
        about: format!(
            "{CLIENTS} clients of the library on the Unix socket of mortar dev each write an object of {SIZE} bytes of their own in \
             durable transactions, one after another. The last of {WINDOWS} windows is compared with the second one. Then the server is \
             killed and started again, and a transaction is committed at each logical node."
        ),
        paper: "",
        parameters: vec![format!("{} s a window", window.as_secs())],
        shape: Shape::Bars,
        rows,
        skipped: Vec::new(),
    }])
}

/// The rows of the selected cases.
fn measure_rows(run: &Run, window: Duration) -> Result<Vec<Row>> {
    let served = MortarServer::start(run, Engine::Durable)?;
    let windows = runtime()?.block_on(commit_for_ever(&served, window))?;
    let directory = served.kill()?;
    let begun = Instant::now();
    let served = MortarServer::start_in(directory, Engine::Durable)?;
    let nodes = runtime()?.block_on(commit_at_each_node(&served))?;
    let restarted = begun.elapsed();
    progress::line(format_args!("endurance: {nodes} logical nodes commit {restarted:.2?} after the restart"));
    let (early, late) = (windows[1], windows[WINDOWS - 1]);
    let row = |case: &str, unit, better, late: f64, early: f64, target| Row {
        case: case.to_owned(),
        panel: format!("{case}, {unit}"),
        point: case.to_owned(),
        unit,
        better,
        rival_name: "window 2".to_owned(),
        mortar: vec![late],
        rival: vec![early],
        target_ratio: Some(target),
    };
    let [transactions, p99, anonymous, resident, disk, restart] = CASES;
    let rows = vec![
        row(transactions, "transactions/s", Better::Higher, late.rate, early.rate, FLAT),
        row(p99, "µs", Better::Lower, late.p99_us, early.p99_us, FLAT_LATENCY),
        row(anonymous, "MiB", Better::Lower, late.anonymous_mib, early.anonymous_mib, FLAT),
        row(resident, "MiB", Better::Lower, late.resident_mib, early.resident_mib, FLAT),
        row(disk, "MiB", Better::Lower, late.disk_mib, early.disk_mib, FLAT),
        Row {
            rival_name: "requirement".to_owned(),
            ..row(restart, "s", Better::Lower, restarted.as_secs_f64(), RESTART.as_secs_f64(), 1.0)
        },
    ];
    Ok(rows.into_iter().filter(|row| run.wants_case("endurance", &row.case)).collect())
}

/// Commits from all clients, and measures each window.
async fn commit_for_ever(served: &MortarServer, window: Duration) -> Result<Vec<Window>> {
    let latencies = Rc::new(RefCell::new(new_histogram()?));
    let mut writers = Vec::new();
    for client in served.connect_many(CLIENTS).await? {
        let object = commit_new(&client, &[Bytes::from_static(&[0; SIZE])]).await?[0];
        writers.push(write_again(client, vec![object], SIZE, Rc::clone(&latencies)));
    }
    let measurement = async {
        let mut windows = Vec::new();
        for number in 1..=WINDOWS {
            windows.push(measure_window(served, window, &latencies, number).await?);
        }
        Ok(windows)
    };
    measure_clients(writers, measurement).await
}

async fn measure_window(
    served: &MortarServer,
    window: Duration,
    latencies: &RefCell<Histogram<u64>>,
    number: usize,
) -> Result<Window> {
    latencies.borrow_mut().reset();
    let begun = Instant::now();
    sleep(window).await;
    let (memory, disk) = (served.server.memory()?, bytes_on_disk(&MortarServer::data(&served.directory)?)?);
    let latencies = latencies.borrow();
    let measured = Window {
        rate: latencies.len() as f64 / begun.elapsed().as_secs_f64(),
        p99_us: latencies.value_at_quantile(0.99) as f64 / 1e3,
        anonymous_mib: memory.anonymous as f64 / 1024.0,
        resident_mib: memory.resident as f64 / 1024.0,
        disk_mib: disk as f64 / f64::from(1 << 20),
    };
    let Window { rate, p99_us, anonymous_mib, resident_mib, disk_mib } = measured;
    progress::line(format_args!(
        "endurance: window {number} of {WINDOWS}: {rate:.0} transactions/s, p99 {p99_us:.0} µs, {anonymous_mib:.1} MiB anonymous, \
         {resident_mib:.1} MiB resident, {disk_mib:.1} MiB on disk"
    ));
    Ok(measured)
}

/// Commits a transaction at each logical node. Returns how many there are.
async fn commit_at_each_node(served: &MortarServer) -> Result<usize> {
    let client = served.connect().await?;
    let mut commits = JoinSet::new();
    for node in client.nodes().to_vec() {
        let client = client.clone();
        commits.spawn(async move {
            let t = client.begin(IsolationLevel::Optimistic);
            t.create_object(ClassId::NONE, Object::blob(Bytes::from_static(b"again")), PlacementHint::At(node))?;
            match t.commit().await? {
                CommitOutcome::Committed(_) => Ok::<_, BoxedError>(()),
                other => Err(format!("a transaction at {node} ended with {other:?}").into()),
            }
        });
    }
    let mut count = 0;
    while let Some(committed) = commits.join_next().await {
        committed??;
        count += 1;
    }
    Ok(count)
}
