//! TODS figures 12 and 13: reads that are hits in a cache, at the peer server and in the client's process.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use client::{Client, IsolationLevel, PlacementHint};
use model::{ClassId, Object, Oid};

use super::cluster::{RunningCluster, Storage, commit};
use super::reads::{CONNECTIONS, FilledCluster, LoadedRedis, PIPELINING, Unit, by_size, duration, object_count};
use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::load::{Data, LoadPlan, Order};
use crate::mortar::server::runtime;
use crate::run::{MetricSpec, Run};

/// The required time of a hit in process, in nanoseconds.
const TARGET_NS: f64 = 200.0;
/// Objects in the cache of a client.
const CACHED_OBJECTS: usize = 1_000;

/// Hits of 1 KB.
pub(super) fn hits(run: &Run) -> Result<Figure> {
    let data = Data::new(object_count(1), 1024);
    let mut figure = Figure {
        id: "tods-12",
        title: "object-cache hits of 1 KB",
        about: "Random reads that the peer server answers from its object cache, which is kept coherent with the brick; and reads \
                of objects whose pages a client has in its own cache, outside of transactions and within one, beside the \
                same reads of a plain hash map."
            .into(),
        paper: "13,392 reads/s on 36 nodes: a fifth more than in memory, four times as many as from disk.",
        parameters: vec![
            format!("{CONNECTIONS} connections, {:.2} s a run after a tenth of warm-up", duration(run).as_secs_f64()),
            format!("in process: one thread, {CACHED_OBJECTS} objects of 1 KB"),
        ],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    let mortar = FilledCluster::start(run, 1, Storage::InMemory, &data)?;
    let redis = LoadedRedis::start(run, &data)?;
    let at = mortar.cluster.peers();
    for pipelining in PIPELINING {
        let plan = LoadPlan { connections: CONNECTIONS, pipelining, order: Order::Random(duration(run)) };
        let cells = [MetricSpec {
            case: format!("object-cache hits of 1 KB at a peer server, pipelining {pipelining}"),
            panel: "hits/s".into(),
            point: format!("pipelining {pipelining}"),
            unit: "hits/s",
            better: Better::Higher,
            target_ratio: Some(1.0),
        }];
        let mut sides = [
            Side::new("Mortar", || Ok(vec![mortar.reads(&at, &data, true, plan)?])),
            Side::new("Redis", || Ok(vec![redis.reads(&data, plan)?])),
        ];
        let outcome = interleave(&format!("tods-12, pipelining {pipelining}"), Run::REPEATS, &mut sides)?;
        figure.rows.extend(run.rows("tods-12", &outcome, &cells));
    }
    drop(redis);
    in_process(run, &mortar.cluster, &data, &mut figure)?;
    Ok(figure)
}

/// Adds the rows of hits in the client's process.
fn in_process(run: &Run, cluster: &RunningCluster, data: &Data, figure: &mut Figure) -> Result<()> {
    let runtime = runtime()?;
    let (cluster, oids) = runtime.block_on(async {
        let cluster = cluster.connect().await?;
        let oids = create_cached(&cluster, data).await?;
        Ok::<_, crate::BoxedError>((cluster, oids))
    })?;
    let map: HashMap<Oid, Object> = oids.iter().enumerate().map(|(key, oid)| (*oid, object(data, key))).collect();
    let rounds = run.choose(2_000, 200);
    let timed = |begun: Instant| vec![begun.elapsed().as_secs_f64() * 1e9 / (rounds * oids.len()) as f64];
    for within in [false, true] {
        let point = if within { "in a transaction" } else { "outside of transactions" };
        let cells = [MetricSpec {
            case: format!("page-cache hit in process, {point}"),
            panel: "ns a hit".into(),
            point: point.into(),
            unit: "ns",
            better: Better::Lower,
            target_ratio: Some(1.0),
        }];
        let mortar = || {
            runtime.block_on(async {
                let transaction = cluster.begin(IsolationLevel::Optimistic);
                let begun = Instant::now();
                for _ in 0..rounds {
                    for oid in &oids {
                        let found = if within { transaction.get(*oid).await? } else { cluster.get(*oid).await? };
                        black_box(found.ok_or("a cached object is missing")?);
                    }
                }
                let timed = timed(begun);
                transaction.abort();
                Ok(timed)
            })
        };
        let hash_map = || {
            let begun = Instant::now();
            for _ in 0..rounds {
                for oid in &oids {
                    black_box(map.get(oid).cloned().ok_or("an object is not in the map")?);
                }
            }
            Ok(timed(begun))
        };
        let mut sides = [
            Side::new("Mortar", mortar),
            Side::new("200 ns, the requirement", || Ok(vec![TARGET_NS])),
            Side::new("plain hash map", hash_map).for_reference(),
        ];
        let outcome = interleave(&format!("tods-12, in process, {point}"), Run::REPEATS, &mut sides)?;
        figure.rows.extend(run.rows("tods-12", &outcome, &cells));
    }
    Ok(())
}

fn object(data: &Data, key: usize) -> Object {
    Object::blob(bytes::Bytes::copy_from_slice(data.value(key)))
}

/// Creates objects and reads them once.
async fn create_cached(cluster: &Client, data: &Data) -> Result<Vec<Oid>> {
    let mut oids = Vec::with_capacity(CACHED_OBJECTS);
    for first in (0..CACHED_OBJECTS).step_by(100) {
        let transaction = cluster.begin(IsolationLevel::Optimistic);
        let made = (first..first + 100)
            .map(|key| Ok(transaction.create_object(ClassId::NONE, object(data, key), PlacementHint::Anywhere)?))
            .collect::<Result<Vec<Oid>>>()?;
        commit(&transaction).await?;
        for oid in made {
            oids.push(transaction.real_oid(oid).ok_or("a created object has no identifier")?);
        }
    }
    for oid in &oids {
        cluster.get(*oid).await?;
    }
    Ok(oids)
}

/// Hits of all sizes.
pub(super) fn hits_by_size(run: &Run) -> Result<Figure> {
    let mut figure = Figure {
        id: "tods-13",
        title: "payload of object-cache hits of 1 to 128 KB",
        about: "As in tods-12 at the peer server, pipelining 1.".into(),
        paper: "A fifth more than from memory at 1 KB.",
        parameters: vec![format!("{CONNECTIONS} connections, {:.2} s a run", duration(run).as_secs_f64())],
        shape: Shape::Lines,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    by_size(run, &mut figure, Storage::InMemory, true, &[Unit::Bytes])?;
    Ok(figure)
}
