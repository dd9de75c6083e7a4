//! Reads of small values in process (`Client::open`), all in memory, compared with bare LMDB.

use std::time::Duration;

use bytes::Bytes;
use client::blocking;
use model::Oid;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::hammer::hammer;
use crate::load::Data;
use crate::rival::lmdb::Lmdb;
use crate::run::{MetricSpec, Run};

const SIZE: usize = 1024;
const THREADS: [usize; 2] = [1, 2];
/// Objects of one transaction while the store is filled.
const FILL_BATCH: usize = 256;
/// Reads that are timed together.
const READS_PER_SAMPLE: u64 = 64;

/// Measures reads of the newest commit.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let objects = run.choose(200_000, 50_000);
    let duration = run.choose(Duration::from_secs(3), Duration::from_millis(800));
    let data = Data::new(objects, SIZE);
    let directory = run.directory("get")?;
    let client = blocking::Client::open(directory.path().join("mortar"))?;
    let oids = create_all(&client, &data)?;
    let pairs = oids.iter().enumerate().map(|(index, oid)| (oid.to_bytes(), data.value(index)));
    let lmdb = Lmdb::create(&directory.path().join("lmdb"), pairs)?;
    let world = Fixture { client, lmdb, oids, data, duration };
    let mut figure = Figure {
        id: "get",
        title: "reads of 1 KB in process",
        about: "Random reads of objects that are all in memory, each checked for its length and key. Mortar's are blocking \
                calls of the client of a cluster in this process, which keeps copies that a commit of anybody invalidates. \
                LMDB has the same keys and values, which are copied out; to see the newest commit, each of its reads \
                needs a read transaction of its own."
            .into(),
        paper: "",
        parameters: vec![format!("{objects} objects of {SIZE} B, {:.1} s a run", duration.as_secs_f64())],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for threads in THREADS {
        let case = format!("get 1 KB, {threads} thread{}", if threads == 1 { "" } else { "s" });
        let cells = [MetricSpec {
            point: case.clone(),
            case,
            panel: "reads/s".into(),
            unit: "reads/s",
            better: Better::Higher,
            target_ratio: Some(0.8),
        }];
        if run.wants("get", &cells) {
            let mut sides = [
                Side::new("Mortar", || world.measure_mortar(threads)),
                Side::new("LMDB", || world.measure_lmdb(threads)),
            ];
            let outcome = interleave(&cells[0].case, Run::REPEATS, &mut sides)?;
            figure.rows.extend(run.rows("get", &outcome, &cells));
        }
    }
    world.client.shutdown()?;
    Ok(vec![figure])
}

/// Creates an object for each value.
fn create_all(client: &blocking::Client, data: &Data) -> Result<Vec<Oid>> {
    let mut oids = Vec::with_capacity(data.keys());
    for first in (0..data.keys()).step_by(FILL_BATCH) {
        let (created, transaction) = client.transact(|t| {
            let keys = first..(first + FILL_BATCH).min(data.keys());
            let created = keys.map(|key| t.create_blob(Bytes::copy_from_slice(data.value(key))));
            Ok((created.collect::<client::Result<Vec<Oid>>>()?, t.clone()))
        })?;
        for oid in created {
            oids.push(transaction.real_oid(oid).ok_or("a created object has no identifier")?);
        }
    }
    Ok(oids)
}

/// The same objects on both sides.
struct Fixture {
    client: blocking::Client,
    lmdb: Lmdb,
    oids: Vec<Oid>,
    data: Data,
    duration: Duration,
}

impl Fixture {
    fn measure_mortar(&self, threads: usize) -> Result<Vec<f64>> {
        let measured = hammer(threads, self.duration, READS_PER_SAMPLE, |thread| {
            let (client, mut next) = (self.client.clone(), self.random_indexes(thread));
            Ok(move || {
                let index = next();
                self.check(index, client.get(self.oids[index])?.map(|object| object.data))
            })
        })?;
        Ok(vec![measured.rate])
    }

    fn measure_lmdb(&self, threads: usize) -> Result<Vec<f64>> {
        let measured = hammer(threads, self.duration, READS_PER_SAMPLE, |thread| {
            let mut next = self.random_indexes(thread);
            Ok(move || {
                let index = next();
                self.check(index, self.lmdb.get(self.oids[index].to_bytes())?)
            })
        })?;
        Ok(vec![measured.rate])
    }

    /// The objects that a thread reads.
    fn random_indexes(&self, thread: usize) -> impl FnMut() -> usize + use<> {
        let (mut random, objects) = (SmallRng::seed_from_u64(thread as u64), self.oids.len());
        move || random.random_range(0..objects)
    }

    fn check(&self, index: usize, value: Option<Bytes>) -> Result<()> {
        let value = value.ok_or_else(|| format!("object {} does not exist", self.oids[index]))?;
        self.data.check(index, &value, false)
    }
}
