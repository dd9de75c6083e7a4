//! One run: a cluster, clients that work while it fails, and the checks after it has recovered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use check::history::{Kind, Outcome, Step};
use client::{Client, CommitOutcome, ConnectOptions, IsolationLevel};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};

use crate::backups::Backups;
use crate::client_process::{ClientProcess, ClientProgram};
use crate::judge::{self, CheckSummary, FinalState};
use crate::objects::Objects;
use crate::plan::{Fault, FaultPlan};
use crate::process_clients::ProcessClients;
use crate::recorder::{InDoubt, Recorder};
use crate::test_cluster::{ServerId, TestCluster};
use crate::worker::{self, ClientWork, Worker};

/// Time limit of any step while nothing fails.
pub(crate) const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Clients that make large writes, if disks are small.
const BALLAST_CLIENTS: u64 = 3;
/// How long clients work after the recovery.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// A kind of run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) bricks: u64,
    pub(crate) peers: u64,
    pub(crate) redirectors: u64,
    /// Clients that use transactions, and clients that write single values.
    pub(crate) transactional: u64,
    pub(crate) writers: u64,
    /// Client processes, their program, and clients in each of them. The first Java virtual machine creates the objects.
    pub(crate) processes: usize,
    pub(crate) program: ClientProgram,
    pub(crate) threads: u64,
    /// Whether a client in a process has to get a conflict that names an object.
    pub(crate) needs_conflicts: bool,
    /// Whether the space refuses all requests while a brick is unreachable.
    pub(crate) fail_stop: bool,
    /// Whether bricks have small disks and clients make large writes.
    pub(crate) small_disks: bool,
    pub(crate) faults: &'static [Fault],
    /// The servers that fail.
    pub(crate) fails: fn(&ServerId) -> bool,
    /// The period in which faults begin, and their average distance.
    pub(crate) length_ms: u64,
    pub(crate) gap_ms: u64,
    /// Whether all servers are killed at the end, and restarted.
    pub(crate) is_all_killed: bool,
    /// Whether one peer server is killed at the end and never restarted.
    pub(crate) is_one_lost: bool,
}

impl Scenario {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            bricks: 3,
            peers: 2,
            redirectors: 0,
            transactional: 8,
            writers: 3,
            processes: 0,
            program: ClientProgram::Rust,
            threads: 0,
            needs_conflicts: false,
            fail_stop: false,
            small_disks: false,
            faults: &[],
            fails: |_| true,
            length_ms: 8_000,
            gap_ms: 900,
            is_all_killed: false,
            is_one_lost: false,
        }
    }
}

/// Runs a scenario, and returns how many backups were restored. Panics if a check fails; the history is kept then.
pub(crate) async fn run(scenario: &Scenario, seed: u64) -> u64 {
    let began = Instant::now();
    let mut world = match World::start(scenario, seed).await {
        Ok(world) => world,
        Err(why) => {
            println!("{}: skipped, because there are no small disks: {why}", scenario.name);
            return 0;
        }
    };
    let result = world.run(scenario).await;
    let (name, seconds) = (scenario.name, began.elapsed().as_secs_f32());
    if std::env::var_os("MORTAR_HISTORIES_DIR").is_some() {
        judge::save_history(&format!("{name}-{seed}"), &world.record.history(), world.test_cluster.dir());
    }
    match result {
        Ok((counts, backups)) => {
            println!("{name}, seed {seed}: right in {seconds:.1} s: {counts}, {backups} backups");
            backups
        }
        Err(why) => {
            let history = world.record.history();
            let path = judge::save_history(&format!("{name}-{seed}"), &history, world.test_cluster.dir());
            panic!("{name}, seed {seed}: {why}\nthe history: {}\nthe plan: {:?}", path.display(), world.plan);
        }
    }
}

/// Transactions whose clients could not determine the outcome.
type InDoubtList = Vec<(Client, InDoubt)>;
/// The current activity of a client, and its task.
pub(crate) type RunningClient = (Arc<Mutex<String>>, JoinHandle<InDoubtList>);

/// Starts the client processes of a run and waits until they are connected.
async fn start_processes(scenario: &Scenario, ground: &TestCluster) -> Vec<Arc<ClientProcess>> {
    let start = |number| ClientProcess::start(scenario.program, number, &ground.url(number as u64), ground.dir());
    let processes: Vec<Arc<ClientProcess>> = (0..scenario.processes).map(start).collect();
    for process in &processes {
        process.ready().await.unwrap_or_else(|why| panic!("{}: {why}", process.name));
    }
    processes
}

/// A cluster and its clients.
pub(crate) struct World {
    pub(crate) test_cluster: TestCluster,
    pub(crate) record: Arc<Recorder>,
    pub(crate) objects: Arc<Objects>,
    rng: StdRng,
    plan: FaultPlan,
    end: watch::Sender<bool>,
    workers: Vec<RunningClient>,
    processes: ProcessClients,
    backups: Backups,
}

impl World {
    /// Starts a cluster with objects, and its clients.
    ///
    /// # Errors
    /// If small disks are required and not available.
    pub(crate) async fn start(scenario: &Scenario, seed: u64) -> Result<Self, String> {
        let rng = StdRng::seed_from_u64(seed);
        let ground =
            TestCluster::start_on((scenario.bricks, scenario.peers, scenario.redirectors), scenario.small_disks)
                .await?;
        let record = Arc::new(Recorder::new(scenario.fail_stop));
        let setup = Client::connect(&ground.url(0)).await.unwrap();
        let processes = start_processes(scenario, &ground).await;
        let objects = match (scenario.program, processes.first()) {
            (ClientProgram::Java { .. }, Some(jvm)) => Objects::create_in_java(jvm, &setup, scenario.bricks).await,
            _ => Objects::create(&setup, scenario.bricks, scenario.writers).await,
        };
        let objects = Arc::new(objects);
        setup.close();
        if scenario.fail_stop {
            ground.set_fail_stop();
        }
        let end = watch::channel(false).0;
        let processes = ProcessClients {
            program: scenario.program,
            processes,
            running: Vec::new(),
            tally: Arc::default(),
            record: record.clone(),
            objects: objects.clone(),
            rng: StdRng::seed_from_u64(!seed),
            end: end.subscribe(),
            threads: scenario.threads,
            dir: ground.dir().to_owned(),
        };
        let backups = Backups::new(ground.dir(), record.clone());
        let (plan, workers) = (FaultPlan::default(), Vec::new());
        let mut world = Self { test_cluster: ground, record, objects, rng, plan, end, workers, processes, backups };
        (0..scenario.processes).for_each(|process| world.processes.spawn_clients(process));
        let transactional = (0..scenario.transactional).map(|_| ClientWork::Transactions);
        let writers = (0..scenario.writers).map(|writer| ClientWork::Singles(writer as usize));
        let large = (0..BALLAST_CLIENTS).map(|_| ClientWork::Ballast).filter(|_| scenario.small_disks);
        for (number, does) in (0..).zip(transactional.chain(writers).chain(large)) {
            world.spawn_client(does, number).await;
        }
        Ok(world)
    }

    async fn spawn_client(&mut self, does: ClientWork, number: u64) {
        let doing = Arc::new(Mutex::new(String::new()));
        let (url, record, objects) = (self.test_cluster.url(number), self.record.clone(), self.objects.clone());
        let seed = self.rng.random();
        let worker = Worker::connect(does, url, record, objects, seed, doing.clone()).await;
        self.workers.push((doing, tokio::spawn(worker.run(self.end.subscribe()))));
    }

    /// Executes the run.
    async fn run(&mut self, scenario: &Scenario) -> Result<(CheckSummary, u64), String> {
        let mut servers = self.test_cluster.servers();
        servers.retain(scenario.fails);
        self.plan = FaultPlan::generate(&mut self.rng, &servers, scenario.faults, scenario.length_ms, scenario.gap_ms);
        let lost = scenario.is_one_lost.then(|| ServerId::Peer(self.rng.random_range(1..=scenario.peers)));
        self.inject_faults(scenario.length_ms).await?;
        if scenario.is_all_killed {
            self.test_cluster.kill_all();
        }
        if let Some(lost) = lost {
            self.test_cluster.kill(lost);
        }
        self.test_cluster.heal(lost).await?;
        let moves = self.test_cluster.wait_moves_done().await?;
        if scenario.faults.contains(&Fault::Move) {
            println!("{}: logical nodes have moved {moves} times", scenario.name);
        }
        time::sleep(SETTLE_TIME).await;
        self.processes.wait_commits().await?;
        let opens = self.stop().await?;
        let happened = self.resolve_in_doubt(opens).await?;
        let finals = self.read_final_state().await?;
        let backups = self.backups.restore(&self.objects).await?;
        if scenario.processes > 0 {
            println!("{}: clients in processes: {}", scenario.name, self.processes.tally);
        }
        let summary = self.judge(&finals, &happened)?;
        match scenario.needs_conflicts && self.processes.tally.named_conflicts() == 0 {
            true => Err("no client in a process has got a conflict that names its object".to_owned()),
            false => Ok((summary, backups)),
        }
    }

    /// Injects the planned faults, or none, for this long.
    pub(crate) async fn inject_faults(&mut self, length_ms: u64) -> Result<(), String> {
        let began = Instant::now();
        for (at, server, event) in self.plan.events.clone() {
            time::sleep_until(began + Duration::from_millis(at)).await;
            let ended = self.test_cluster.exited_servers();
            if !ended.is_empty() {
                return Err(ended.join("; "));
            }
            event.apply(&mut self.test_cluster, &mut self.processes, &mut self.backups, &self.objects, server);
        }
        time::sleep_until(began + Duration::from_millis(length_ms)).await;
        Ok(())
    }

    /// Ends the clients. Returns the transactions with unknown outcomes.
    pub(crate) async fn stop(&mut self) -> Result<InDoubtList, String> {
        self.end.send_replace(true);
        let mut opens = Vec::new();
        for (doing, worker) in self.workers.drain(..).chain(self.processes.running.drain(..)) {
            match time::timeout(RECOVERY_TIMEOUT, worker).await {
                Ok(Ok(open)) => opens.extend(open),
                Ok(Err(error)) => return Err(format!("a client has panicked: {error}")),
                Err(_) => return Err(format!("a client hangs: {}", doing.lock().unwrap())),
            }
        }
        Ok(opens)
    }

    /// Resolves the transactions with unknown outcomes. Returns those that were committed.
    pub(crate) async fn resolve_in_doubt(&self, opens: InDoubtList) -> Result<Vec<u64>, String> {
        let mut happened = Vec::new();
        for (cluster, InDoubt { number, txn, .. }) in opens {
            let until = Instant::now() + RECOVERY_TIMEOUT;
            loop {
                match cluster.outcome(txn).await {
                    Ok(CommitOutcome::Committed(_)) => happened.push(number),
                    Ok(CommitOutcome::Conflict(_)) => self.record.mark_failed(number),
                    Ok(CommitOutcome::Unknown(_)) if Instant::now() < until => continue,
                    other => return Err(format!("in doubt: operation {number}, {txn:?}, is {other:?}")),
                }
                break;
            }
        }
        Ok(happened)
    }

    /// Reads the final state.
    pub(crate) async fn read_final_state(&self) -> Result<FinalState, String> {
        let mut options = ConnectOptions::default();
        options.timeout = RECOVERY_TIMEOUT;
        let cluster = Client::connect_with(&self.test_cluster.url(0), options).await;
        let cluster = cluster.map_err(|error| format!("a new client cannot connect after the recovery: {error}"))?;
        let steps = time::timeout(RECOVERY_TIMEOUT, worker::finish(&cluster, &self.record, &self.objects)).await;
        let steps = steps.map_err(|_| "in doubt: not all objects can be written after the recovery".to_owned())?;
        let mut finals = FinalState::default();
        finals.add(&steps.map_err(|error| format!("after the recovery, a transaction fails: {error}"))?);
        let reader = self.record.next_client();
        let failed = |error: client::Error| format!("after the recovery, a read fails: {error}");
        for kept in self.objects.singles.iter().flatten() {
            let mut operation = self.record.begin_operation(reader, Kind::Read);
            let got = kept.value(cluster.get(kept.oid).await.map_err(failed)?.as_ref())?;
            operation.steps.push(Step::read(&kept.key, got));
            self.record.end_operation(operation, Outcome::Ok);
            let newest = kept.value(cluster.read_latest(kept.oid).await.map_err(failed)?.as_ref())?;
            finals.singles.insert(kept.key.clone(), newest);
        }
        let named = self.objects.check_names(&cluster.begin(IsolationLevel::Optimistic)).await.map_err(failed)?;
        cluster.close();
        if named { Ok(finals) } else { Err("names do not resolve to the objects that were bound".to_owned()) }
    }

    /// Checks the history.
    pub(crate) fn judge(&self, finals: &FinalState, happened: &[u64]) -> Result<CheckSummary, String> {
        let troubles = self.record.unexpected_errors();
        if !troubles.is_empty() {
            return Err(format!("clients got unexpected errors: {}", troubles.join("; ")));
        }
        judge::judge(&self.record.history(), finals, happened, &self.objects)
    }
}
