//! Random changes of rows on a simulated machine that fills up, stops and loses power, compared with a model; and the
//! planted bugs of the store, each of which this workload must notice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use model::planted_bug::{PlantedBug, plant};

use crate::plant::Bug;
use crate::sim::{DiskImage, SimStore};
use crate::{RowChanges, RowSequence, Snapshot};

/// Steps of a run.
const STEPS: usize = 250;
/// Number of runs. Each passes without a planted bug, and at least one fails with it.
const SEEDS: u64 = 120;

type Rows = BTreeMap<Vec<u8>, Bytes>;
/// The number of the change, and its position or the kind of its error.
type Reply = (u32, std::result::Result<u64, ErrorKind>);

/// Small limits: a few changes fill a segment, and a few segments the buffer.
fn options() -> Options {
    Options { mob_bytes: 24 << 10, segment_bytes: 8 << 10, ..Options::default() }
}

/// A submitted change.
#[derive(Clone)]
struct Submitted {
    number: u32,
    /// The number of its sequence.
    sequence: Option<u32>,
    changes: Vec<(Vec<u8>, Option<Bytes>)>,
}

impl Submitted {
    fn apply(&self, rows: &mut Rows) {
        for (key, value) in &self.changes {
            match value {
                Some(value) => drop(rows.insert(key.clone(), value.clone())),
                None => drop(rows.remove(key)),
            }
        }
    }
}

struct Run {
    machine: SimStore,
    random: StdRng,
    /// Changes without a reply, in the order in which they were submitted.
    submitted: VecDeque<Submitted>,
    /// Changes that may or may not be durable because the machine stopped.
    uncertain: Vec<Submitted>,
    replies: Arc<Mutex<Vec<Reply>>>,
    numbers: u32,
    sequence: (u32, RowSequence),
    failed_sequences: BTreeSet<u32>,
    /// The expected rows.
    rows: Rows,
    /// The newest acknowledged position.
    acknowledged: u64,
    snapshots: Vec<(Snapshot, Rows)>,
    /// Whether the disk is full, or was full at the last installation.
    may_be_full: bool,
    limited: bool,
}

/// All rows of a store or a snapshot, compared over each way of reading.
macro_rules! all_rows {
    ($state:expr) => {{
        let (mut rows, mut back) = (Rows::new(), Rows::new());
        let end = [0xff];
        let insert = |rows: &mut Rows, key: &[u8], value: &[u8]| {
            rows.insert(key.to_vec(), Bytes::copy_from_slice(value));
            ControlFlow::Continue(())
        };
        $state.rows(&[], &end, |key, value| insert(&mut rows, key, value)).unwrap();
        $state.rows_back(&[], &end, |key, value| insert(&mut back, key, value)).unwrap();
        assert_eq!(rows, back, "both orders have the same rows");
        for key in 0..KEYS {
            assert_eq!($state.row(&[key]).unwrap().as_ref(), rows.get(&[key][..]), "row {key} by itself");
        }
        rows
    }};
}

const KEYS: u8 = 10;

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            machine: SimStore::open(DiskImage::default(), options()).unwrap(),
            random: StdRng::seed_from_u64(seed),
            submitted: VecDeque::new(),
            uncertain: Vec::new(),
            replies: Arc::default(),
            numbers: 0,
            sequence: (0, RowSequence::new()),
            failed_sequences: BTreeSet::new(),
            rows: Rows::new(),
            acknowledged: 0,
            snapshots: Vec::new(),
            may_be_full: false,
            limited: false,
        }
    }

    fn step(&mut self) {
        match self.random.random_range(0..24) {
            0..10 => self.submit(),
            10..14 => self.force(),
            14..16 => self.install(),
            16 | 17 => {
                let room = self.random.random_range(0..12_000);
                self.machine.set_room(Some(room));
                (self.limited, self.may_be_full) = (true, true);
            }
            18 | 19 => {
                self.machine.set_room(None);
                self.limited = false;
            }
            20 => {
                let snapshot = self.machine.store().snapshot().unwrap();
                self.snapshots.push((snapshot, self.rows.clone()));
            }
            21 => drop(self.snapshots.pop()),
            22 => {
                // Changes refused for lack of room are submitted again later.
                let _ = self.machine.force_marker();
                self.settle();
            }
            _ => {
                if self.random.random_bool(0.7) {
                    self.machine.stop_after(self.random.random_range(0..12));
                    self.force();
                    self.install();
                }
                self.crash();
            }
        }
    }

    fn submit(&mut self) {
        if self.sequence.1.is_broken() {
            self.sequence = (self.sequence.0 + 1, RowSequence::new());
        }
        for _ in 0..self.random.random_range(1..4) {
            let in_sequence = self.random.random_bool(0.5);
            let mut batch = if in_sequence { self.sequence.1.changes() } else { RowChanges::new() };
            let mut changes = Vec::new();
            for _ in 0..self.random.random_range(1..5) {
                let key = vec![self.random.random_range(0..KEYS)];
                let len = self.random.random_range(0..1500);
                let value = self.random.random_bool(0.75).then(|| pattern(len, self.random.random()));
                match &value {
                    Some(value) => batch.put(&key, value.clone()),
                    None => batch.remove(&key),
                }
                changes.push((key, value));
            }
            let (number, replies) = (self.numbers, Arc::clone(&self.replies));
            self.numbers += 1;
            let sequence = in_sequence.then_some(self.sequence.0);
            self.submitted.push_back(Submitted { number, sequence, changes });
            let reply = move |reply: model::Result<u64>| replies.lock().push((number, reply.map_err(|e| e.kind())));
            self.machine.store().submit_rows(batch, reply);
        }
    }

    fn force(&mut self) {
        // The replies have the error, too.
        let _ = self.machine.force();
        self.settle();
    }

    fn install(&mut self) {
        if self.machine.install().is_ok() {
            self.may_be_full = self.limited;
        }
        self.check();
    }

    /// Checks the replies, which must come in order.
    fn settle(&mut self) {
        for (number, reply) in std::mem::take(&mut *self.replies.lock()) {
            let change = self.submitted.pop_front().unwrap();
            assert_eq!(change.number, number, "replies come in the order of the submissions");
            let failed_before = change.sequence.is_some_and(|number| self.failed_sequences.contains(&number));
            match reply {
                Ok(position) => {
                    assert!(!failed_before, "a change was applied after a failed one of its sequence");
                    assert!(position > self.acknowledged, "positions rise");
                    self.acknowledged = position;
                    change.apply(&mut self.rows);
                }
                Err(kind) => {
                    self.failed_sequences.extend(change.sequence);
                    match kind {
                        ErrorKind::Full => assert!(self.may_be_full, "refused although there is room"),
                        ErrorKind::Unavailable => assert!(failed_before, "refused without a reason"),
                        ErrorKind::Unknown => self.uncertain.push(change),
                        kind => assert_eq!(kind, ErrorKind::Io),
                    }
                }
            }
        }
        self.check();
        if !self.uncertain.is_empty() {
            self.crash();
        }
    }

    fn check(&self) {
        assert_eq!(all_rows!(self.machine.store()), self.rows, "exactly the durable changes are visible");
        for (snapshot, rows) in &self.snapshots {
            assert_eq!(&all_rows!(snapshot), rows, "a snapshot does not change");
        }
    }

    /// Crashes the machine. Acknowledged changes must be there, and a prefix of the others.
    fn crash(&mut self) {
        self.snapshots.clear();
        let image = self.machine.crash(self.random.random());
        let machine = SimStore::open(image, options()).unwrap();
        let version = machine.store().status().version;
        assert!(version >= self.acknowledged, "{} was acknowledged, {version} is there", self.acknowledged);
        let (found, mut expected) = (all_rows!(machine.store()), self.rows.clone());
        let mut pending = self.uncertain.drain(..).chain(self.submitted.drain(..));
        while found != expected {
            let next = pending.next().unwrap_or_else(|| panic!("found {found:?}, which never was"));
            next.apply(&mut expected);
        }
        drop(pending);
        (self.machine, self.rows, self.acknowledged) = (machine, expected, version);
        (self.limited, self.may_be_full) = (false, false);
        // Replies of the stopped machine do not count.
        self.replies = Arc::default();
        self.sequence = (self.sequence.0 + 1, RowSequence::new());
    }

    /// With room, all waiting changes are applied.
    fn finish(&mut self) {
        self.machine.set_room(None);
        self.limited = false;
        for _ in 0..20 {
            self.install();
            self.force();
        }
        assert!(self.submitted.is_empty(), "changes wait although there is room");
        self.crash();
    }
}

/// One run, with or without a planted bug.
fn run(seed: u64, bug: Option<Bug>) -> std::thread::Result<()> {
    let _planted = bug.map(plant);
    std::panic::catch_unwind(|| {
        let mut run = Run::new(seed);
        (0..STEPS).for_each(|_| run.step());
        run.finish();
    })
}

#[test]
fn rows_are_the_model_on_a_machine_that_runs_full_and_crashes() {
    for seed in 0..SEEDS {
        run(seed, None).unwrap_or_else(|_| panic!("seed {seed}"));
    }
}

#[test]
fn every_planted_bug_is_noticed() {
    let unnoticed: Vec<_> =
        Bug::ALL.iter().filter(|bug| (0..SEEDS).all(|seed| run(seed, Some(**bug)).is_ok())).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?} were not noticed in {SEEDS} runs");
}
