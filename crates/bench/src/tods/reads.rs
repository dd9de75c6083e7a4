//! TODS figures 7 to 11: reads of single objects, in memory and on disk, through peer servers and directly from a brick.

use std::time::Duration;

#[cfg(libdb)]
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use tempfile::TempDir;

use super::cluster::{RunningCluster, Storage};
use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
#[cfg(libdb)]
use crate::hammer::hammer;
use crate::load::mortar::{ObjectReads, read_requests};
use crate::load::postgres::{self, Postgres, TABLE};
use crate::load::redis::{self, Redis};
use crate::load::{Data, LoadPlan, Order, drive};
use crate::process::{Address, Server};
#[cfg(libdb)]
use crate::rival::berkeley::{Access, Berkeley, Force, Settings};
use crate::rival::{self, servers};
use crate::run::{MetricSpec, Run};

pub(super) const CONNECTIONS: usize = 50;
pub(super) const PIPELINING: [usize; 2] = [1, 16];
/// Objects of 1 KB of each brick. There are fewer larger ones, so that the total size is the same.
const OBJECTS: usize = 5_000;
pub(super) const SIZES: [usize; 5] = [1, 4, 16, 64, 128];

/// The number of objects of this size in KiB.
pub(super) fn object_count(kib: usize) -> usize {
    ((OBJECTS * 8 / kib).min(OBJECTS) / 16 * 16).max(64)
}

pub(super) fn duration(run: &Run) -> Duration {
    run.choose(Duration::from_secs(3), Duration::from_millis(350))
}

/// Redis with all objects.
pub(super) struct LoadedRedis {
    _server: Server,
    address: Address,
    _directory: TempDir,
}

impl LoadedRedis {
    pub(super) fn start(run: &Run, data: &Data) -> Result<Self> {
        let directory = run.directory("redis")?;
        let (server, address, _) = servers::redis(directory.path())?;
        let plan = LoadPlan { connections: 8, pipelining: 16, order: Order::Once };
        drive(&Redis::puts(), std::slice::from_ref(&address), &redis::puts(data), plan)?;
        Ok(Self { _server: server, address, _directory: directory })
    }

    pub(super) fn reads(&self, data: &Data, plan: LoadPlan) -> Result<f64> {
        Ok(drive(&Redis::gets(data.size()), std::slice::from_ref(&self.address), &redis::gets(data), plan)?.rate())
    }
}

/// PostgreSQL with a table of all objects.
struct LoadedPostgres {
    _server: Server,
    address: Address,
    _directory: TempDir,
}

impl LoadedPostgres {
    fn start(run: &Run, data: &Data) -> Result<Self> {
        let directory = run.directory("postgres")?;
        let (server, address) = servers::postgres(directory.path())?;
        let mut connection = postgres::dial(&address)?;
        postgres::run(&mut connection, &format!("CREATE TABLE {TABLE} (id bigint PRIMARY KEY, value bytea NOT NULL)"))?;
        // Random bytes cannot be compressed, so compression is off.
        postgres::run(&mut connection, &format!("ALTER TABLE {TABLE} ALTER COLUMN value SET STORAGE EXTERNAL"))?;
        for first in (0..data.keys()).step_by(64) {
            let row = |key: usize| {
                let hex: String = data.value(key).iter().map(|byte| format!("{byte:02x}")).collect();
                format!("({key}, '\\x{hex}')")
            };
            let rows: Vec<String> = (first..(first + 64).min(data.keys())).map(row).collect();
            postgres::run(&mut connection, &format!("INSERT INTO {TABLE} VALUES {}", rows.join(", ")))?;
        }
        postgres::run(&mut connection, &format!("VACUUM (ANALYZE, FREEZE) {TABLE}"))?;
        postgres::run(&mut connection, "CHECKPOINT")?;
        Ok(Self { _server: server, address, _directory: directory })
    }

    fn reads(&self, data: &Data, plan: LoadPlan) -> Result<f64> {
        let address = std::slice::from_ref(&self.address);
        Ok(drive(&Postgres::Gets(data.size()), address, &postgres::gets(data), plan)?.rate())
    }
}

/// Berkeley DB with all objects, in the benchmark's process.
#[cfg(libdb)]
struct LoadedBerkeley {
    settings: Settings,
    directory: TempDir,
}

#[cfg(libdb)]
impl LoadedBerkeley {
    fn start(run: &Run, data: &Data) -> Result<Self> {
        let access = Access::Btree;
        let settings =
            if data.size() > 4 << 10 { Settings::bulk(access, 256 << 20) } else { Settings::records(access) };
        let directory = run.directory("berkeley")?;
        let db = Berkeley::open(directory.path(), settings)?;
        for key in 0..data.keys() {
            let transaction = db.begin()?;
            transaction.put(&key.to_be_bytes(), data.value(key))?;
            transaction.commit(Force::Later)?;
        }
        db.force()?;
        db.close()?;
        Ok(Self { settings, directory })
    }

    /// Reads per second of one thread, because an environment without locks allows only one.
    fn reads(&self, run: &Run, data: &Data) -> Result<f64> {
        let measured = hammer(1, duration(run), 1, |_| {
            let db = Berkeley::open(self.directory.path(), self.settings)?;
            let (mut random, mut value) = (SmallRng::seed_from_u64(1), vec![0; data.size()]);
            Ok(move || {
                let key = random.random_range(0..data.keys());
                let length = db.get(&key.to_be_bytes(), 0, &mut value)?.ok_or("Berkeley DB has lost a key")?;
                data.check(key, &value[..length], false)
            })
        })?;
        Ok(measured.rate)
    }
}

/// The rivals of bricks with disks: PostgreSQL, and Berkeley DB for reference if it is installed, each with all objects.
struct DiskRivals {
    postgres: LoadedPostgres,
    #[cfg(libdb)]
    berkeley: LoadedBerkeley,
}

impl DiskRivals {
    fn start(run: &Run, data: &Data) -> Result<Self> {
        Ok(Self {
            postgres: LoadedPostgres::start(run, data)?,
            #[cfg(libdb)]
            berkeley: LoadedBerkeley::start(run, data)?,
        })
    }

    /// The sides; `value` converts reads per second to the metric.
    fn sides<'a>(
        &'a self,
        #[cfg_attr(not(libdb), expect(unused_variables, reason = "Berkeley DB is not installed"))] run: &'a Run,
        data: &'a Data,
        plan: LoadPlan,
        value: impl Fn(f64) -> Vec<f64> + Copy + 'a,
    ) -> Vec<Side<'a>> {
        vec![
            Side::new("PostgreSQL", move || Ok(value(self.postgres.reads(data, plan)?))),
            #[cfg(libdb)]
            Side::new("Berkeley DB in process, one thread", move || Ok(value(self.berkeley.reads(run, data)?)))
                .for_reference(),
        ]
    }
}

/// The path of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadPath {
    /// Directly from a single brick.
    Brick,
    /// Through this many peer servers to as many bricks.
    Peers(usize),
}

impl ReadPath {
    fn text(self) -> String {
        match self {
            Self::Brick => "directly from a brick".into(),
            Self::Peers(1) => "through a peer server".into(),
            Self::Peers(count) => format!("through {count} peer servers to {count} bricks"),
        }
    }
}

/// A cluster with all objects.
pub(super) struct FilledCluster {
    pub(super) cluster: RunningCluster,
    oids: Vec<model::Oid>,
}

impl FilledCluster {
    pub(super) fn start(run: &Run, nodes: usize, keeps: Storage, data: &Data) -> Result<Self> {
        let cluster = RunningCluster::start(run, nodes, nodes, keeps)?;
        let oids = cluster.fill(data)?;
        Ok(Self { cluster, oids })
    }

    /// Reads per second, with or without the object caches.
    pub(super) fn reads(&self, at: &[Address], data: &Data, cached: bool, plan: LoadPlan) -> Result<f64> {
        Ok(drive(&ObjectReads(data.size()), at, &read_requests(data, &self.oids, cached), plan)?.rate())
    }
}

fn parameters(run: &Run) -> Vec<String> {
    vec![
        format!(
            "{CONNECTIONS} connections from one thread of one generator, {:.2} s a run after a tenth of warm-up",
            duration(run).as_secs_f64()
        ),
        "caches of peer servers are not used; each process has its default settings".into(),
    ]
}

/// Reads of 1 KB from memory.
pub(super) fn in_memory(run: &Run) -> Result<Figure> {
    let mut figure = Figure {
        id: "tods-7",
        title: "in-memory reads of 1 KB",
        about: "Random reads past all caches: each is answered by the brick that has the object in memory. More bricks and \
                peer servers share the same cores here, so larger numbers cannot be faster; the gain on separate \
                machines is shown by the simulator's model."
            .into(),
        paper: "11,160 reads/s on 36 nodes, growing linearly with their number.",
        parameters: [parameters(run), vec!["Redis: no persistence".into()]].concat(),
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for by in [ReadPath::Brick, ReadPath::Peers(1), ReadPath::Peers(2)] {
        let nodes = if let ReadPath::Peers(count) = by { count } else { 1 };
        let data = Data::new(object_count(1) * nodes, 1024);
        let mortar = FilledCluster::start(run, nodes, Storage::InMemory, &data)?;
        let redis = LoadedRedis::start(run, &data)?;
        let at = if by == ReadPath::Brick { mortar.cluster.bricks() } else { mortar.cluster.peers() };
        for pipelining in PIPELINING {
            let plan = LoadPlan { connections: CONNECTIONS, pipelining, order: Order::Random(duration(run)) };
            let cells = [MetricSpec {
                case: format!("in-memory reads of 1 KB {}, pipelining {pipelining}", by.text()),
                panel: "reads/s".into(),
                point: format!("{}, pipelining {pipelining}", by.text()),
                unit: "reads/s",
                better: Better::Higher,
                target_ratio: match by {
                    ReadPath::Brick => Some(1.0),
                    ReadPath::Peers(1) => Some(0.6),
                    ReadPath::Peers(_) => None,
                },
            }];
            let mut sides = [
                Side::new("Mortar", || Ok(vec![mortar.reads(&at, &data, false, plan)?])),
                Side::new("Redis", || Ok(vec![redis.reads(&data, plan)?])),
            ];
            let outcome = interleave(&format!("tods-7, {}", cells[0].point), Run::REPEATS, &mut sides)?;
            figure.rows.extend(run.rows("tods-7", &outcome, &cells));
        }
    }
    Ok(figure)
}

/// Objects of all sizes from memory. The paper's figures 8 and 9 use the same reads.
pub(super) fn in_memory_by_size(run: &Run) -> Result<Figure> {
    let mut figure = Figure {
        id: "tods-8",
        title: "in-memory reads of 1 to 128 KB, and their payload (tods-9)",
        about: "As in tods-7 through one peer server, pipelining 1.".into(),
        paper: "1,332 reads/s and 170 MB/s of 128 KB on 36 nodes.",
        parameters: parameters(run),
        shape: Shape::Lines,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    by_size(run, &mut figure, Storage::InMemory, false, &[Unit::Reads, Unit::Bytes])?;
    Ok(figure)
}

/// The unit of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Reads,
    Bytes,
}

impl Unit {
    /// The name of the metric, and its unit.
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Reads => ("reads", "reads/s"),
            Self::Bytes => ("payload", "MB/s"),
        }
    }

    /// Converts reads per second of objects of this size.
    fn convert(self, rate: f64, size: usize) -> f64 {
        match self {
            Self::Reads => rate,
            Self::Bytes => rate * size as f64 / 1e6,
        }
    }
}

/// Adds the rows of all sizes, through one peer server.
pub(super) fn by_size(run: &Run, figure: &mut Figure, keeps: Storage, cached: bool, units: &[Unit]) -> Result<()> {
    for kib in SIZES {
        let data = Data::new(object_count(kib), kib << 10);
        let mortar = FilledCluster::start(run, 1, keeps, &data)?;
        let at = mortar.cluster.peers();
        let plan = LoadPlan { connections: CONNECTIONS, pipelining: 1, order: Order::Random(duration(run)) };
        let counted = |rate: f64| units.iter().map(|unit| unit.convert(rate, data.size())).collect();
        let cell = |unit: &Unit| {
            let (what, unit) = unit.text();
            MetricSpec {
                case: format!("{what} of {}, {kib} KB", figure.id),
                panel: format!("{what}, {unit} over size in KB"),
                point: kib.to_string(),
                unit,
                better: Better::Higher,
                target_ratio: None,
            }
        };
        let cells: Vec<MetricSpec> = units.iter().map(cell).collect();
        let side = Side::new("Mortar", || Ok(counted(mortar.reads(&at, &data, cached, plan)?)));
        let title = format!("{}, {kib} KB", figure.id);
        let outcome = if keeps == Storage::OnDisk {
            let disks = DiskRivals::start(run, &data)?;
            let mut sides = vec![side];
            sides.extend(disks.sides(run, &data, plan, counted));
            interleave(&title, Run::REPEATS, &mut sides)?
        } else {
            let redis = LoadedRedis::start(run, &data)?;
            let rival = Side::new("Redis", || Ok(counted(redis.reads(&data, plan)?)));
            interleave(&title, Run::REPEATS, &mut [side, rival])?
        };
        figure.rows.extend(run.rows(figure.id, &outcome, &cells));
    }
    Ok(())
}

/// Reads of 1 KB from disk.
pub(super) fn on_disk(run: &Run) -> Result<Figure> {
    let data = Data::new(object_count(1), 1024);
    let mortar = FilledCluster::start(run, 1, Storage::OnDisk, &data)?;
    let disks = DiskRivals::start(run, &data)?;
    let mut figure = Figure {
        id: "tods-10",
        title: "on-disk random reads of 1 KB",
        about: "Random reads of objects that a durable brick has on disk: directly, and through a peer server whose cache is not \
                used, which adds a process. So few objects are in the kernel's page cache on both sides, so the comparison is of the \
                path to the data. PostgreSQL answers a prepared SELECT by primary key. Berkeley DB is in the benchmark's process, where \
                nothing is sent."
            .into(),
        paper: "2,740 reads/s on 36 nodes: a third of those from memory.",
        parameters: [parameters(run), vec![format!("PostgreSQL: {}", servers::POSTGRES.join(", "))]].concat(),
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: rival::missing(),
    };
    for by in [ReadPath::Brick, ReadPath::Peers(1)] {
        let at = if by == ReadPath::Brick { mortar.cluster.bricks() } else { mortar.cluster.peers() };
        for pipelining in PIPELINING {
            let plan = LoadPlan { connections: CONNECTIONS, pipelining, order: Order::Random(duration(run)) };
            let point = format!("{}, pipelining {pipelining}", by.text());
            let cells = [MetricSpec {
                case: format!("on-disk reads of 1 KB {point}"),
                panel: "reads/s".into(),
                point: point.clone(),
                unit: "reads/s",
                better: Better::Higher,
                target_ratio: Some(3.0),
            }];
            let mut sides = vec![Side::new("Mortar", || Ok(vec![mortar.reads(&at, &data, false, plan)?]))];
            sides.extend(disks.sides(run, &data, plan, |rate| vec![rate]));
            let outcome = interleave(&format!("tods-10, {point}"), Run::REPEATS, &mut sides)?;
            figure.rows.extend(run.rows("tods-10", &outcome, &cells));
        }
    }
    Ok(figure)
}

/// Objects of all sizes from disk.
pub(super) fn on_disk_by_size(run: &Run) -> Result<Figure> {
    let mut figure = Figure {
        id: "tods-11",
        title: "payload of on-disk reads of 1 to 128 KB",
        about: "As in tods-10 through a peer server, pipelining 1.".into(),
        paper: "46 MB/s at 128 KB on 36 nodes.",
        parameters: parameters(run),
        shape: Shape::Lines,
        rows: Vec::new(),
        skipped: rival::missing(),
    };
    by_size(run, &mut figure, Storage::OnDisk, false, &[Unit::Bytes])?;
    Ok(figure)
}
