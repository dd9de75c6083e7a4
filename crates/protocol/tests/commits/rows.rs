//! Compares a participant that stores its state as rows with one that stores a log. They receive the same requests and
//! crash at the same points, and must give the same answers and have the same state.

use std::collections::{BTreeMap, BTreeSet};

use model::{Entry, EntryKey, NodeId, Oid, PageId};
use protocol::commit::client_mark::ClientMark;
use protocol::commit::participant::{Output, Participant, ParticipantSettings};
use protocol::commit::{Answer, Outcome, Part, Record, Request, Writes};
use protocol::ident::{ClientId, HlcTimestamp, TxnId, Version};
use protocol::page_cache::ObjectState;
use protocol::validate::{Read, ReadVersion};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use crate::brick::{SLOTS, oid};
use protocol::validate::WindowLimits;

const SETTINGS: ParticipantSettings = ParticipantSettings {
    node: NodeId(1),
    moves: 0,
    skew_ms: 1_000_000,
    windows: WindowLimits { page: 3, retained: 0 },
};

type Machine = Participant<u64, u64>;

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Bound,
    Horizon,
    Mark(ClientId),
    Of(TxnId),
}

/// A change of rows on the disk.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are records")]
enum DiskChange {
    Put(Key, u64, Record<u64>),
    Remove(Key),
}

/// A disk that makes changes durable in their order.
#[derive(Clone, Debug, Default)]
struct Rows {
    durable: BTreeMap<Key, (u64, Record<u64>)>,
    pending: Vec<(u64, DiskChange)>,
}

impl Rows {
    fn write(&mut self, upto: usize) {
        for (_, change) in self.pending.drain(..upto) {
            match change {
                DiskChange::Put(key, position, record) => drop(self.durable.insert(key, (position, record))),
                DiskChange::Remove(key) => drop(self.durable.remove(&key)),
            }
        }
    }
}

fn at(position: u64) -> Version {
    Version { moves: 0, position }
}

struct World {
    rng: StdRng,
    now: u64,
    /// The participant that recovers from a log, and the one that recovers from rows.
    logged: Machine,
    rowed: Machine,
    log: Vec<Record<u64>>,
    rows: Rows,
    forced: u64,
    stored: BTreeMap<PageId, Version>,
    /// Transactions that were named in requests, and the outcomes of those with several participants.
    begun: Vec<TxnId>,
    outcomes: BTreeMap<TxnId, Outcome>,
    ended: usize,
    /// The largest timestamp of a reported commit.
    latest: HlcTimestamp,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            now: 1_000,
            logged: Participant::new(SETTINGS),
            rowed: Participant::new(SETTINGS),
            log: Vec::new(),
            rows: Rows::default(),
            forced: 0,
            stored: BTreeMap::new(),
            begun: Vec::new(),
            outcomes: BTreeMap::new(),
            ended: 0,
            latest: HlcTimestamp::ZERO,
        }
    }

    /// Makes the same call to both; they must have the same outputs.
    fn both<R: PartialEq + std::fmt::Debug>(
        &mut self,
        act: impl Fn(&mut Machine, &BTreeMap<PageId, Version>) -> R,
    ) -> R {
        let one = act(&mut self.logged, &self.stored);
        assert_eq!(one, act(&mut self.rowed, &self.stored));
        self.take();
        one
    }

    fn take(&mut self) {
        let outputs: Vec<Output<u64, u64>> = self.logged.outputs().collect();
        assert_eq!(outputs, self.rowed.outputs().collect::<Vec<_>>());
        for output in outputs {
            match output {
                Output::Append(position, record) => {
                    self.log.push(record.clone());
                    assert_eq!(position, self.log.len() as u64);
                    let key = match &record {
                        Record::Bound(_) => Key::Bound,
                        Record::Horizon(_) => Key::Horizon,
                        Record::Heard { client, .. } => Key::Mark(*client),
                        other => Key::Of(other.txn().unwrap()),
                    };
                    let change = DiskChange::Put(key, position, record.into_row(at(position)));
                    self.rows.pending.push((position, change));
                }
                output @ (Output::RemoveRows(_) | Output::RemoveMarks(_)) => {
                    let position = self.log.len() as u64;
                    self.rows.pending.extend(removed_keys(output).map(|key| (position, DiskChange::Remove(key))));
                }
                Output::Answer(_, Answer::Prepared { txn, proposal, .. }) => {
                    // Assumes that all other participants have prepared it, or that one has refused.
                    let outcome =
                        if self.rng.random_bool(0.7) { Outcome::Committed(proposal) } else { Outcome::Aborted };
                    self.outcomes.entry(txn).or_insert(outcome);
                }
                Output::Answer(_, Answer::Refused { txn, .. }) => drop(self.outcomes.insert(txn, Outcome::Aborted)),
                Output::Answer(_, Answer::Ended { outcome, .. }) => {
                    self.ended += 1;
                    if let Outcome::Committed(timestamp) = outcome {
                        self.latest = self.latest.max(timestamp);
                    }
                }
                Output::Answer(..) => {}
                Output::Again(from, request) => {
                    let now = self.now;
                    self.both(|machine, stored| {
                        machine.handle(from, request.clone(), HlcTimestamp::ZERO, now, stored).is_ok()
                    });
                }
                Output::Changed(message, _) => drop(self.stored.insert(message.page, message.version)),
            }
        }
        self.logged.check_invariants().unwrap();
        self.rowed.check_invariants().unwrap();
    }

    fn object(&mut self) -> Oid {
        oid(1, self.rng.random_range(0..SLOTS))
    }

    /// A changed entry of a collection.
    fn entry(&mut self) -> (Entry, Option<Oid>) {
        let key = EntryKey::name(["a", "b", "c"][self.rng.random_range(0..3)]).unwrap();
        (Entry { collection: self.object(), key }, Some(self.object()).filter(|_| self.now.is_multiple_of(2)))
    }

    fn part(&mut self) -> Part<u64> {
        let version = self.stored.values().max().copied().unwrap_or_default();
        let reads =
            (0..self.rng.random_range(0..2)).map(|_| Read { oid: self.object(), seen: ReadVersion::At(version) });
        let reads = reads.collect();
        let writes = (0..self.rng.random_range(0..3)).map(|_| (self.object(), ObjectState::Value(self.now)));
        let writes: Writes<u64> = writes.collect();
        let offsets = writes.keys().map(|oid| (*oid, self.now % 100)).collect();
        let touches = (0..self.rng.random_range(0..2)).map(|_| self.object()).collect();
        let entries = (0..self.rng.random_range(0..2)).map(|_| self.entry()).collect();
        Part { reads, writes, touches, entries, offsets, transfer_ms: 0 }
    }

    /// A new or an earlier transaction.
    fn txn(&mut self) -> TxnId {
        match self.begun.choose(&mut self.rng) {
            Some(txn) if self.rng.random_bool(0.6) => *txn,
            _ => {
                let start = HlcTimestamp::at(self.now - self.rng.random_range(0..300));
                let txn = TxnId { start, client: ClientId(self.rng.random_range(0..3)) };
                self.begun.push(txn);
                txn
            }
        }
    }

    fn request(&mut self) -> Request<u64> {
        let txn = self.txn();
        let part = self.part();
        match self.rng.random_range(0..100) {
            0..25 => Request::Commit { txn, part },
            25..55 => Request::Prepare { txn, participants: vec![NodeId(1), NodeId(2)], part },
            55..80 => {
                let outcome = self.outcomes.get(&txn).copied().unwrap_or(Outcome::Aborted);
                Request::Decide { txn, outcome }
            }
            80..85 => Request::Ask { txn, round: 1 },
            85..92 => Request::Forget { txn },
            92..95 => Request::Heard { txn, mark: self.mark(txn) },
            _ => Request::Check { txn, reads: part.reads, at: HlcTimestamp::at(self.now) },
        }
    }

    /// What a client may have heard.
    fn mark(&mut self, txn: TxnId) -> ClientMark {
        let open: BTreeSet<HlcTimestamp> = (0..self.rng.random_range(0..3)).map(|_| self.txn().start).collect();
        let below = open.last().copied().unwrap_or_default().max(txn.start).next();
        ClientMark::new(below, open.into_iter().collect()).unwrap()
    }

    /// Performs one random event.
    fn step(&mut self) {
        self.now += self.rng.random_range(0..20);
        let now = self.now;
        match self.rng.random_range(0..100) {
            0..65 => {
                let request = self.request();
                // Some requests are rejected, because they contradict an earlier commit of the other kind.
                self.both(|machine, stored| {
                    machine.handle(7, request.clone(), HlcTimestamp::ZERO, now, stored).is_ok()
                });
            }
            65..88 => {
                let position = self.rng.random_range(self.forced..=self.log.len() as u64);
                self.force(position);
            }
            88..94 => {
                let horizon = HlcTimestamp::at(now.saturating_sub(self.rng.random_range(100..600)));
                self.both(|machine, _| machine.raise_horizon(horizon));
            }
            94..96 => drop(self.both(|machine, _| machine.close_timestamp(now))),
            _ => self.crash(),
        }
    }

    fn force(&mut self, position: u64) {
        self.forced = position;
        let reached = self.rows.pending.partition_point(|(at, _)| *at <= position);
        self.rows.write(reached);
        for machine in [&mut self.logged, &mut self.rowed] {
            machine.handle_forced(position, &self.stored);
        }
        self.take();
    }

    /// Restarts both without their memory, and without some of the records that were not forced.
    fn crash(&mut self) {
        let kept = self.rng.random_range(self.forced..=self.log.len() as u64);
        self.log.truncate(kept as usize);
        // A removal after the last kept record may be durable or not.
        let (least, most) = (
            self.rows.pending.partition_point(|(at, _)| *at < kept),
            self.rows.pending.partition_point(|(at, _)| *at <= kept),
        );
        let put =
            self.rows.pending[least..most].iter().take_while(|(_, one)| matches!(one, DiskChange::Put(..))).count();
        let reached = self.rng.random_range(least + put..=most);
        self.rows.write(reached);
        self.rows.pending.clear();
        (self.logged, self.rowed, self.stored) =
            (Participant::new(SETTINGS), Participant::new(SETTINGS), BTreeMap::new());
        for (position, record) in (1..).zip(&self.log) {
            if let Some(change) = self.logged.recover(at(position), record.clone()) {
                self.stored.extend(change.pages().into_keys().map(|page| (page, at(position))));
            }
        }
        let mut rows: Vec<_> = self.rows.durable.values().cloned().collect();
        rows.shuffle(&mut self.rng);
        for (position, row) in rows {
            assert_eq!(self.rowed.recover(at(position), row), None, "rows contain no writes");
        }
        self.logged.finish_recovery(kept);
        self.rowed.finish_recovery(kept);
        self.forced = kept;
        assert_eq!(self.logged.state_records(), self.rowed.state_records());
        // Later commits must have larger timestamps than every reported commit (V4).
        assert!(self.logged.clock() >= self.latest && self.rowed.clock() >= self.latest);
        // The log contains proposals of aborted transactions, so its clock may be ahead: the clocks are set to the same
        // time.
        let (seen, now, unknown) = (
            self.logged.clock().max(self.rowed.clock()),
            self.now,
            TxnId { start: HlcTimestamp::ZERO, client: ClientId(0) },
        );
        for machine in [&mut self.logged, &mut self.rowed] {
            machine.handle(7, Request::Forget { txn: unknown }, seen, now, &Version::ZERO).unwrap();
        }
        // Rows that were not removed before the crash are removed now. The participant with the log forgets more.
        let again: Vec<Key> = self.rowed.outputs().flat_map(removed_keys).collect();
        self.rows.pending.extend(again.into_iter().map(|key| (kept, DiskChange::Remove(key))));
        self.logged.outputs().flat_map(removed_keys).for_each(drop);
    }
}

/// The keys of the rows that an output removes.
fn removed_keys(output: Output<u64, u64>) -> impl Iterator<Item = Key> {
    let (txns, clients) = match output {
        Output::RemoveRows(txns) => (txns, Vec::new()),
        Output::RemoveMarks(clients) => (Vec::new(), clients),
        other => panic!("not a removal: {other:?}"),
    };
    txns.into_iter().map(Key::Of).chain(clients.into_iter().map(Key::Mark))
}

fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..600 {
        world.step();
    }
    let kept = world.rows.durable.len();
    assert!(kept < 200, "seed {seed}: {kept} rows are left, because they are never removed");
    world.ended
}

#[test]
fn recovery_from_rows_equals_recovery_from_the_log() {
    crate::run_all(run);
}
