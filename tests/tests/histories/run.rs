//! One run: a cluster, clients that work while it fails, and the judgement when all is well again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::cluster::{Cluster, ClusterOptions, Decided, Level};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sim::history::{Kind, Outcome, Step};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};

use crate::ground::{Ground, Server};
use crate::judge::{self, Counts, Finals};
use crate::objects::{Objects, value};
use crate::plan::{Fault, Plan};
use crate::record::{Open, Record};
use crate::worker::{self, Client, Does};

/// How long anything may take when all is well.
const PATIENCE: Duration = Duration::from_secs(60);
/// Clients that write what is large, where disks are small.
const BALLAST: u64 = 3;
/// How long clients go on when all is well again.
const AFTER: Duration = Duration::from_secs(1);

/// What kind of run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) bricks: u64,
    pub(crate) peers: u64,
    /// Clients that do transactions, and clients that write single values.
    pub(crate) transactional: u64,
    pub(crate) writers: u64,
    /// Everything is refused while a brick is away.
    pub(crate) fail_stop: bool,
    /// Bricks have small disks, and clients write what is large.
    pub(crate) small_disks: bool,
    pub(crate) faults: &'static [Fault],
    /// For how long faults begin, and how long after one another on the average.
    pub(crate) length_ms: u64,
    pub(crate) gap_ms: u64,
    /// In the end all servers are killed at once, and come back.
    pub(crate) is_all_killed: bool,
    /// In the end one peer server is killed and never comes back.
    pub(crate) is_one_lost: bool,
}

impl Scenario {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            bricks: 3,
            peers: 2,
            transactional: 8,
            writers: 3,
            fail_stop: false,
            small_disks: false,
            faults: &[],
            length_ms: 8_000,
            gap_ms: 900,
            is_all_killed: false,
            is_one_lost: false,
        }
    }
}

/// Runs a scenario, and panics if something is wrong; the history is kept then.
pub(crate) async fn run(scenario: &Scenario, seed: u64) {
    let began = Instant::now();
    let mut world = match World::start(scenario, seed).await {
        Ok(world) => world,
        Err(why) => return println!("{}: skipped, for there are no small disks: {why}", scenario.name),
    };
    let result = world.whole(scenario).await;
    let (name, seconds) = (scenario.name, began.elapsed().as_secs_f32());
    if std::env::var_os("MORTAR_HISTORIES_DIR").is_some() {
        judge::keep(&format!("{name}-{seed}"), &world.record.history(), world.ground.dir());
    }
    match result {
        Ok(counts) => println!("{name}, seed {seed}: right in {seconds:.1} s: {counts}"),
        Err(why) => {
            let history = world.record.history();
            let path = judge::keep(&format!("{name}-{seed}"), &history, world.ground.dir());
            panic!("{name}, seed {seed}: {why}\nthe history: {}\nthe plan: {:?}", path.display(), world.plan);
        }
    }
}

/// What a client has not found out.
type Opens = Vec<(Cluster, Open)>;

/// A cluster, and those who work with it.
pub(crate) struct World {
    pub(crate) ground: Ground,
    pub(crate) record: Arc<Record>,
    pub(crate) objects: Arc<Objects>,
    rng: StdRng,
    plan: Plan,
    end: watch::Sender<bool>,
    workers: Vec<(Arc<Mutex<String>>, JoinHandle<Opens>)>,
}

impl World {
    /// A cluster with objects, and clients that begin to work.
    ///
    /// # Errors
    /// If there are no small disks here, and they are wanted.
    pub(crate) async fn start(scenario: &Scenario, seed: u64) -> Result<Self, String> {
        let rng = StdRng::seed_from_u64(seed);
        let ground = Ground::start_on(scenario.bricks, scenario.peers, scenario.small_disks).await?;
        let record = Arc::new(Record::begin(scenario.fail_stop));
        let setup = Cluster::connect(&ground.url(0)).await.unwrap();
        let objects = Arc::new(Objects::create(&setup, scenario.bricks, scenario.writers).await);
        setup.close();
        if scenario.fail_stop {
            ground.stop_when_one_fails();
        }
        let mut world = Self {
            ground,
            record,
            objects,
            rng,
            plan: Plan::default(),
            end: watch::channel(false).0,
            workers: Vec::new(),
        };
        let transactional = (0..scenario.transactional).map(|_| Does::Transactions);
        let writers = (0..scenario.writers).map(|writer| Does::Singles(writer as usize));
        let large = (0..BALLAST).map(|_| Does::Ballast).filter(|_| scenario.small_disks);
        for (number, does) in (0..).zip(transactional.chain(writers).chain(large)) {
            world.employ(does, number).await;
        }
        Ok(world)
    }

    async fn employ(&mut self, does: Does, number: u64) {
        let doing = Arc::new(Mutex::new(String::new()));
        let (url, record, objects) = (self.ground.url(number), self.record.clone(), self.objects.clone());
        let seed = self.rng.random();
        let worker = Client::connect(does, url, record, objects, seed, doing.clone()).await;
        self.workers.push((doing, tokio::spawn(worker.run(self.end.subscribe()))));
    }

    /// All of it.
    async fn whole(&mut self, scenario: &Scenario) -> Result<Counts, String> {
        let servers = self.ground.servers();
        self.plan = Plan::draw(&mut self.rng, &servers, scenario.faults, scenario.length_ms, scenario.gap_ms);
        let lost = scenario.is_one_lost.then(|| Server::Peer(self.rng.random_range(1..=scenario.peers)));
        self.fail(scenario.length_ms).await?;
        if scenario.is_all_killed {
            self.ground.kill_all();
        }
        if let Some(lost) = lost {
            self.ground.kill(lost);
        }
        self.ground.heal(lost).await?;
        let moves = self.ground.moved().await?;
        if scenario.faults.contains(&Fault::Move) {
            println!("{}: logical nodes have moved {moves} times", scenario.name);
        }
        time::sleep(AFTER).await;
        let opens = self.stop().await?;
        let happened = self.find_out(opens).await?;
        let finals = self.finish().await?;
        self.judge(&finals, &happened)
    }

    /// What is planned goes wrong, or nothing, for so long.
    pub(crate) async fn fail(&mut self, length_ms: u64) -> Result<(), String> {
        let began = Instant::now();
        for (at, server, event) in self.plan.events.clone() {
            time::sleep_until(began + Duration::from_millis(at)).await;
            let ended = self.ground.ended();
            if !ended.is_empty() {
                return Err(ended.join("; "));
            }
            event.happen(&mut self.ground, &self.objects, server);
        }
        time::sleep_until(began + Duration::from_millis(length_ms)).await;
        Ok(())
    }

    /// The clients end what they do. Returns what they have not found out.
    pub(crate) async fn stop(&mut self) -> Result<Opens, String> {
        self.end.send_replace(true);
        let mut opens = Vec::new();
        for (doing, worker) in self.workers.drain(..) {
            match time::timeout(PATIENCE, worker).await {
                Ok(Ok(open)) => opens.extend(open),
                Ok(Err(error)) => return Err(format!("a client has panicked: {error}")),
                Err(_) => return Err(format!("a client hangs: {}", doing.lock().unwrap())),
            }
        }
        Ok(opens)
    }

    /// How those transactions have ended of which their clients could not find it out. Returns those that were committed.
    pub(crate) async fn find_out(&self, opens: Opens) -> Result<Vec<u64>, String> {
        let mut happened = Vec::new();
        for (cluster, Open { number, txn, .. }) in opens {
            let until = Instant::now() + PATIENCE;
            loop {
                match cluster.resolve(txn).await {
                    Ok(Decided::Committed(_)) => happened.push(number),
                    Ok(Decided::Conflict(_)) => self.record.failed_after_all(number),
                    Ok(Decided::Unknown(_)) if Instant::now() < until => continue,
                    other => return Err(format!("in doubt: operation {number}, {txn:?}, is {other:?}")),
                }
                break;
            }
        }
        Ok(happened)
    }

    /// How everything is in the end.
    pub(crate) async fn finish(&self) -> Result<Finals, String> {
        let mut options = ClusterOptions::default();
        options.timeout = PATIENCE;
        let cluster = Cluster::connect_with(&self.ground.url(0), options).await;
        let cluster = cluster.map_err(|error| format!("a new client cannot connect when all is well: {error}"))?;
        let steps = time::timeout(PATIENCE, worker::finish(&cluster, &self.record, &self.objects)).await;
        let steps = steps.map_err(|_| "in doubt: not all objects can be written when all is well".to_owned())?;
        let mut finals = Finals::default();
        finals.add(&steps.map_err(|error| format!("when all is well, a transaction fails: {error}"))?);
        let reader = self.record.client();
        let failed = |error: client::Error| format!("when all is well, a read fails: {error}");
        for kept in self.objects.singles.iter().flatten() {
            let mut operation = self.record.invoked(reader, Kind::Read);
            let got = value(cluster.get(kept.oid).await.map_err(failed)?.as_ref())?;
            operation.steps.push(Step::read(&kept.key, got));
            self.record.returned(operation, Outcome::Ok);
            let newest = value(cluster.look(kept.oid).await.map_err(failed)?.as_ref())?;
            finals.singles.insert(kept.key.clone(), newest);
        }
        let named = self.objects.check_names(&cluster.begin(Level::Optimistic)).await.map_err(failed)?;
        cluster.close();
        if named { Ok(finals) } else { Err("names do not lead to the objects that were bound".to_owned()) }
    }

    /// Judges what was recorded.
    pub(crate) fn judge(&self, finals: &Finals, happened: &[u64]) -> Result<Counts, String> {
        let troubles = self.record.troubles();
        if !troubles.is_empty() {
            return Err(format!("clients were told what nobody should be: {}", troubles.join("; ")));
        }
        judge::judge(&self.record.history(), finals, happened, &self.objects)
    }
}
