//! A server, its clients, and what they have committed.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{AdminClient, Bytes, Client, Usage};
use mortar_tests::{Server, TEST_TIMEOUT, wait};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::client_process::start_put;
use crate::disk;
use crate::slots::{Content, Slot};
use crate::worker::{Counts, POOL_BYTES, Worker, cut, delete};

const WORKERS: usize = 4;
/// Leases end after a second, and the small buffer is installed often, so that chunks are freed between kills.
const SETTINGS: [&str; 4] = ["--upload-lease-s", "1", "--buffer-mib", "4"];
/// The longest time until a server, or a client process, is killed.
const SERVER_LIFE: Duration = Duration::from_millis(200);
const CLIENT_LIFE: Duration = Duration::from_millis(80);
/// The longest time until a server is killed while it frees what is left: leases end and two installations follow.
const FREEING_LIFE: Duration = Duration::from_secs(5);
/// The largest upload of a client process, and the names that it uses.
const PROCESS_BYTES: usize = 12 << 20;
const PROCESS_SLOTS: usize = 2;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) struct World {
    server: Server,
    runtime: Runtime,
    client: Client,
    workers: Vec<Worker>,
    /// The names of client processes.
    slots: Vec<Slot>,
    rng: StdRng,
    pool: Bytes,
    counts: Arc<Counts>,
    checks: u64,
}

impl World {
    pub(crate) fn start(seed: u64) -> Self {
        let server = Server::start(&SETTINGS);
        let runtime = Runtime::new().unwrap();
        let client = runtime.block_on(Client::connect(&server.url())).unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let mut pool = vec![0; POOL_BYTES];
        rng.fill_bytes(&mut pool);
        let pool = Bytes::from(pool);
        let workers = (0..WORKERS).map(|number| Worker::new(number, rng.random(), pool.clone())).collect();
        let slots = (0..PROCESS_SLOTS).map(|number| Slot::new(format!("/process/{number}"))).collect();
        Self { server, runtime, client, workers, slots, rng, pool, counts: Arc::default(), checks: 0 }
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> String {
        let Counts { committed, abandoned, failed, doubtful } = &*self.counts;
        let [committed, abandoned, failed, doubtful] =
            [committed, abandoned, failed, doubtful].map(|counter| counter.load(Ordering::Relaxed));
        format!("{committed} commits, {abandoned} abandoned uploads, {failed} failures, {doubtful} unknown outcomes")
    }

    /// A random part of a time.
    fn part_of(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random())
    }

    /// Kills the server while all workers are busy, and starts it again.
    pub(crate) fn kill_server(&mut self) {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |mut worker: Worker| {
            let (client, stop, counts) = (self.client.clone(), stop.clone(), self.counts.clone());
            self.runtime.spawn(async move {
                worker.work(&client, &stop, &counts).await;
                worker
            })
        };
        let tasks: Vec<_> = std::mem::take(&mut self.workers).into_iter().map(start).collect();
        thread::sleep(self.part_of(SERVER_LIFE));
        stop.store(true, Ordering::Relaxed);
        self.server.kill();
        self.server.restart();
        for task in tasks {
            let ended = self.runtime.block_on(async { timeout(TEST_TIMEOUT, task).await });
            let mut worker =
                ended.unwrap_or_else(|_| panic!("a call of a client does not end after a restart")).unwrap();
            // Outside of the runtime: the client does not abort these uploads.
            worker.abandoned.clear();
            self.workers.push(worker);
        }
    }

    /// Kills a client process while it uploads.
    pub(crate) fn kill_client(&mut self) {
        let at = self.rng.random_range(0..self.slots.len());
        let bytes = cut(&mut self.rng, &self.pool, PROCESS_BYTES);
        let mut process = start_put(&self.server, &self.slots[at].path, &bytes);
        thread::sleep(self.part_of(CLIENT_LIFE));
        // It may have ended.
        let _ = process.kill();
        let ended = wait(&mut process, TEST_TIMEOUT).unwrap();
        let after = Some(Content::from_upload(bytes));
        if ended.success() {
            self.slots[at].set(after);
            Counts::add(&self.counts.committed);
        } else {
            assert!(ended.signal().is_some(), "the client process failed: {ended}");
            self.slots[at].set_doubtful(after);
            Counts::add(&self.counts.doubtful);
        }
    }

    fn all_slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.workers.iter_mut().flat_map(|worker| &mut worker.slots).chain(&mut self.slots)
    }

    /// Reads all contents: rule 1.
    pub(crate) fn check_contents(&mut self) {
        let Self { runtime, client, workers, slots, .. } = self;
        let all = workers.iter_mut().flat_map(|worker| &mut worker.slots).chain(slots);
        runtime.block_on(async {
            for slot in all {
                slot.check(client).await;
            }
        });
    }

    /// Waits until the leases have ended, and compares what is left with what was committed: rule 2. Every second time the server is killed
    /// meanwhile.
    ///
    /// # Panics
    /// If something else is left.
    pub(crate) fn check_that_nothing_is_left(&mut self) {
        self.delete_changed();
        self.checks += 1;
        if self.checks.is_multiple_of(2) {
            thread::sleep(self.part_of(FREEING_LIFE));
            self.server.kill();
            self.server.restart();
        }
        let contents: Vec<&Content> = self.all_slots().filter_map(|slot| slot.content()).collect();
        let bytes: u64 = contents.iter().map(|content| content.bytes.len() as u64).sum();
        let in_files: u64 = contents.iter().map(|content| content.bytes_in_files()).sum();
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let (Usage { bytes: used, staged_bytes: staged, .. }, data) = (self.usage(), self.server.data());
            let found = disk::blob_bytes(&data);
            if (used, staged, found) == (bytes, 0, in_files) {
                break;
            }
            assert!(
                Instant::now() < until,
                "{used} bytes of objects instead of {bytes}, {staged} staged bytes, {found} bytes in blob files instead of {in_files}: {:?}",
                disk::files(&data)
            );
            thread::sleep(POLL_INTERVAL);
        }
        self.scrub();
        self.check_contents();
    }

    /// Deletes contents of which it is not known what they have in blob files.
    fn delete_changed(&mut self) {
        let client = self.client.clone();
        let changed: Vec<String> = self
            .all_slots()
            .filter(|slot| slot.content().is_some_and(|content| content.is_changed))
            .map(|slot| {
                slot.set(None);
                slot.path.clone()
            })
            .collect();
        self.runtime.block_on(async {
            for path in changed {
                client.transact(|t| delete(t, path.clone())).await.unwrap();
            }
        });
    }

    fn admin(&self) -> AdminClient {
        self.runtime.block_on(AdminClient::connect(&self.server.url())).unwrap()
    }

    /// What the objects and uploads of the space take.
    fn usage(&self) -> Usage {
        let admin = self.admin();
        let usages = self.runtime.block_on(admin.space_usages(Some("main"))).unwrap();
        assert_eq!((usages.len(), usages[0].unknown_nodes), (1, 0));
        usages[0].total()
    }

    fn scrub(&self) {
        let report = self.server.run(&["scrub", "--json"]);
        assert_eq!(report.code, 0, "{} {}", report.text(), report.stderr);
    }
}
