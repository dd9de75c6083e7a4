//! Reads of small values in process, all in memory, compared with the LMDB below the store.

use std::time::Duration;

use bytes::Bytes;
use model::Oid;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use store::Store;

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::hammer::hammer;
use crate::load::Data;
use crate::mortar::embedded;
use crate::rival::lmdb::Lmdb;
use crate::run::{MetricSpec, Run};

const SIZE: usize = 1024;
const THREADS: [usize; 2] = [1, 2];
/// Reads that are timed together.
const READS_PER_SAMPLE: u64 = 64;

/// The state that reads see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadView {
    /// The newest commit.
    Newest,
    /// A snapshot or transaction that all reads of a thread share.
    Snapshot,
}

/// Measures reads of the newest commit, and of one snapshot.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let objects = run.choose(200_000, 50_000);
    let duration = run.choose(Duration::from_secs(3), Duration::from_millis(800));
    let data = Data::new(objects, SIZE);
    let directory = run.directory("get")?;
    let (store, oids) = embedded::create_filled(&directory.path().join("mortar"), &data)?;
    let pairs = oids.iter().enumerate().map(|(index, oid)| (oid.to_bytes(), data.value(index)));
    let lmdb = Lmdb::create(&directory.path().join("lmdb"), pairs)?;
    let world = Fixture { store, lmdb, oids, data, duration };
    let mut figure = Figure {
        id: "get",
        title: "reads of 1 KB in process",
        about: "Random reads of objects that are all in memory, each copied out and checked for its length and key. LMDB \
                has the same keys and values. To see the newest commit, each LMDB read needs a read transaction of its \
                own; with a lasting one (or one that is reset and renewed), LMDB sees the state at its beginning. Mortar's \
                counterpart is a snapshot."
            .into(),
        paper: "",
        parameters: vec![format!("{objects} objects of {SIZE} B, {:.1} s a run", duration.as_secs_f64())],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for threads in THREADS {
        for sees in [ReadView::Newest, ReadView::Snapshot] {
            let of = if sees == ReadView::Newest { "" } else { " of one snapshot" };
            let case = format!("get 1 KB{of}, {threads} thread{}", if threads == 1 { "" } else { "s" });
            let cells = [MetricSpec {
                point: case.clone(),
                case,
                panel: "reads/s".into(),
                unit: "reads/s",
                better: Better::Higher,
                target_ratio: (sees == ReadView::Newest).then_some(0.8),
            }];
            if run.wants("get", &cells) {
                let mut sides = [
                    Side::new("Mortar", || world.measure_mortar(threads, sees)),
                    Side::new("LMDB", || world.measure_lmdb(threads, sees)),
                ];
                let outcome = interleave(&cells[0].case, Run::REPEATS, &mut sides)?;
                figure.rows.extend(run.rows("get", &outcome, &cells));
            }
        }
    }
    Ok(vec![figure])
}

/// The same objects on both sides.
struct Fixture {
    store: Store,
    lmdb: Lmdb,
    oids: Vec<Oid>,
    data: Data,
    duration: Duration,
}

impl Fixture {
    fn measure_mortar(&self, threads: usize, sees: ReadView) -> Result<Vec<f64>> {
        let measured = hammer(threads, self.duration, READS_PER_SAMPLE, |thread| {
            let snapshot = if sees == ReadView::Snapshot { Some(self.store.snapshot()?) } else { None };
            let mut next = self.random_indexes(thread);
            Ok(move || {
                let index = next();
                let oid = self.oids[index];
                let value = match &snapshot {
                    Some(snapshot) => snapshot.get(oid, SIZE)?,
                    None => self.store.get(oid, SIZE)?,
                };
                self.check(index, value.and_then(|(_, content)| content))
            })
        })?;
        Ok(vec![measured.rate])
    }

    fn measure_lmdb(&self, threads: usize, sees: ReadView) -> Result<Vec<f64>> {
        let measured = hammer(threads, self.duration, READS_PER_SAMPLE, |thread| {
            let transaction = if sees == ReadView::Snapshot { Some(self.lmdb.transaction()?) } else { None };
            let mut next = self.random_indexes(thread);
            Ok(move || {
                let index = next();
                let key = self.oids[index].to_bytes();
                let value = match &transaction {
                    Some(transaction) => self.lmdb.get_in(transaction, key)?,
                    None => self.lmdb.get(key)?,
                };
                self.check(index, value)
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
