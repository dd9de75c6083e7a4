//! A brick for the simulated histories: its membership, a replica for each logical node, and their logs on a disk that
//! loses writes that were not forced.

use std::collections::{BTreeMap, VecDeque};

use model::NodeId;
use protocol::lease::Ms;
use protocol::placement::member::Member;
use protocol::placement::{Epoch, GroupMember, Incarnation, MemberId};
use protocol::replica::log::{LogPoint, ReplicaLog};
use protocol::replica::{Replica, ReplicaSettings};
use rand::RngExt;
use rand::rngs::StdRng;

pub(crate) const RETRY_MS: u64 = 25;
pub(crate) const RENEW_MS: u64 = 80;

/// A clock with a random offset that runs slightly too fast or too slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriftingClock {
    offset: u64,
    per_mille: u64,
}

impl DriftingClock {
    /// The rates of two of these clocks differ by at most one part in twenty.
    pub(crate) fn any(rng: &mut StdRng) -> Self {
        Self { offset: rng.random_range(0..20_000), per_mille: if rng.random_bool(0.5) { 977 } else { 1023 } }
    }

    pub(crate) fn at(self, real: Ms) -> Ms {
        self.offset + real * self.per_mille / 1000
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Append(LogPoint, u64),
    Truncate(u64),
}

/// The log of one logical node on a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// All durable records, including those that the log has forgotten.
    pub(crate) durable: Vec<(Epoch, u64)>,
    /// All records, durable or not.
    pub(crate) all: Vec<(Epoch, u64)>,
    /// Writes that are not durable, in order.
    pub(crate) pending: VecDeque<Write>,
    /// The position at which the log begins; earlier records are installed.
    pub(crate) base: u64,
}

impl Disk {
    fn write(records: &mut Vec<(Epoch, u64)>, write: &Write) {
        match write {
            Write::Append(point, record) => {
                assert_eq!(
                    records.len() as u64 + 1,
                    point.position,
                    "records are appended in the order of their positions"
                );
                records.push((point.epoch, *record));
            }
            Write::Truncate(position) => {
                assert!(*position <= records.len() as u64, "the truncated records exist");
                records.truncate(*position as usize);
            }
        }
    }

    /// Starts a write.
    pub(crate) fn begin(&mut self, write: Write) {
        Self::write(&mut self.all, &write);
        self.pending.push_back(write);
    }

    /// Loses the pending writes.
    fn lose(&mut self) {
        self.pending.clear();
        self.all.clone_from(&self.durable);
    }

    /// A disk with these records and a log that begins after them.
    pub(crate) fn with_records(durable: Vec<(Epoch, u64)>) -> Self {
        Self { all: durable.clone(), base: durable.len() as u64, durable, pending: VecDeque::new() }
    }

    /// Makes this number of pending writes durable. Returns the point of the last durable record.
    pub(crate) fn force(&mut self, count: usize) -> Option<LogPoint> {
        self.pending.drain(..count).for_each(|write| Self::write(&mut self.durable, &write));
        self.durable.last().map(|(epoch, _)| LogPoint { epoch: *epoch, position: self.durable.len() as u64 })
    }

    fn log(&self) -> ReplicaLog<u64> {
        let position = self.base;
        let epoch = position.checked_sub(1).map_or(Epoch::default(), |last| self.durable[last as usize].0);
        ReplicaLog::new(LogPoint { epoch, position }, self.durable[position as usize..].iter().copied())
    }
}

pub(crate) struct TestBrick {
    pub(crate) id: MemberId,
    pub(crate) incarnation: Incarnation,
    pub(crate) is_up: bool,
    pub(crate) clock: DriftingClock,
    pub(crate) member: Member,
    pub(crate) leased: Ms,
    pub(crate) replicas: BTreeMap<NodeId, Replica<u64>>,
    pub(crate) disks: BTreeMap<NodeId, Disk>,
    /// The participants of this brick, each with the records from which it was built.
    pub(crate) leads: BTreeMap<NodeId, Vec<u64>>,
    /// The logical nodes to copy, and from which bricks.
    pub(crate) copying: Vec<(NodeId, MemberId)>,
}

impl TestBrick {
    pub(crate) fn new(id: u32, rng: &mut StdRng) -> Self {
        let (life, member) = (Incarnation(1), Member::new(Incarnation(1), RENEW_MS));
        Self {
            id: MemberId(id),
            incarnation: life,
            is_up: true,
            clock: DriftingClock::any(rng),
            member,
            leased: 0,
            replicas: BTreeMap::new(),
            disks: BTreeMap::new(),
            leads: BTreeMap::new(),
            copying: Vec::new(),
        }
    }

    /// The replica of a node, which is created if necessary.
    pub(crate) fn replica(&mut self, node: NodeId) -> &mut Replica<u64> {
        let disk = self.disks.entry(node).or_default();
        let me = GroupMember { id: self.id, incarnation: self.incarnation };
        let settings = ReplicaSettings { node, me, retry_ms: RETRY_MS, batch: 3, window: 5 };
        self.replicas.entry(node).or_insert_with(|| Replica::new(settings, disk.log()))
    }

    /// Stops the brick: it loses its memory and some of the writes that were not forced.
    pub(crate) fn crash(&mut self, rng: &mut StdRng) {
        for disk in self.disks.values_mut() {
            let kept = rng.random_range(0..=disk.pending.len());
            disk.force(kept);
            disk.lose();
        }
        self.replicas.clear();
        self.leads.clear();
        self.copying.clear();
        self.is_up = false;
    }

    pub(crate) fn restart(&mut self, rng: &mut StdRng) {
        self.incarnation = Incarnation(self.incarnation.0 + 1);
        (self.is_up, self.leased, self.clock) = (true, 0, DriftingClock::any(rng));
        self.member = Member::new(self.incarnation, RENEW_MS);
    }
}
