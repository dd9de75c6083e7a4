//! Creates plans from seeds: the operations of clients, and the faults.

mod faults;

use model::FailurePolicy;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::deceit::Deceit;
use crate::plan::{
    Action, Cluster, Demand, Key, Noise, Operation, Plan, ProcessName, RING_SLOTS, Step, Topology, UserRight,
};
use crate::program::LAST_VERSION;
use protocol::validate::WindowLimits;

/// The operations of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Transactions that append to some lists and read others.
    Lists,
    /// Transfers between accounts, and reads of all accounts.
    Bank,
    /// Transactions that rotate a ring of objects, which must stay one ring.
    Ring,
    /// Each client reads in a transaction what it wrote in the previous one.
    Own,
    /// Pairs of objects, of which each transaction reads both and writes one: write skew, long forks.
    Skew,
    /// One object that all clients write, with retries: optimistic first, then with locks.
    Hot,
    /// Transactions over all bricks.
    Wide,
    /// Writers, readers that check, and readers of group snapshots.
    Snapshots,
    /// Datastore transactions beside optimistic ones.
    Locks,
    /// Transactions that query the members of sets and insert others.
    Phantoms,
    /// The same while the classes of the sets change and programs of several versions read, write, replace and remove their members. It is
    /// that of half of the seeds that would have [`Workload::Phantoms`].
    Classes,
    /// Transactions that bind names in directories and list them.
    Names,
    /// Writes and reads outside of transactions.
    Pram,
    /// A group with one member that is slow, dies, or acknowledges nothing; there are no other faults.
    Slow,
    /// Some of everything.
    Everything,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 15] = {
        let mut all = [Self::Classes; 15];
        let (drawn, _) = all.split_at_mut(Self::DRAWN.len());
        drawn.copy_from_slice(&Self::DRAWN);
        all
    };

    /// Those that seeds choose from. Half of those that choose [`Workload::Phantoms`] have [`Workload::Classes`].
    const DRAWN: [Self; 14] = [
        Self::Lists,
        Self::Bank,
        Self::Ring,
        Self::Own,
        Self::Skew,
        Self::Hot,
        Self::Wide,
        Self::Snapshots,
        Self::Locks,
        Self::Phantoms,
        Self::Pram,
        Self::Slow,
        Self::Everything,
        Self::Names,
    ];

    /// Its name, as the command line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lists => "lists",
            Self::Bank => "bank",
            Self::Ring => "ring",
            Self::Own => "own",
            Self::Skew => "skew",
            Self::Hot => "hot",
            Self::Wide => "wide",
            Self::Snapshots => "snapshots",
            Self::Locks => "locks",
            Self::Phantoms => "phantoms",
            Self::Classes => "classes",
            Self::Names => "names",
            Self::Pram => "pram",
            Self::Slow => "slow",
            Self::Everything => "everything",
        }
    }
}

/// The faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Faults {
    /// Nothing.
    None,
    /// Messages are lost, repeated and late; connections break or block for a while, perhaps in one direction.
    Network,
    /// Processes crash and restart, or are slow, and clocks are wrong.
    Crashes,
    /// All of it.
    All,
}

impl Faults {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Network, Self::Crashes, Self::All];

    /// Its name, as the command line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Network => "network",
            Self::Crashes => "crashes",
            Self::All => "all",
        }
    }
}

/// How long clients begin operations, in milliseconds.
const DURATION_MS: u64 = 25_000;
/// Makes the random choices of backups other ones than those of the rest of a plan.
const CUT_SEED: u64 = 0x6375_7473;
/// The same for wicked members, of which there is one in one of so many plans with groups.
const WICKED_SEED: u64 = 0x7769_636b_6564;
const WICKED_PERIOD: u32 = 3;
/// The same for changes of permissions, which there are in one of so many plans whose clients have users.
const PERMISSIONS_SEED: u64 = 0x7573_6572_7321;
const PERMISSIONS_PERIOD: u32 = 4;
/// The same for fields that are added to classes, which there are in one of so many plans whose clients query sets.
const FIELDS_SEED: u64 = 0x6669_656c_6473;
const FIELDS_PERIOD: u32 = 4;
/// The same for pages of the B-tree that are damaged, which there are in one of so many plans with crashes if the faults follow from the seed, too.
const DAMAGE_SEED: u64 = 0x6461_6d61_6765;
const DAMAGE_PERIOD: u32 = 3;
/// Operations of each client that are about them.
const FIELD_OPERATIONS: usize = 25;
/// How often an index of a class comes or goes in a plan whose classes change, and how often the program of a client is replaced by a newer one.
const REINDEXES: usize = 8;
const UPGRADES: usize = 4;
/// How long bricks hold for a cut at most, in milliseconds: some holds end before all bricks hold.
const HOLDS_MS: [u64; 4] = [10, 50, 1_000, 2_000];
/// Numbers on each page, after the lists.
const NUMBERS: u16 = 2;
/// Accounts of each logical node.
const ACCOUNTS: u16 = 2;

/// Fixed choices for a seed; whatever is `None` follows from the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The topology.
    pub topology: Option<Topology>,
    /// The operations of clients.
    pub workload: Option<Workload>,
    /// The faults.
    pub faults: Option<Faults>,
    /// How often the cluster is backed up, if it can be. From the seed: at most three times, in half of the runs.
    pub backups: Option<u16>,
    /// Whether permissions change, if clients can have users. From the seed: in a quarter of the runs.
    pub permissions: Option<bool>,
    /// Whether fields are added to classes, if clients query sets. From the seed: in a quarter of the runs.
    pub fields: Option<bool>,
    /// Whether pages of the B-trees of bricks are damaged for a while. From the seed: in a third of the runs with crashes, if these follow from the seed,
    /// too.
    pub damage: Option<bool>,
}

impl Choice {
    /// These three choices.
    #[must_use]
    pub const fn of(topology: Topology, workload: Workload, faults: Faults) -> Self {
        Self {
            topology: Some(topology),
            workload: Some(workload),
            faults: Some(faults),
            backups: None,
            permissions: None,
            fields: None,
            damage: None,
        }
    }
}

/// The plan of a seed. Everything without a fixed choice follows from the seed, so that many seeds cover all
/// combinations.
#[must_use]
pub fn plan(seed: u64, choice: Choice) -> Plan {
    let turn = |count: usize, stride: u64| (seed / stride) as usize % count;
    let workload = choice.workload.unwrap_or_else(|| drawn_workload(turn(Workload::DRAWN.len(), 1), seed));
    let drawn = || drawn_topology(turn(Topology::DRAWN.len(), Workload::DRAWN.len() as u64), seed);
    let topology = choice.topology.unwrap_or_else(drawn);
    let combined = (Workload::DRAWN.len() * Topology::DRAWN.len()) as u64;
    let faults =
        choice.faults.unwrap_or([Faults::All, Faults::Network, Faults::Crashes, Faults::None][turn(4, combined)]);
    let mut rng = StdRng::seed_from_u64(seed);
    let (pages, lists) = (rng.random_range(1..=2), rng.random_range(2..=5));
    let cluster = cluster(topology, workload, seed);
    let mut maker = PlanBuilder { rng, workload, faults, cluster, pages, lists, choice };
    maker.build(seed)
}

/// In half of the runs with sets their classes change.
fn drawn_workload(index: usize, seed: u64) -> Workload {
    let changes_classes = mixed(seed) >> 54 & 1 == 0;
    match Workload::DRAWN[index] {
        Workload::Phantoms if changes_classes => Workload::Classes,
        drawn => drawn,
    }
}

/// In half of the runs with groups the redirectors are in a chain.
fn drawn_topology(index: usize, seed: u64) -> Topology {
    let is_chain = mixed(seed) >> 55 & 1 == 0;
    match Topology::DRAWN[index] {
        Topology::Group if is_chain => Topology::Chain,
        drawn => drawn,
    }
}

/// Bits of a seed that do not depend on its turn.
const fn mixed(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn cluster(topology: Topology, workload: Workload, seed: u64) -> Cluster {
    let (peers, redirectors) = match topology {
        Topology::Direct => (0, 0),
        Topology::Peer | Topology::Site | Topology::Replicated => (2, 0),
        Topology::Group | Topology::Mixed => (2, 2),
        Topology::Chain => (2, 4),
    };
    let snapshots = matches!(workload, Workload::Snapshots | Workload::Everything);
    // Half of the runs begin with several logical nodes at a brick, and in a quarter stores apply rows at once, whatever else follows from
    // the seed.
    let mixed = mixed(seed);
    let nodes_per_brick = [1, 2, 1, 3][(mixed >> 62) as usize];
    let rows_at_once = mixed >> 60 & 3 == 0;
    let cold_reads = mixed >> 58 & 1 == 0;
    let windows = WindowLimits {
        page: if workload == Workload::Slow { 1_000 } else { 3 },
        retained: [0, 0, 4, 16][(mixed >> 56 & 3) as usize],
    };
    let (bricks, clients, bare) = (3, 6, false);
    Cluster {
        topology,
        bricks,
        nodes_per_brick,
        peers,
        redirectors,
        clients,
        windows,
        snapshots,
        bare,
        rows_at_once,
        cold_reads,
    }
}

struct PlanBuilder {
    rng: StdRng,
    workload: Workload,
    faults: Faults,
    cluster: Cluster,
    /// Pages of each logical node, and lists on each.
    pages: u64,
    lists: u16,
    choice: Choice,
}

impl PlanBuilder {
    fn build(&mut self, seed: u64) -> Plan {
        let demand = match self.workload {
            Workload::Bank => Demand::Bank(ACCOUNTS),
            Workload::Ring => Demand::Ring,
            // A request with an old map is refused and repeated, which is no fault.
            Workload::Slow if self.cluster.topology != Topology::Replicated => Demand::Solo,
            _ => Demand::None,
        };
        let noise = self.noise();
        let mut actions = Vec::new();
        if self.workload == Workload::Slow {
            self.add_slow_member(&mut actions);
        } else if self.faults != Faults::None {
            self.add_faults(&mut actions);
        }
        for client in 1..=self.cluster.clients {
            let mut at = self.rng.random_range(0..500);
            while at < DURATION_MS {
                // Outside of transactions several things are done at once: their order is what matters.
                let operations = match self.workload {
                    Workload::Pram if self.rng.random_bool(0.8) => self.burst(),
                    _ => vec![self.operation(client)],
                };
                actions.extend(operations.into_iter().map(|operation| (Some(at), Action::Do(client, operation))));
                // A client that evicts a page receives no more invalidations, and its reads may be refused.
                if self.workload != Workload::Slow && self.rng.random_bool(0.1) {
                    let page = self.key().page;
                    actions.push((Some(at), Action::Evict(client, self.node(), page)));
                }
                at += self.rng.random_range(1..900);
            }
        }
        for brick in 1..=self.cluster.bricks {
            actions.push((Some(self.random_time()), Action::Install(brick)));
        }
        if self.workload == Workload::Phantoms && self.cluster.topology != Topology::Replicated {
            for _ in 0..self.rng.random_range(0..6) {
                let page = self.rng.random_range(1..=self.pages);
                actions.push((Some(self.random_time()), Action::Reindex(page)));
            }
            for _ in 0..self.rng.random_range(0..4) {
                let page = self.rng.random_range(1..=self.pages);
                actions.push((Some(self.random_time()), Action::Evolve(page)));
            }
        }
        self.add_cuts(&mut actions, seed);
        self.add_wicked_member(&mut actions, seed);
        self.add_permissions(&mut actions, seed);
        self.add_fields(&mut actions, seed);
        self.add_damage(&mut actions, seed);
        self.add_class_changes(&mut actions);
        actions.sort_by_key(|(at, _)| *at);
        Plan { seed, cluster: self.cluster, noise, actions, demand }
    }

    /// Backups, some with faults of the process that takes them. They do not change what else follows from the seed.
    fn add_cuts(&self, actions: &mut Vec<(Option<u64>, Action)>, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ CUT_SEED);
        let none = rng.random_bool(0.5);
        let count = self.choice.backups.unwrap_or_else(|| if none { 0 } else { rng.random_range(1..=3) });
        let is_judged = !matches!(self.workload, Workload::Slow | Workload::Classes);
        for _ in 0..if is_judged { count } else { 0 } {
            let at = rng.random_range(1..DURATION_MS);
            let hold_ms = *HOLDS_MS.choose(&mut rng).unwrap_or(&1_000);
            actions.push((Some(at), Action::Backup(hold_ms)));
            let (soon, ms) = (at + rng.random_range(0..100), rng.random_range(10..3_000));
            let brick = ProcessName::Brick(rng.random_range(1..=self.cluster.bricks));
            match rng.random_range(0..5) {
                0 if self.faults != Faults::None => actions.push((Some(soon), Action::Freeze(ProcessName::Admin, ms))),
                1 if matches!(self.faults, Faults::Network | Faults::All) => {
                    actions.push((Some(soon), Action::Block(ProcessName::Admin, brick, ms)));
                }
                2 if matches!(self.faults, Faults::Network | Faults::All) => {
                    actions.push((Some(soon), Action::Block(brick, ProcessName::Admin, ms)));
                }
                3 if matches!(self.faults, Faults::Crashes | Faults::All) => {
                    actions.push((Some(soon), Action::Crash(brick, rng.random_range(0..4))));
                    actions.push((Some(soon + ms), Action::Restart(brick)));
                }
                _ => {}
            }
        }
    }

    /// In some clusters with groups, a member that breaks the rules. It does not change what else follows from the seed.
    fn add_wicked_member(&self, actions: &mut Vec<(Option<u64>, Action)>, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ WICKED_SEED);
        let clients = 1..=self.cluster.clients;
        let members: Vec<usize> = match self.cluster.topology {
            Topology::Group | Topology::Site | Topology::Chain => clients.collect(),
            Topology::Mixed => clients.filter(|number| number % 3 == 2).collect(),
            Topology::Direct | Topology::Peer | Topology::Replicated => return,
        };
        let Some(member) = members.choose(&mut rng) else { return };
        if !rng.random_ratio(1, WICKED_PERIOD) {
            return;
        }
        actions.push((Some(0), Action::Deceive(*member, Deceit::Any)));
    }

    /// In some clusters whose clients have users, changes of what these may do, and of what happens when a brick is away. They do not change what
    /// else follows from the seed.
    fn add_permissions(&self, actions: &mut Vec<(Option<u64>, Action)>, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ PERMISSIONS_SEED);
        let changes = rng.random_ratio(1, PERMISSIONS_PERIOD);
        if !self.choice.permissions.unwrap_or(changes)
            || !self.cluster.topology.has_users()
            || self.workload == Workload::Slow
        {
            return;
        }
        for client in 1..=self.cluster.clients {
            for _ in 0..rng.random_range(0..4) {
                let right = *UserRight::ALL.choose(&mut rng).unwrap_or(&UserRight::Read);
                actions.push((Some(rng.random_range(1..DURATION_MS)), Action::Permit(client, right)));
            }
        }
        let policies = [FailurePolicy::FailStop, FailurePolicy::Continue];
        for policy in policies.into_iter().cycle().take(rng.random_range(0..4)) {
            actions.push((Some(rng.random_range(1..DURATION_MS)), Action::SetPolicy(policy)));
        }
    }

    /// In some clusters, pages of the B-trees of bricks that are damaged for a while. They do not change what else follows from the seed.
    fn add_damage(&self, actions: &mut Vec<(Option<u64>, Action)>, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ DAMAGE_SEED);
        let is_drawn = rng.random_ratio(1, DAMAGE_PERIOD)
            && self.choice.faults.is_none()
            && matches!(self.faults, Faults::Crashes | Faults::All);
        // A brick in memory has no pages on a disk.
        if !self.choice.damage.unwrap_or(is_drawn)
            || self.workload == Workload::Slow
            || self.cluster.topology == Topology::Replicated
            || self.cluster.rows_at_once
        {
            return;
        }
        for _ in 0..rng.random_range(1..8) {
            let (at, ms) = (rng.random_range(1..DURATION_MS), rng.random_range(20..6_000));
            let brick = rng.random_range(1..=self.cluster.bricks);
            actions.push((Some(at), Action::Damage(brick, Some(rng.random()))));
            actions.push((Some(at + ms), Action::Damage(brick, None)));
            if self.faults != Faults::None && rng.random_bool(0.3) {
                let at = at + rng.random_range(0..ms);
                actions.push((Some(at), Action::Crash(ProcessName::Brick(brick), rng.random_range(0..4))));
                actions.push((Some(at + rng.random_range(10..1_000)), Action::Restart(ProcessName::Brick(brick))));
            }
        }
    }

    /// In some clusters whose clients query sets, fields that are added to classes, and clients whose programs know them from some moment on or
    /// never. They do not change what else follows from the seed.
    fn add_fields(&self, actions: &mut Vec<(Option<u64>, Action)>, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ FIELDS_SEED);
        let adds = rng.random_ratio(1, FIELDS_PERIOD);
        if !self.choice.fields.unwrap_or(adds)
            || self.workload != Workload::Phantoms
            || self.cluster.topology == Topology::Replicated
        {
            return;
        }
        let mut at = |from: u64| Some(rng.random_range(from..DURATION_MS));
        for page in 1..=self.pages {
            // Some members are there before the first field is added.
            actions.push((at(3_000), Action::AddField(page)));
            actions.push((at(3_000), Action::AddField(page)));
            (0..3).for_each(|_| actions.push((at(3_000), Action::Reindex(page))));
        }
        for client in 1..=self.cluster.clients {
            if client % 3 != 0 {
                (0..2).for_each(|_| actions.push((at(3_000), Action::Upgrade(client))));
            }
        }
        let nodes = self.cluster.bricks as u32;
        for client in 1..=self.cluster.clients {
            for _ in 0..FIELD_OPERATIONS {
                let at = rng.random_range(500..DURATION_MS);
                let set = Key::guard(rng.random_range(1..=nodes), rng.random_range(1..=self.pages));
                let think = Step::Think(rng.random_range(0..60));
                let operation = match rng.random_range(0..10) {
                    0..4 => Operation::Transact(vec![Step::Note(set)]),
                    4 => Operation::Insist(vec![Step::Note(set), think]),
                    5..7 => Operation::Transact(vec![Step::Sift(set), think, Step::Note(set)]),
                    7 => Operation::Transact(vec![Step::Sift(set)]),
                    8 => Operation::Lock(vec![Step::Sift(set), Step::Note(set)]),
                    _ => Operation::Transact(vec![Step::Renew(set)]),
                };
                actions.push((Some(at), Action::Do(client, operation)));
            }
        }
    }

    /// Changes of the classes of sets, indexes that come and go, and programs that are replaced by newer ones.
    fn add_class_changes(&mut self, actions: &mut Vec<(Option<u64>, Action)>) {
        if self.workload != Workload::Classes || self.cluster.topology == Topology::Replicated {
            return;
        }
        for page in 1..=self.pages {
            let mut add = |action: Action, count| {
                (0..count).for_each(|_| actions.push((Some(self.random_time()), action.clone())));
            };
            add(Action::ChangeClass(page), LAST_VERSION);
            add(Action::Reindex(page), REINDEXES);
            add(Action::Evolve(page), 2);
        }
        for client in 1..=self.cluster.clients {
            let count = if client % 3 == 0 { 1 } else { UPGRADES };
            (0..count).for_each(|_| actions.push((Some(self.random_time()), Action::Upgrade(client))));
        }
    }

    fn random_time(&mut self) -> u64 {
        self.rng.random_range(1..DURATION_MS)
    }

    fn noise(&mut self) -> Noise {
        let slowest = *[2, 10, 40].choose(&mut self.rng).unwrap_or(&10);
        let force_ms = *[1, 5, 30].choose(&mut self.rng).unwrap_or(&5);
        let calm = Noise { delay_ms: (1, slowest), force_ms, ..Noise::NONE };
        if self.workload == Workload::Slow || matches!(self.faults, Faults::None | Faults::Crashes) {
            return calm;
        }
        // Reads outside of transactions depend on the order of messages on a connection.
        let keeps_order = matches!(self.workload, Workload::Pram | Workload::Everything);
        let reorder = if keeps_order { 0 } else { self.rng.random_range(0..40) };
        let loss = self.rng.random_range(0..12);
        Noise { loss, duplicate: self.rng.random_range(0..12), reorder, ..calm }
    }

    // ------------------------------------------------------------------------------------------ operations

    fn node(&mut self) -> u32 {
        self.rng.random_range(1..=self.cluster.bricks) as u32
    }

    /// A list.
    fn key(&mut self) -> Key {
        let node = self.node();
        Key { node, page: self.rng.random_range(1..=self.pages), slot: self.rng.random_range(0..self.lists) }
    }

    /// A number, for writes outside of transactions.
    fn number(&mut self) -> Key {
        let key = self.key();
        Key { slot: self.lists + key.slot % NUMBERS, ..key }
    }

    fn accounts(&self) -> Vec<Key> {
        let nodes = 1..=self.cluster.bricks as u32;
        nodes.flat_map(|node| (0..ACCOUNTS).map(move |slot| Key { node, page: 1, slot })).collect()
    }

    fn operation(&mut self, client: usize) -> Operation {
        let dice = self.rng.random_range(0..100);
        match self.workload {
            Workload::Lists => Operation::Transact(self.steps(1, 5, 0.5)),
            Workload::Bank if dice < 30 => {
                let reads = self.accounts().into_iter().map(Step::Read).collect();
                Operation::Transact(reads)
            }
            Workload::Bank => {
                let accounts = self.accounts();
                let from = self.rng.random_range(0..accounts.len());
                let to = (from + self.rng.random_range(1..accounts.len())) % accounts.len();
                Operation::Transact(vec![Step::Move(accounts[from], accounts[to], self.rng.random_range(1..20))])
            }
            Workload::Ring => {
                let all = i64::from(RING_SLOTS) * self.cluster.bricks as i64;
                Operation::Transact(vec![Step::Rotate(Key::in_ring(self.rng.random_range(0..all)))])
            }
            Workload::Own => {
                let mine =
                    Key { node: 1 + client as u32 % self.cluster.bricks as u32, page: 1, slot: client as u16 % 3 };
                let mut steps = vec![Step::Append(mine)];
                steps.extend(self.steps(0, 2, 0.0).into_iter().filter(|step| *step != Step::Read(mine)));
                Operation::Transact(steps)
            }
            Workload::Skew => {
                let one = self.key();
                let other = Key { node: one.node % self.cluster.bricks as u32 + 1, ..one };
                let (read, write) = if dice < 50 { (one, other) } else { (other, one) };
                let think = self.rng.random_range(0..60);
                Operation::Transact(vec![Step::Read(read), Step::Think(think), Step::Append(write)])
            }
            Workload::Hot => {
                let hot = Key { node: 1, page: 1, slot: 0 };
                let mut steps = vec![Step::Append(hot)];
                if dice < 40 {
                    steps.push(Step::Append(Key { node: 2, ..hot }));
                }
                if dice % 2 == 0 {
                    steps.reverse();
                }
                Operation::Insist(steps)
            }
            Workload::Wide => Operation::Transact(self.steps(4, 9, 0.6)),
            Workload::Snapshots if dice < 35 => Operation::Snapshot(self.steps(1, 5, 0.0)),
            Workload::Snapshots if dice < 55 => Operation::Transact(self.steps(1, 5, 0.0)),
            Workload::Snapshots => Operation::Transact(self.steps(1, 4, 0.7)),
            Workload::Locks if dice < 50 => Operation::Lock(self.steps(1, 4, 0.6)),
            Workload::Locks => Operation::Transact(self.steps(1, 4, 0.6)),
            Workload::Phantoms => self.phantoms(dice),
            Workload::Classes => self.classes(dice),
            Workload::Names => self.names(dice),
            Workload::Pram if dice < 45 => Operation::Put(self.number()),
            Workload::Pram if dice < 90 => Operation::Get(self.number()),
            Workload::Pram => Operation::Transact(self.steps(1, 3, 0.6)),
            Workload::Slow => Operation::Transact(self.steps(1, 4, 0.4)),
            Workload::Everything => match dice {
                0..40 => Operation::Transact(self.steps(1, 4, 0.6)),
                40..50 => Operation::Transact(self.steps(1, 4, 0.0)),
                50..60 => Operation::Lock(self.steps(1, 3, 0.6)),
                60..65 => Operation::Insist(self.steps(1, 3, 0.8)),
                65..80 => Operation::Snapshot(self.steps(1, 4, 0.0)),
                80..90 => Operation::Put(self.number()),
                _ => Operation::Get(self.number()),
            },
        }
    }

    /// Queries sets and inserts members: often the members of one set determine an insert into another, while other
    /// clients do the reverse.
    fn phantoms(&mut self, dice: u32) -> Operation {
        let sets = |maker: &mut Self| Key::guard(maker.node(), maker.rng.random_range(1..=maker.pages));
        let (one, other) = (sets(self), sets(self));
        let think = Step::Think(self.rng.random_range(0..60));
        match dice {
            0..40 => Operation::Transact(vec![Step::Count(one), think, Step::Insert(other)]),
            40..55 => Operation::Transact(vec![Step::Count(one), think, Step::Count(other)]),
            55..70 if self.cluster.topology != Topology::Replicated => {
                let value = self.rng.random_range(0..40);
                Operation::Transact(vec![Step::Claim(one, value), think, Step::Claim(other, value)])
            }
            55..80 if one != other => Operation::Transact(vec![Step::Insert(one), Step::Insert(other)]),
            55..80 => Operation::Transact(vec![Step::Insert(one)]),
            80..90 => Operation::Lock(vec![Step::Count(one), Step::Insert(other)]),
            _ => Operation::Insist(vec![Step::Count(one), Step::Insert(one)]),
        }
    }

    /// Counts, inserts, writes, queries, rewrites, replaces and removes members of sets.
    fn classes(&mut self, dice: u32) -> Operation {
        let sets = |maker: &mut Self| Key::guard(maker.node(), maker.rng.random_range(1..=maker.pages));
        let (one, other) = (sets(self), sets(self));
        let think = Step::Think(self.rng.random_range(0..60));
        match dice {
            0..15 => Operation::Transact(vec![Step::Count(one), think, Step::Insert(other)]),
            15..22 => Operation::Transact(vec![Step::Insert(one)]),
            22..46 => Operation::Transact(vec![Step::Note(one)]),
            46..54 => Operation::Transact(vec![Step::Sift(one), think, Step::Note(one)]),
            54..62 => Operation::Transact(vec![Step::Sift(one)]),
            62..66 => Operation::Lock(vec![Step::Sift(one), Step::Note(one)]),
            66..70 => Operation::Insist(vec![Step::Note(one), think]),
            70..76 => Operation::Transact(vec![Step::Renew(one)]),
            76..84 => Operation::Transact(vec![Step::Replace(one)]),
            84..90 => Operation::Transact(vec![Step::Count(one), think, Step::Replace(other)]),
            90..92 => Operation::Lock(vec![Step::Replace(one)]),
            _ => Operation::Transact(vec![Step::Reuse(one)]),
        }
    }

    /// Lists directories and binds names: often the names of one directory determine what is bound in another one, while other clients
    /// do the reverse. Some transactions write objects at other logical nodes, too.
    fn names(&mut self, dice: u32) -> Operation {
        let directory = |maker: &mut Self| Key::guard(maker.node(), maker.rng.random_range(1..=maker.pages));
        let (one, other) = (directory(self), directory(self));
        let name = self.rng.random_range(0..60);
        let think = Step::Think(self.rng.random_range(0..60));
        match dice {
            0..25 => Operation::Transact(vec![Step::List(one), think, Step::Bind(other, name)]),
            25..55 => Operation::Transact(vec![Step::Bind(one, name), think, Step::Append(self.key())]),
            55..70 if one != other => Operation::Transact(vec![Step::Bind(one, name), think, Step::Bind(other, name)]),
            55..75 => Operation::Transact(vec![Step::List(one), think, Step::List(other)]),
            75..85 => Operation::Lock(vec![Step::List(one), Step::Bind(other, name)]),
            _ => Operation::Insist(vec![Step::List(one), Step::Bind(one, name), Step::Append(self.key())]),
        }
    }

    /// Writes to two pages of one node and then to another node; or reads of them in reverse order.
    fn burst(&mut self) -> Vec<Operation> {
        let (one, slot) = (self.node(), self.lists);
        let other = one % self.cluster.bricks as u32 + 1;
        let keys = [(one, 1), (one, self.pages), (other, 1)].map(|(node, page)| Key { node, page, slot });
        if self.rng.random_bool(0.4) {
            keys.into_iter().map(Operation::Put).collect()
        } else {
            keys.into_iter().rev().map(Operation::Get).collect()
        }
    }

    /// Different lists.
    fn keys(&mut self, least: usize, most: usize) -> Vec<Key> {
        let count = self.rng.random_range(least..=most);
        let mut keys: Vec<Key> = Vec::new();
        for _ in 0..count {
            let key = self.key();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn steps(&mut self, least: usize, most: usize, writes: f64) -> Vec<Step> {
        let mut steps = Vec::new();
        for key in self.keys(least, most) {
            steps.push(if self.rng.random_bool(writes) { Step::Append(key) } else { Step::Read(key) });
            if self.rng.random_bool(0.2) {
                steps.push(Step::Think(self.rng.random_range(1..200)));
            }
        }
        steps
    }
}
