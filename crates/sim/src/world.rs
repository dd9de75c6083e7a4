//! A cluster in one thread: its processes, network, disks and clocks, and one event queue.
//!
//! The processes are the machines of [`protocol`], composed as in a real cluster. This module does what a machine
//! cannot: it carries messages, forces logs, advances time, and crashes processes.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use model::NodeId;
use protocol::ident::TxnId;
use protocol::placement::decider::PersistedNode;

use crate::counters::RunCounters;
use crate::plan::{Action, Demand, DiskWork, Plan};
use check::history::History;

mod actions;
mod appends;
mod brick;
mod cache_node;
mod catalog;
mod client;
pub mod clock;
mod cuts;
mod directories;
mod disk;
mod driven_brick;
mod event;
mod group_member;
mod help_journal;
mod member_journal;
mod meta;
mod net;
mod oracle;
mod peer;
mod process;
mod query;
mod redirector;
mod rejections;
mod root;
mod schema;
mod stops;
mod topology;
mod users;
mod wall_clocks;
mod wicked_client;

use appends::ReportedAppend;
use catalog::PlacementCatalog;
pub(crate) use cuts::FIRST_CUT;
use cuts::{BrickArchives, CutRead};
use event::{Event, Scheduled};
use member_journal::MemberJournal;
use net::{Net, Pid};
use oracle::Oracle;
pub use oracle::RunFailure;
use process::Process;
use rejections::RejectionJournal;
use schema::SpaceSchema;
use users::Users;
use wall_clocks::ClockComparison;
use wicked_client::WickedClient;

/// How far clocks may differ, in milliseconds.
const SKEW_MS: u64 = 5_000;
/// The backlog limit of a gateway in bytes: some transactions.
const GATEWAY_LIMIT_BYTES: usize = 2 << 10;
/// The maximum time until a process notices a lost connection, in milliseconds.
const NOTICE_MS: u64 = 100;
/// The maximum delay before a process reconnects, in milliseconds.
const RECONNECT_MS: u64 = 300;

/// The cluster. Made from a plan, it runs to its end in [`World::run`].
pub struct World {
    plan: Plan,
    now: u64,
    processes: Vec<Process>,
    /// The process of each member number; every start of a process has another number.
    members: BTreeMap<u64, Pid>,
    last_member: u64,
    /// The brick of each logical node, if no group serves it.
    serving: BTreeMap<NodeId, Pid>,
    placement: PlacementCatalog,
    /// The durable state of the meta-server, if groups serve nodes; and the number of roots so far.
    kept: BTreeMap<NodeId, PersistedNode>,
    last_root: u64,
    /// The classes and indexes of sets, and the number of the last query.
    schema: SpaceSchema,
    last_query: u64,
    /// The version of the class of the sets of each page that the program of a client knows.
    programs: BTreeMap<Pid, BTreeMap<u64, usize>>,
    member_journal: MemberJournal,
    net: Net,
    queue: BinaryHeap<Scheduled>,
    last_event: u64,
    /// The number of messages and forces under way, and of actions with a time.
    busy: usize,
    planned: usize,
    /// Held messages, by sender and receiver.
    parked: BTreeMap<(Pid, Pid), VecDeque<Event>>,
    /// Events of stalled disks.
    stalled: BTreeMap<(Pid, DiskWork), Vec<Event>>,
    history: History,
    /// Appends of which clients were told the offsets.
    appends: Vec<ReportedAppend>,
    /// What clusters had that were restored from cuts.
    cuts: Vec<CutRead>,
    /// The archives of each brick that were taken at cuts that count.
    archives: BTreeMap<Pid, BrickArchives>,
    last_operation: u64,
    oracle: Oracle,
    count: RunCounters,
    /// The meta-server that compares clocks, if clocks are set.
    comparison: Option<ClockComparison>,
    /// What has happened that may cause rejections.
    rejections: RejectionJournal,
    /// Actions that wait for earlier ones to complete.
    waiting: VecDeque<usize>,
    healing: bool,
    /// The users of clients, if their permissions change.
    users: Option<Users>,
    /// Clients that break the rules.
    wicked: BTreeMap<Pid, WickedClient>,
    trace: Option<Vec<String>>,
}

impl World {
    /// A cluster at the start of its run.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut world = Self::empty(plan);
        world.oracle.solo = world.plan.demand == Demand::Solo;
        world.rejections.note_noise(world.plan.noise);
        world.build();
        world
    }

    /// A cluster without processes.
    fn empty(plan: Plan) -> Self {
        Self {
            now: 0,
            processes: Vec::new(),
            members: BTreeMap::new(),
            last_member: 0,
            serving: BTreeMap::new(),
            placement: PlacementCatalog::new(&plan.cluster),
            kept: BTreeMap::new(),
            last_root: 0,
            schema: SpaceSchema::new(&plan),
            last_query: 0,
            programs: BTreeMap::new(),
            member_journal: MemberJournal::default(),
            net: Net::new(plan.seed, plan.noise),
            queue: BinaryHeap::new(),
            last_event: 0,
            busy: 0,
            planned: 0,
            parked: BTreeMap::new(),
            stalled: BTreeMap::new(),
            history: History::default(),
            appends: Vec::new(),
            cuts: Vec::new(),
            archives: BTreeMap::new(),
            last_operation: 0,
            oracle: Oracle::default(),
            count: RunCounters::default(),
            comparison: ClockComparison::of(&plan),
            rejections: RejectionJournal::default(),
            waiting: VecDeque::new(),
            healing: false,
            users: None,
            wicked: BTreeMap::new(),
            trace: None,
            plan,
        }
    }

    /// Records a transcript.
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>6} {}", self.now, text(self));
            self.trace.iter_mut().for_each(|lines| lines.push(line.clone()));
        }
    }

    /// A gateway has rejected a call. The simulator treats it as lost, and does not inform the client.
    fn turn_away(&mut self, pid: Pid, txn: TxnId, node: NodeId) {
        self.count.turned_away += 1;
        self.note(|world| format!("{} takes no more for {}: {txn:?}", world.name(pid), node.0));
    }

    fn name(&self, pid: Pid) -> String {
        self.processes[pid].place.to_string()
    }

    /// Whether replica groups serve the logical nodes.
    fn has_groups(&self) -> bool {
        self.plan.replicas() > 0
    }

    /// The time of a process's clock.
    fn local_time(&self, pid: Pid) -> u64 {
        self.processes[pid].clock.show(self.now)
    }

    // ------------------------------------------------------------------------------------------ what happens

    fn push(&mut self, at: u64, event: Event) {
        self.last_event += 1;
        self.busy += usize::from(event.is_under_way());
        self.planned += usize::from(matches!(event, Event::Act(_)));
        self.queue.push(Scheduled { at: at.max(self.now), number: self.last_event, event });
    }

    /// Runs all actions, heals all faults, runs until everything has ended, and checks the result.
    ///
    /// # Errors
    /// The first failure.
    pub fn run(&mut self) -> Result<(), RunFailure> {
        loop {
            if self.planned > 0 || self.busy > 0 && !self.waiting.is_empty() {
                self.step()?;
            } else if let Some(index) = self.waiting.pop_front() {
                let action = self.plan.actions[index].1.clone();
                match action {
                    Action::Wait(ms) => self.run_until(self.now + ms)?,
                    action => self.act(&action),
                }
            } else {
                break;
            }
        }
        self.heal();
        self.quiesce()?;
        self.judge()
    }

    fn run_until(&mut self, time: u64) -> Result<(), RunFailure> {
        while self.queue.peek().is_some_and(|next| next.at <= time) {
            self.step()?;
        }
        self.now = time;
        Ok(())
    }

    /// Handles the next event.
    fn step(&mut self) -> Result<(), RunFailure> {
        let Some(Scheduled { at, event, .. }) = self.queue.pop() else { return Ok(()) };
        self.busy -= usize::from(event.is_under_way());
        self.planned -= usize::from(matches!(event, Event::Act(_)));
        self.now = at;
        if let Some(pid) = self.frozen_process(&event) {
            let later = self.processes[pid].frozen_until;
            self.push(later, event);
            return Ok(());
        }
        if let Some(pair) = self.held_pair(&event) {
            self.parked.entry(pair).or_default().push_back(event);
            return Ok(());
        }
        if let Some(stalled) = event.work().and_then(|work| self.stalled.get_mut(&work)) {
            stalled.push(event);
            return Ok(());
        }
        self.handle_event(event);
        self.oracle.result()
    }

    // ------------------------------------------------------------------------------------------ looking

    /// What clients did and saw.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The counters of the run.
    #[must_use]
    pub fn count(&self) -> RunCounters {
        RunCounters { simulated_ms: self.now, ..self.count }
    }

    /// The transcript, if it was recorded.
    #[must_use]
    pub fn transcript(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }
}
