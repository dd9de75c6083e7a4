//! A directory of ten million names: its first thousand names, and names that 16 clients create in it, beside 16 directories.

use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Oid, Transaction};
use tokio::task::JoinSet;

use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Row, Shape, median};
use crate::mortar::commit_new;
use crate::mortar::server::{Engine, MortarServer, runtime};
use crate::progress;
use crate::run::{MetricSpec, Run};
use crate::{BoxedError, Result};

/// Names that are listed, how often, and by when they must be there.
const LISTED: usize = 1_000;
const LISTINGS: usize = 21;
const LISTING_MS: f64 = 10.0;
/// Names of one transaction while the directory is filled, and transactions at a time.
const FILL_BATCH: u64 = 1_000;
const FILLERS: u64 = 16;
/// Clients that create, and the bytes of their objects.
const CLIENTS: usize = 16;
const SIZE: usize = 64;
const LARGE: &str = "large";
const ID: &str = "names";

/// Measures listing and creating.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let names: u64 = run.choose(10_000_000, 100_000);
    let duration = run.choose(Duration::from_secs(10), Duration::from_secs(1));
    Ok(vec![Figure {
        id: ID,
        title: "a large directory",
        about: format!(
            "mortar dev on the disk, clients of the library on its Unix socket. A directory gets {names} names. Then its first {LISTED} \
             are listed {LISTINGS} times, and {CLIENTS} clients each create objects of {SIZE} bytes with a name, one in a durable \
             transaction: all in this directory, or each in a directory of its own."
        ),
        paper: "",
        parameters: vec![format!("{names} names; {} s a run", duration.as_secs())],
        shape: Shape::Bars,
        rows: measure_rows(run, names, duration)?,
        skipped: Vec::new(),
    }])
}

/// The rows of the selected cases.
fn measure_rows(run: &Run, names: u64, duration: Duration) -> Result<Vec<Row>> {
    let listing = format!("first {LISTED} names");
    let creates = [creates_spec()];
    let (is_listed, is_created) = (run.wants_case(ID, &listing), run.wants(ID, &creates));
    let mut rows = Vec::new();
    if !is_listed && !is_created {
        return Ok(rows);
    }
    let served = MortarServer::start(run, Engine::Durable)?;
    let runtime = runtime()?;
    let large = runtime.block_on(fill(&served, names))?;
    if is_listed {
        let listings = runtime.block_on(list(&served, large))?;
        progress::line(format_args!("names: the first {LISTED} in {:.2} ms", median(&listings)));
        rows.push(Row {
            case: listing.clone(),
            panel: "listing, ms".to_owned(),
            point: listing,
            unit: "ms",
            better: Better::Lower,
            rival_name: "requirement".to_owned(),
            mortar: listings,
            rival: vec![LISTING_MS; LISTINGS],
            target_ratio: Some(1.0),
        });
    }
    if is_created {
        let create = |in_one: bool| runtime.block_on(create_for(&served, in_one.then_some(large), duration));
        let mut sides = [
            Side::new("one directory", || Ok(vec![create(true)?])),
            Side::new("16 directories", || Ok(vec![create(false)?])),
        ];
        let outcome = interleave(ID, Run::REPEATS, &mut sides)?;
        rows.extend(run.rows(ID, &outcome, &creates));
    }
    Ok(rows)
}

fn creates_spec() -> MetricSpec {
    let case = format!("creates by {CLIENTS} clients");
    MetricSpec {
        panel: "creates/s".to_owned(),
        point: case.clone(),
        case,
        unit: "creates/s",
        better: Better::Higher,
        target_ratio: Some(0.9),
    }
}

/// Fills a directory with names of an object.
async fn fill(served: &MortarServer, names: u64) -> Result<Oid> {
    let client = served.connect().await?;
    let begun = Instant::now();
    let object = commit_new(&client, &[Bytes::from_static(&[0; SIZE])]).await?[0];
    let large = create_directory(&client, LARGE).await?;
    let (mut next, mut tasks) = (0, JoinSet::new());
    while next < names || !tasks.is_empty() {
        if next < names && (tasks.len() as u64) < FILLERS {
            let (client, from, until) = (client.clone(), next, (next + FILL_BATCH).min(names));
            tasks.spawn(async move { add_names(&client, large, object, from..until).await });
            next = until;
            if next.is_multiple_of(1_000_000) {
                progress::line(format_args!("names: {next} in {:.0?}", begun.elapsed()));
            }
            continue;
        }
        tasks.join_next().await.ok_or("no transaction is in flight")???;
    }
    progress::line(format_args!("names: {names} in {:.1?}", begun.elapsed()));
    Ok(large)
}

async fn create_directory(client: &Client, path: &str) -> Result<Oid> {
    client.transact(|t| async move { t.create_directory(path).await }).await?;
    // The commit has given it another identifier.
    client.resolve(path).await?.ok_or_else(|| format!("{path} has no name").into())
}

async fn add_names(client: &Client, large: Oid, object: Oid, numbers: std::ops::Range<u64>) -> Result<(), BoxedError> {
    let add_all = |t: Transaction| {
        let numbers = numbers.clone();
        async move {
            for number in numbers {
                t.put_entry(large, &format!("name-{number:08}"), object).await?;
            }
            Ok(())
        }
    };
    Ok(client.transact(add_all).await?)
}

/// How long it takes to list the first names, in milliseconds, each time.
async fn list(served: &MortarServer, large: Oid) -> Result<Vec<f64>> {
    let client = served.connect().await?;
    let mut times = Vec::new();
    for _ in 0..LISTINGS {
        let begun = Instant::now();
        let listed = client.entries(large, None, LISTED).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if listed.len() != LISTED {
            return Err(format!("{} names are listed instead of {LISTED}", listed.len()).into());
        }
    }
    Ok(times)
}

/// Creates per second of all clients together.
async fn create_for(served: &MortarServer, shared: Option<Oid>, duration: Duration) -> Result<f64> {
    let (mut clients, mut tasks) = (Vec::new(), JoinSet::new());
    for number in 0..CLIENTS {
        let client = served.connect().await?;
        let directory = match shared {
            Some(shared) => shared,
            None => create_directory(&client, &format!("own-{}-{number}", rand::random::<u64>())).await?,
        };
        clients.push((client, directory));
    }
    let begun = Instant::now();
    for (client, directory) in clients {
        tasks.spawn(async move {
            let mut created = 0_u64;
            while begun.elapsed() < duration {
                let name = format!("new-{}", rand::random::<u128>());
                let name = name.as_str();
                client
                    .transact(|t| async move {
                        let object = t.create_blob(Bytes::from_static(&[1; SIZE]))?;
                        t.add_entry(directory, name, object).await
                    })
                    .await?;
                created += 1;
            }
            Ok::<_, BoxedError>(created)
        });
    }
    let mut created = 0;
    while let Some(ended) = tasks.join_next().await {
        created += ended??;
    }
    Ok(created as f64 / begun.elapsed().as_secs_f64())
}
