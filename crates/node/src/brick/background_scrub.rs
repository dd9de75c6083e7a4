//! The scrub that runs in a brick's process: slowly, all the time, again and again.
//!
//! ```text
//!   waiting ── period over ─▶ a round: logical node after logical node, portion after portion ─▶ waiting
//!                                │ rests behind each portion
//! ```
//!
//! 1. A round reads every page of the B-tree and compares it with its checksum: with rows, inner pages, values on pages of their own, the map of used
//!    pages and the header. Then it compares the rows of every logical node that is served [with each other](super::consistency), and reads the bytes of all
//!    contents. What is read is compared with its checksums.
//! 2. Behind each portion it rests as long as the portion's bytes take at the rate that is set, and at least four times as long as the
//!    portion took. So it takes a fifth of a processor and of a disk at most, and less when others use them.
//! 3. A row of the store keeps the place and what was found, so a restart continues the round.
//! 4. What it finds is logged, counted in metrics, and makes the brick report a problem until a later round, or `mortar scrub`, finds
//!    nothing. It changes nothing itself.
//!
//! [`Scrubber::step`] does one portion and knows no clock or thread; the thread around it decides how fast it goes and when it stops.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BufMut};
use model::{NodeId, Result};
use store::{RowChanges, Store};
use tracing::{error, info, warn};

use super::consistency::{NodeCheck, Place, Problem, Severity, Walk};
use super::nodes::Nodes;
use crate::server::Metric;

/// The row that keeps the state.
const ROW: &[u8] = b"scrub";
const FORMAT: u8 = 2;
/// An earlier format, which has no place in the B-tree.
const FORMAT_WITHOUT_TREE: u8 = 1;
/// Bytes of pages of the B-tree in one portion, about.
const TREE_PORTION: u64 = 1 << 20;
/// How often the state is written while a round runs.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);
/// The longest pause before the thread looks again whether a round is due, and the pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How many times as long as a portion took the scrub rests behind it, at least.
const REST: u32 = 4;
/// Most problems of a round that are logged one by one.
const MAX_LOGGED: u64 = 100;
/// Bytes that are kept of the description of the first problem.
const FIRST_BYTES: usize = 500;

/// How a brick scrubs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubSettings {
    /// How many MiB it reads in a second at most; 0 if it does not scrub itself.
    pub mib_s: u32,
    /// The time from the beginning of a round to that of the next one.
    pub period: Duration,
    /// How long the process has run before a round begins, or goes on.
    pub delay: Duration,
}

impl Default for ScrubSettings {
    fn default() -> Self {
        Self { mib_s: 8, period: Duration::from_secs(7 * 24 * 3600), delay: Duration::from_secs(600) }
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    damage: u64,
    dangling: u64,
    /// The first damage, in words.
    first: String,
}

/// A round on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Round {
    /// When it began, in seconds since 1970.
    started_s: u64,
    /// The key of the B-tree from which on its pages are checked; `None` when all were.
    tree: Option<Vec<u8>>,
    /// Whether pages with rows are damaged: reading such a row is no further damage.
    has_unreadable_rows: bool,
    /// The logical node that is checked, and where.
    node: NodeId,
    place: Place,
    bytes: u64,
    found: Found,
}

/// A round that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FinishedRound {
    started_s: u64,
    ended_s: u64,
    bytes: u64,
    found: Found,
}

/// What is kept in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    rounds: u64,
    last: FinishedRound,
    running: Option<Round>,
}

/// Scrubs portion by portion.
#[derive(Default)]
pub(crate) struct Scrubber {
    kept: Kept,
    /// The walk through the logical node of the round; `None` before its first portion since the start.
    walk: Option<Walk>,
}

impl Scrubber {
    /// The scrubber with the state that a store keeps.
    ///
    /// # Errors
    /// If the row cannot be read. A row of another format counts as none.
    pub(super) fn open(store: &Store) -> Result<Self> {
        let kept = store.row(ROW)?.and_then(|row| Kept::decode(&row)).unwrap_or_default();
        Ok(Self { kept, walk: None })
    }

    /// When the next round begins, in seconds since 1970; `None` if one is running.
    fn due(&self, period: Duration) -> Option<u64> {
        let is_first = self.kept.rounds == 0;
        let due = if is_first { 0 } else { self.kept.last.started_s.saturating_add(period.as_secs()) };
        self.kept.running.is_none().then_some(due)
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, now_s: u64) {
        let (node, place) = (NodeId(0), Place::first());
        let (tree, has_unreadable_rows, found) = (Some(Vec::new()), false, Found::default());
        self.kept.running = Some(Round { started_s: now_s, tree, has_unreadable_rows, node, place, bytes: 0, found });
        self.walk = None;
    }

    /// Checks the next portion of the round. Returns how many bytes were read; `None` if the round has ended.
    ///
    /// # Errors
    /// If rows cannot be read for another reason than damage.
    pub(super) fn step(&mut self, nodes: &Nodes) -> Result<Option<u64>> {
        let Some(round) = &mut self.kept.running else { return Ok(None) };
        if let Some(from) = &round.tree {
            let part = nodes.store.check_tree(from, TREE_PORTION)?;
            part.damage.iter().for_each(|what| round.found.add_damage("page_damaged", what));
            round.has_unreadable_rows |= part.has_unreadable_rows;
            round.bytes += part.bytes;
            round.tree = part.next;
            return Ok(Some(part.bytes));
        }
        let served = nodes.served_epochs();
        let Some((node, epoch)) = served.iter().copied().find(|(node, _)| *node >= round.node) else {
            return Ok(None);
        };
        if node != round.node {
            (round.node, round.place) = (node, Place::first());
            self.walk = None;
        }
        let is_unique = |space, index| nodes.is_unique(space, index);
        let check = NodeCheck { store: &nodes.store, node, is_unique: &is_unique, reads_contents: true };
        let walk = self.walk.get_or_insert_with(|| Walk::from(round.place.clone()));
        let portion = walk.step(&check)?;
        let is_served = nodes.served_epochs().contains(&(node, epoch));
        let Some(portion) = portion.filter(|_| is_served) else {
            // It has moved away, and may come back incomplete.
            (round.node, round.place) = (NodeId(node.0 + 1), Place::first());
            self.walk = None;
            return Ok(Some(0));
        };
        round.bytes += portion.bytes;
        for problem in &portion.problems {
            let is_known = matches!(problem, Problem::RowDamaged { is_unreadable_part: true, .. });
            if !(is_known && round.has_unreadable_rows) {
                round.found.add(problem, &check);
            }
        }
        match portion.next {
            Some(next) => round.place = next,
            None => {
                (round.node, round.place) = (NodeId(node.0 + 1), Place::first());
                self.walk = None;
            }
        }
        Ok(Some(portion.bytes))
    }

    /// The round has ended.
    fn finish(&mut self, now_s: u64) {
        let Some(Round { started_s, bytes, found, .. }) = self.kept.running.take() else { return };
        info!(bytes, damage = found.damage, dangling = found.dangling, "the brick has scrubbed itself");
        self.kept.rounds += 1;
        self.kept.last = FinishedRound { started_s, ended_s: now_s, bytes, found };
    }

    pub(super) fn save(&self, store: &Store) {
        let mut changes = RowChanges::new();
        changes.put(ROW, self.kept.encode().into());
        if let Err(error) = store.commit_rows(changes) {
            warn!(%error, "the place of the scrub cannot be written");
        }
    }

    /// How much damage the round has found, and the first, in words.
    #[cfg(test)]
    pub(super) fn found_damage(&self) -> (u64, String) {
        let found = self.kept.running.as_ref().map_or(&self.kept.last.found, |round| &round.found);
        (found.damage, found.first.clone())
    }

    /// The bytes that the status shows as read.
    #[cfg(test)]
    pub(super) fn shown_bytes(&self) -> u64 {
        self.summary().bytes
    }

    /// What is kept in the store, as text.
    #[cfg(test)]
    pub(super) fn kept_text(&self) -> String {
        format!("{:?}", self.kept)
    }

    /// What others see of it.
    fn summary(&self) -> Shown {
        let Kept { last, running, .. } = &self.kept;
        // What was found last: in the round that runs, else in the last one.
        let found = running.as_ref().map(|round| &round.found).filter(|found| found.damage > 0).unwrap_or(&last.found);
        Shown {
            found: found.clone(),
            is_running: running.is_some(),
            bytes: running.as_ref().map_or(last.bytes, |round| round.bytes),
            ended_s: last.ended_s,
        }
    }
}

/// What the status and the metrics of a brick show of its scrub.
#[derive(Clone, Debug, Default)]
struct Shown {
    found: Found,
    is_running: bool,
    /// Bytes that the running round has read, else the last one.
    bytes: u64,
    ended_s: u64,
}

impl Found {
    fn add(&mut self, problem: &Problem, check: &NodeCheck<'_>) {
        if problem.severity() == Severity::Dangling {
            self.dangling += 1;
            return;
        }
        if self.damage >= MAX_LOGGED {
            self.damage += 1;
            return;
        }
        let content = if let Problem::ContentDamaged { content, .. } = problem { Some(*content) } else { None };
        let owner = content.and_then(|content| check.find_owner(content).ok().flatten());
        let object = problem.object().or(owner).map(|oid| format!("object {oid}: ")).unwrap_or_default();
        self.add_damage(problem.kind(), &format!("{object}{problem}"));
    }

    fn add_damage(&mut self, kind: &str, what: &str) {
        self.damage += 1;
        if self.damage <= MAX_LOGGED {
            error!(kind, "the scrub of the brick found damage: {what}");
        }
        if self.first.is_empty() {
            self.first = what.chars().take(FIRST_BYTES / 4).collect();
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.damage);
        out.put_u64(self.dangling);
        put_bytes(out, self.first.as_bytes());
    }

    fn decode(row: &mut &[u8]) -> Option<Self> {
        let (damage, dangling) = (row.try_get_u64().ok()?, row.try_get_u64().ok()?);
        Some(Self { damage, dangling, first: String::from_utf8(take_bytes(row)?.to_vec()).ok()? })
    }
}

impl Kept {
    /// The value of the row: format 1, rounds 8, the last round, 1 and the running round or 0. A round has its times, bytes, and what was
    /// found; a running one the logical node and the place, too, and flags (1: pages are still checked, 2: pages with rows are damaged) with the key
    /// from which on pages are checked. The earlier format 1 has no flags and no key.
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.put_u64(self.rounds);
        [self.last.started_s, self.last.ended_s, self.last.bytes].into_iter().for_each(|number| out.put_u64(number));
        self.last.found.encode(&mut out);
        out.put_u8(u8::from(self.running.is_some()));
        if let Some(round) = &self.running {
            out.put_u64(round.started_s);
            out.put_u64(round.bytes);
            out.put_u32(round.node.0);
            put_bytes(&mut out, &round.place.encode());
            round.found.encode(&mut out);
            out.put_u8(u8::from(round.has_unreadable_rows) * 2 + u8::from(round.tree.is_some()));
            put_bytes(&mut out, round.tree.as_deref().unwrap_or_default());
        }
        out
    }

    fn decode(mut row: &[u8]) -> Option<Self> {
        let row = &mut row;
        let format = row.try_get_u8().ok()?;
        if ![FORMAT, FORMAT_WITHOUT_TREE].contains(&format) {
            return None;
        }
        let mut number = || row.try_get_u64().ok();
        let (rounds, started_s, ended_s, bytes) = (number()?, number()?, number()?, number()?);
        let last = FinishedRound { started_s, ended_s, bytes, found: Found::decode(row)? };
        let running = match row.try_get_u8().ok()? {
            0 => None,
            _ => {
                let (started_s, bytes) = (row.try_get_u64().ok()?, row.try_get_u64().ok()?);
                let node = NodeId(row.try_get_u32().ok()?);
                let place = Place::decode(take_bytes(row)?);
                let found = Found::decode(row)?;
                let (mut tree, mut has_unreadable_rows) = (None, false);
                if format == FORMAT {
                    let flags = row.try_get_u8().ok()?;
                    let from = take_bytes(row)?.to_vec();
                    (tree, has_unreadable_rows) = ((flags & 1 != 0).then_some(from), flags & 2 != 0);
                }
                Some(Round { started_s, tree, has_unreadable_rows, node, place, bytes, found })
            }
        };
        Some(Self { rounds, last, running })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Keys and texts are far below 64 KiB.
    out.put_u16(bytes.len() as u16);
    out.put_slice(bytes);
}

fn take_bytes<'a>(row: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::from(row.try_get_u16().ok()?);
    let (bytes, rest) = row.split_at_checked(len)?;
    *row = rest;
    Some(bytes)
}

/// The scrub of a brick, for its thread, the status and the metrics.
pub(crate) struct BackgroundScrub {
    settings: ScrubSettings,
    opened_at: Instant,
    /// Locked for as long as a portion takes.
    scrubber: Mutex<Scrubber>,
    /// As of the last portion: the status and the metrics do not wait for the next one.
    shown: Mutex<Shown>,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// Ends the thread of a scrub when it is dropped.
pub(crate) struct RunningScrub {
    scrub: Arc<BackgroundScrub>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundScrub {
    /// The scrub of a store.
    pub(crate) fn open(store: &Store, settings: ScrubSettings) -> Arc<Self> {
        let scrubber = Scrubber::open(store).unwrap_or_else(|error| {
            warn!(%error, "the place of the scrub cannot be read: it begins anew");
            Scrubber::default()
        });
        let (shown, scrubber) = (Mutex::new(scrubber.summary()), Mutex::new(scrubber));
        let (opened_at, stopped, stop) = (Instant::now(), Mutex::new(false), Condvar::new());
        Arc::new(Self { settings, opened_at, scrubber, shown, stopped, stop })
    }

    /// Starts the thread. A brick in memory, or without a rate, has none.
    pub(crate) fn start(self: &Arc<Self>, nodes: &Arc<Nodes>) -> RunningScrub {
        let is_off = self.settings.mib_s == 0 || nodes.store.is_in_memory();
        let (scrub, nodes) = (self.clone(), Arc::downgrade(nodes));
        let run = move || scrub.run(&nodes);
        let thread = (!is_off).then(|| thread::Builder::new().name("mortar-scrub".to_owned()).spawn(run));
        let thread = thread.transpose().unwrap_or_else(|error| {
            warn!(%error, "a thread cannot be started: the brick does not scrub itself");
            None
        });
        RunningScrub { scrub: self.clone(), thread }
    }

    fn lock(&self) -> MutexGuard<'_, Scrubber> {
        self.scrubber.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, scrubber: &Scrubber) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = scrubber.summary();
    }

    fn summary(&self) -> Shown {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn run(&self, nodes: &Weak<Nodes>) {
        let mut saved_at = Instant::now();
        loop {
            let Some(serving) = nodes.upgrade() else { return };
            let pause = self.turn(&serving, &mut saved_at);
            drop(serving);
            if self.is_stopped_within(pause) {
                let scrubber = self.lock();
                if let Some(serving) = nodes.upgrade().filter(|_| scrubber.kept.running.is_some()) {
                    scrubber.save(&serving.store);
                }
                return;
            }
        }
    }

    /// Does what is due. Returns how long to rest.
    fn turn(&self, nodes: &Nodes, saved_at: &mut Instant) -> Duration {
        let (now_s, started) = (now_s(), Instant::now());
        let early = self.settings.delay.saturating_sub(self.opened_at.elapsed());
        // A round that was interrupted goes on when the logical nodes are served again.
        if !early.is_zero() || nodes.served_epochs().is_empty() {
            return if early.is_zero() { LONGEST_PAUSE } else { early.min(LONGEST_PAUSE) };
        }
        let mut scrubber = self.lock();
        if let Some(due) = scrubber.due(self.settings.period) {
            let pause = Duration::from_secs(due.saturating_sub(now_s));
            if !pause.is_zero() {
                return pause.min(LONGEST_PAUSE);
            }
            scrubber.begin(now_s);
        }
        let stepped = scrubber.step(nodes);
        if let Ok(None) = stepped {
            scrubber.finish(now_s);
        }
        self.show(&scrubber);
        match stepped {
            Ok(Some(bytes)) => {
                if saved_at.elapsed() >= SAVE_INTERVAL {
                    scrubber.save(&nodes.store);
                    *saved_at = Instant::now();
                }
                self.rest(bytes, started.elapsed())
            }
            Ok(None) => {
                scrubber.save(&nodes.store);
                Duration::ZERO
            }
            Err(error) => {
                warn!(%error, "the brick cannot scrub itself now");
                LONGEST_PAUSE
            }
        }
    }

    /// How long to rest behind a portion of this size that took so long.
    fn rest(&self, bytes: u64, took: Duration) -> Duration {
        let by_rate = Duration::from_secs_f64(bytes as f64 / (f64::from(self.settings.mib_s) * f64::from(1 << 20)));
        by_rate.saturating_sub(took).max(took * REST)
    }

    /// Waits. Says whether the scrub is to stop.
    fn is_stopped_within(&self, pause: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.stop.wait_timeout_while(stopped, pause, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// A whole scrub that was asked for has found this many damages: that counts from now on. It waits for the portion that is being read.
    pub(crate) fn report_whole(&self, store: &Store, damage: u64, dangling: u64, first: Option<String>) {
        let mut scrubber = self.lock();
        let found =
            Found { damage, dangling, first: first.unwrap_or_default().chars().take(FIRST_BYTES / 4).collect() };
        let running = scrubber.kept.running.as_ref().map(|round| &round.found);
        if scrubber.kept.last.found == found && running.is_none_or(|running| *running == found) {
            return;
        }
        if let Some(round) = &mut scrubber.kept.running {
            round.found = found.clone();
        }
        scrubber.kept.last.found = found;
        self.show(&scrubber);
        scrubber.save(store);
    }

    /// What is wrong, in words, if something is.
    pub(crate) fn health_problem(&self) -> Option<String> {
        let Found { damage, first, .. } = self.summary().found;
        (damage > 0).then(|| format!("a scrub found {damage} damaged: `mortar scrub` lists them; the first is {first}"))
    }

    /// The metrics of what it has found.
    pub(super) fn found_metrics(&self) -> [Metric; 2] {
        let Found { damage, dangling, .. } = self.summary().found;
        [
            Metric::gauge("scrub_damage", damage, "Damage that the scrub has found and no later one found gone."),
            Metric::gauge("scrub_dangling", dangling, "Entries that lead to objects that do not exist."),
        ]
    }

    /// The metrics of how it proceeds and of what it has found.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let Shown { is_running, bytes, ended_s, .. } = self.summary();
        let mut metrics = vec![
            Metric::gauge("scrub_running", u64::from(is_running), "Whether the brick is scrubbing itself now."),
            Metric::gauge(
                "scrub_bytes",
                bytes,
                "Bytes that the running round of the scrub has read, else the last one.",
            ),
            Metric::gauge("scrub_ended_seconds", ended_s, "When the last round ended, in seconds since 1970."),
        ];
        metrics.extend(self.found_metrics());
        metrics
    }
}

impl Drop for RunningScrub {
    fn drop(&mut self) {
        *self.scrub.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.scrub.stop.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the thread of the scrub has panicked");
        }
    }
}

/// The time in seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round() -> Round {
        let found = Found { damage: 2, dangling: 3, first: "object 1".to_owned() };
        let place = Place::decode(b"Kplace");
        let tree = Some(b"key".to_vec());
        Round { started_s: 5, tree, has_unreadable_rows: true, node: NodeId(7), place, bytes: 99, found }
    }

    #[test]
    fn state_is_kept_over_a_restart() {
        let last = FinishedRound { started_s: 1, ended_s: 2, bytes: 3, found: round().found };
        let checked = Round { tree: None, has_unreadable_rows: false, ..round() };
        for running in [None, Some(round()), Some(checked)] {
            let kept = Kept { rounds: 4, last: last.clone(), running };
            let row = kept.encode();
            assert_eq!(Kept::decode(&row), Some(kept));
            (0..row.len()).for_each(|len| assert_eq!(Kept::decode(&row[..len]), None, "{len}"));
        }
        assert_eq!(Kept::decode(b"\x03other"), None, "of another format");
    }

    #[test]
    fn state_of_an_earlier_version_is_read() {
        let running = Round { tree: None, has_unreadable_rows: false, ..round() };
        let kept = Kept { rounds: 4, last: FinishedRound::default(), running: Some(running) };
        let mut row = kept.encode();
        row[0] = FORMAT_WITHOUT_TREE;
        // The flags, and the length of no key.
        row.truncate(row.len() - 3);
        assert_eq!(Kept::decode(&row), Some(kept));
    }

    #[test]
    fn next_round_is_due_a_period_after_the_last_one_began() {
        let period = Duration::from_secs(100);
        let mut scrubber = Scrubber::default();
        assert_eq!(scrubber.due(period), Some(0), "the first one begins at once");
        scrubber.begin(1_000);
        assert_eq!(scrubber.due(period), None, "it is running");
        scrubber.finish(1_050);
        assert_eq!((scrubber.due(period), scrubber.kept.rounds), (Some(1_100), 1));
    }

    #[test]
    fn it_rests_for_the_rate_and_longer_if_a_portion_took_long() {
        let store = Store::in_memory(store::Options::default()).unwrap();
        let scrub = BackgroundScrub::open(&store, ScrubSettings { mib_s: 2, ..ScrubSettings::default() });
        let ms = Duration::from_millis;
        assert_eq!(scrub.rest(1 << 20, ms(10)), ms(490));
        assert_eq!(scrub.rest(1 << 20, ms(300)), ms(1_200));
        assert_eq!(scrub.rest(0, ms(5)), ms(20));
    }

    #[test]
    fn whole_scrub_replaces_what_was_found() {
        let store = Store::in_memory(store::Options::default()).unwrap();
        let scrub = BackgroundScrub::open(&store, ScrubSettings::default());
        scrub.report_whole(&store, 2, 0, Some("object 1".to_owned()));
        assert!(scrub.health_problem().unwrap().contains("object 1"));
        let again = BackgroundScrub::open(&store, ScrubSettings::default());
        assert_eq!(again.health_problem(), scrub.health_problem(), "after a restart");
        again.report_whole(&store, 0, 5, None);
        assert_eq!(again.health_problem(), None);
    }

    #[test]
    fn damage_of_the_last_round_is_shown_until_the_next_one_finds_some_or_ends() {
        let found = |damage| Found { damage, ..Found::default() };
        let mut scrubber = Scrubber::default();
        let set_found = |scrubber: &mut Scrubber, damage| {
            scrubber.kept.running.as_mut().unwrap().found = found(damage);
        };
        scrubber.begin(1);
        set_found(&mut scrubber, 2);
        assert_eq!(scrubber.summary().found, found(2), "at once");
        scrubber.finish(5);
        assert_eq!((scrubber.summary().found, scrubber.summary().ended_s), (found(2), 5));
        scrubber.begin(7);
        assert!(scrubber.summary().is_running && scrubber.summary().found == found(2), "it has not got there yet");
        set_found(&mut scrubber, 1);
        assert_eq!(scrubber.summary().found, found(1));
        set_found(&mut scrubber, 0);
        scrubber.finish(9);
        assert_eq!(scrubber.summary().found, found(0));
    }
}
