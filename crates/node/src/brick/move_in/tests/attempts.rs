//! Random attempts: requests and answers are lost, repeated and late, attempts fail, and the node changes meanwhile.

use std::panic::{self, AssertUnwindSafe};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::brick::move_in::attempt::{Action, Attempt, Event};

/// Objects of the node.
const OBJECTS: u64 = 60;
/// Runs without planted bugs, and most runs until a planted bug is noticed.
const SEEDS: u64 = 40;
const MAX_SEEDS: u64 = 60;

/// The map of a move: the epoch under which the old brick serves the node, and the seal.
fn map(epoch: u64, sealed: Option<u64>) -> PlacementSnapshot {
    PlacementSnapshot {
        nodes: match sealed {
            Some(_) => BTreeMap::new(),
            None => [(NODE, NodePlacement { brick: OLD, epoch, moves: 0 })].into(),
        },
        moving: [(NODE, Transfer { from: OLD, to: NEW, sealed })].into(),
        ..PlacementSnapshot::default()
    }
}

fn object(number: u64) -> Oid {
    Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NODE, number }, 1)
}

/// A move, and the sizes of the existing objects.
struct Move {
    rng: StdRng,
    world: MoveWorld,
    epoch: u64,
    sealed: Option<u64>,
    now: Ms,
    transactions: u64,
    sizes: BTreeMap<u64, usize>,
    asked: Vec<CopyRows>,
}

impl Move {
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Writes or removes some objects at the old brick, if it serves the node.
    fn commit_some(&mut self, count: u64) {
        let post = PeerHandle::new(Arc::default());
        for _ in 0..count {
            let number = self.rng.random_range(1..=OBJECTS);
            let size = if self.chance(30) { None } else { Some(self.rng.random_range(1..300_usize)) };
            self.transactions += 1;
            let old = &self.world.old;
            let txn = TxnId { start: HlcTimestamp::at(old.time.now()), client: ClientId(self.transactions) };
            let content = match size {
                Some(size) => ObjectState::Value(Object::blob(vec![7; size].into())),
                None => ObjectState::Absent,
            };
            let part = Part { writes: [(object(number), content)].into(), ..Part::default() };
            let request = Asked::Commit { txn, part };
            let ask = Message::Ask { node: NODE, epoch: self.epoch, seen: HlcTimestamp::ZERO, request };
            old.handle_message(&post, ask).unwrap();
            if let Ok(Some(Outcome::Committed(_))) = old.with_driver(NODE, |driver| Ok(driver.outcome(txn))) {
                match size {
                    Some(size) => drop(self.sizes.insert(number, size)),
                    None => drop(self.sizes.remove(&number)),
                }
            }
        }
    }

    /// Sends a request to the old brick, perhaps after an old one. The request or the answer may be lost.
    fn ask(&mut self, asked: CopyRows) -> Event {
        let lost = |kind| Event::AnswerFailed { error: Error::new(kind, "lost"), is_moving: true };
        if self.chance(15) && !self.asked.is_empty() {
            let early = self.rng.random_range(0..self.asked.len());
            drop(self.world.old.copy_rows(&self.asked[early]));
        }
        self.asked.push(asked.clone());
        if self.chance(15) {
            return lost(ErrorKind::Unavailable);
        }
        match self.world.old.copy_rows(&asked) {
            Ok(_) if self.chance(15) => lost(ErrorKind::Unknown),
            Ok(copied) => Event::Answered(copied),
            Err(error) => Event::AnswerFailed { error, is_moving: true },
        }
    }

    /// Carries out an action of an attempt; returns `None` if the attempt fails.
    async fn act(&mut self, action: Action) -> Option<Event> {
        Some(match action {
            Action::Unseal(_) => {
                self.epoch += 2;
                self.sealed = None;
                follow(&self.world.old, map(self.epoch, None)).await;
                Event::Done
            }
            Action::MarkIncomplete => {
                self.world.new.set_seal(NODE, INCOMPLETE_COPY).unwrap();
                Event::Done
            }
            Action::RemoveRows => Event::Removed(self.world.new.remove_rows(NODE).unwrap()),
            Action::Ask(asked) => self.ask(asked),
            Action::Write { .. } if self.chance(4) => return None,
            Action::Write { rows, sealed } => {
                self.world.new.write_rows(NODE, rows, sealed).unwrap();
                Event::Done
            }
            Action::Seal => {
                self.sealed = Some(self.epoch + 1);
                follow(&self.world.old, map(self.epoch, self.sealed)).await;
                Event::Done
            }
            Action::Rest(ms) => {
                self.now += ms;
                Event::Done
            }
            Action::End { .. } => return None,
        })
    }

    /// Runs one attempt. Returns the epoch of the seal if it has taken the node over.
    async fn attempt(&mut self, number: u64) -> Option<u64> {
        let seals = (self.sealed, self.world.new.seal_of(NODE).unwrap());
        let (mut attempt, mut action) = Attempt::begin((NODE, NEW), number, seals, self.now);
        loop {
            self.now += 1;
            if self.chance(40) {
                let count = self.rng.random_range(1..5);
                self.commit_some(count);
            }
            if let Action::End { epoch, .. } = action {
                return Some(epoch);
            }
            let event = self.act(action).await?;
            action = attempt.handle(event, self.now).ok()?;
        }
    }

    async fn run(seed: u64) -> CheckResult {
        let world = MoveWorld::begin().await;
        let mut one = Self {
            rng: StdRng::seed_from_u64(seed),
            world,
            epoch: AT_OLD,
            sealed: None,
            now: 1_000,
            transactions: 0,
            sizes: BTreeMap::new(),
            asked: Vec::new(),
        };
        one.commit_some(100);
        follow(&one.world.old, map(one.epoch, None)).await;
        let mut taken_over = None;
        for number in 1..200 {
            taken_over = one.attempt(number).await;
            if taken_over.is_some() {
                break;
            }
        }
        let Some(sealed) = taken_over else { return Err("the move never ends".to_owned()) };
        let after = PlacementSnapshot {
            nodes: [(NODE, NodePlacement { brick: NEW, epoch: sealed + 1, moves: 1 })].into(),
            ..PlacementSnapshot::default()
        };
        follow(&one.world.new, after).await;
        for number in 1..=OBJECTS {
            let read = one.world.new.read_latest(object(number), |stored| stored.map(|stored| stored.data.len()));
            let found = read.map_err(|error| error.to_string())?;
            if found.as_ref() != one.sizes.get(&number) {
                let expected = one.sizes.get(&number);
                return Err(format!(
                    "M1: object {number} has {found:?} bytes after the move, and must have {expected:?}"
                ));
            }
        }
        Ok(())
    }
}

fn run(seed: u64) -> CheckResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(Move::run(seed))
}

#[test]
fn moved_node_has_all_committed_objects_despite_lost_messages() {
    for seed in 0..SEEDS {
        run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn planted_bugs_in_attempts_are_noticed() {
    let bugs = [Bug::OldCopyKept, Bug::ChangesForgotten];
    let is_noticed = |bug| {
        (0..MAX_SEEDS).any(|seed| {
            let _planted = plant(bug);
            let found = panic::catch_unwind(AssertUnwindSafe(|| run(seed)));
            !matches!(found, Ok(Ok(())))
        })
    };
    let unnoticed: Vec<Bug> = bugs.into_iter().filter(|bug| !is_noticed(*bug)).collect();
    assert!(unnoticed.is_empty(), "not noticed in {MAX_SEEDS} runs: {unnoticed:?}");
}
