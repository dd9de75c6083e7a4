//! Simulates the openings of one brick: crashes at every step, directories that go back, and copies that are started beside the
//! original. Rule K3.
//!
//! It runs the machines that ship ([`meta::opening`]): the procedure of a brick that opens, the history in its log, the record of the
//! catalogue, and what witnesses remember. Processes, disks, the catalogue and connections are simulated here. What must hold:
//!
//! 1. A directory that was never replaced or copied is opened again after every crash.
//! 2. A directory that lacks a write which a living witness saw is not served, and does not end what is served. It ends when it is
//!    served and a witness returns that was away and saw a write which it lacks.
//! 3. Of two processes of the brick, none has an acknowledgement believed after the other had one, except the one that opened last;
//!    and it has one only if it has everything that was acknowledged under earlier openings and that a witness saw.
//! 4. The directory that served last is opened again, unless a later opening got as far as its own log, or a repair gave up some of its writes.

use std::collections::BTreeMap;

use meta::opening::plant::Bug;
use meta::opening::{
    ForcedPosition, LogState, Opening, OpeningHistory, OpeningProcedure, OpeningRecord, OpeningRefusal, OpeningStep,
    Subject, Witnesses,
};
use model::planted_bug::planted;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const BRICK: Subject = Subject::Brick(1);
/// Processes that see positions of the brick's log.
const WITNESSES: usize = 3;
/// Connections of each witness to the brick.
const CONNECTIONS: usize = 2;

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub struct OpeningPlan {
    /// Steps of the run.
    pub steps: u32,
    /// Whether directories go back in time.
    pub goes_back: bool,
    /// Whether copies are started beside the original.
    pub has_twins: bool,
    /// Whether repairs give up writes.
    pub has_repairs: bool,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningCounts {
    /// Openings that ended in serving.
    pub served: u64,
    /// Openings that crashed on the way.
    pub crashed: u64,
    /// Openings that were refused.
    pub refused: u64,
    /// Acknowledgements that were believed.
    pub acknowledged: u64,
}

/// A directory: what is forced.
#[derive(Clone, Debug, Default)]
struct Disk {
    history: Vec<u8>,
    /// The numbers of the writes in the log. Directories that differ have other numbers at the same position.
    log: Vec<u64>,
    /// Whether it is the only directory of the brick and was never replaced by an older one.
    is_honest: bool,
    /// Whether a repair gave up some of its writes.
    has_lost: bool,
}

impl Disk {
    /// The position at which the log ends.
    fn position(&self) -> u64 {
        self.log.len() as u64
    }

    /// Whether the log has what a witness saw.
    fn has(&self, seen: Option<SeenWrite>) -> bool {
        seen.is_none_or(|seen| self.log.get(seen.position as usize - 1) == Some(&seen.write))
    }
}

/// A write that a witness knows, at a position of at least 1.
#[derive(Clone, Copy, Debug)]
struct SeenWrite {
    position: u64,
    write: u64,
}

/// A process of the brick.
#[derive(Clone, Debug)]
struct Process {
    disk: usize,
    opening: OpeningProcedure,
    /// Set once it serves.
    serving: Option<Opening>,
    /// Witnesses that have not been asked yet in this step.
    left: Vec<usize>,
    /// Whether a witness knew more when it was started: then it must change nothing.
    is_behind: bool,
}

/// An acknowledgement on its way to a witness.
#[derive(Clone, Copy, Debug)]
struct Answer {
    to: usize,
    forced: ForcedPosition,
    write: u64,
}

/// The world of a run.
struct World {
    rng: StdRng,
    plan: OpeningPlan,
    record: Option<OpeningRecord>,
    disks: Vec<Disk>,
    /// Older states of directories.
    images: Vec<Disk>,
    processes: BTreeMap<usize, Process>,
    witnesses: Vec<Witnesses>,
    /// Witnesses that are stopped, and whose entries in the catalogue have expired.
    away: Vec<bool>,
    /// The openings that each witness is connected to: their processes compared their logs with what it saw.
    connected: Vec<Vec<Opening>>,
    /// The last position that each witness got on each of its connections and has not noted yet.
    received: Vec<[Option<ForcedPosition>; CONNECTIONS]>,
    /// The last write that each witness saw and has to remember.
    seen: Vec<Option<SeenWrite>>,
    /// Writes so far.
    writes: u64,
    answers: Vec<Answer>,
    /// The last opening of which an acknowledgement was believed.
    last_believed: Option<Opening>,
    /// The last opening that served.
    last_served: Option<Opening>,
    counts: OpeningCounts,
}

/// Runs a plan from a seed.
///
/// # Errors
/// What does not hold.
pub fn simulate_openings(plan: OpeningPlan, seed: u64) -> Result<OpeningCounts, String> {
    let mut world = World {
        rng: StdRng::seed_from_u64(seed),
        plan,
        record: None,
        disks: vec![Disk { is_honest: true, ..Disk::default() }],
        images: Vec::new(),
        processes: BTreeMap::new(),
        witnesses: vec![Witnesses::default(); WITNESSES],
        away: vec![false; WITNESSES],
        connected: vec![Vec::new(); WITNESSES],
        received: vec![[None; CONNECTIONS]; WITNESSES],
        seen: vec![None; WITNESSES],
        writes: 0,
        answers: Vec::new(),
        last_believed: None,
        last_served: None,
        counts: OpeningCounts::default(),
    };
    for step in 0..plan.steps {
        world.step().map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    Ok(world.counts)
}

impl World {
    fn step(&mut self) -> Result<(), String> {
        match self.rng.random_range(0..100) {
            0..20 => self.start(),
            20..60 => self.advance(),
            60..72 => {
                self.write();
                Ok(())
            }
            72..84 => self.deliver(),
            84..88 => {
                self.crash();
                Ok(())
            }
            88..89 => {
                self.lose_witness();
                Ok(())
            }
            89..94 => self.pause_witness(),
            94 => {
                let witness = self.rng.random_range(0..WITNESSES);
                if !self.away[witness] {
                    self.follow_catalogue(witness);
                }
                Ok(())
            }
            _ => {
                self.disturb();
                Ok(())
            }
        }
    }

    /// Starts a process on a directory that has none.
    fn start(&mut self) -> Result<(), String> {
        let disk = self.rng.random_range(0..self.disks.len());
        if self.processes.contains_key(&disk) {
            return Ok(());
        }
        let state = &self.disks[disk];
        let history = match state.history.is_empty() {
            true => OpeningHistory::default(),
            false => OpeningHistory::decode(&state.history).map_err(|error| error.to_string())?,
        };
        // The first witness forgets nothing, so it knows that until the end.
        let is_behind = !state.has(self.seen[0]);
        let log = LogState { position: state.position(), has_lost: state.has_lost };
        match OpeningProcedure::begin(&history, self.record, log, self.rng.random()) {
            Ok(opening) => {
                self.processes.insert(disk, Process { disk, opening, serving: None, left: Vec::new(), is_behind });
                Ok(())
            }
            Err(refusal) => {
                let is_later = |base: Opening| self.last_served.is_some_and(|last| base.number > last.number);
                let is_overtaken = self.record.and_then(|record| record.base).is_some_and(is_later);
                let is_older_image = matches!(refusal, OpeningRefusal::Behind { .. } | OpeningRefusal::Lost);
                let is_last = history.last().is_some() && history.last() == self.last_served;
                if is_last && !is_overtaken && !is_older_image {
                    return Err(format!("the directory that served last was refused: {refusal}"));
                }
                self.refuse(disk, &refusal)
            }
        }
    }

    fn refuse(&mut self, disk: usize, refusal: &OpeningRefusal) -> Result<(), String> {
        self.processes.remove(&disk);
        self.counts.refused += 1;
        match self.disks[disk].is_honest {
            true => Err(format!("an honest start was refused: {refusal}")),
            false => Ok(()),
        }
    }

    /// Carries out a part of a step of a process, which may crash in between.
    fn advance(&mut self) -> Result<(), String> {
        let Some(disk) = self.any_process() else { return Ok(()) };
        let Some(mut process) = self.processes.remove(&disk) else { return Ok(()) };
        if process.serving.is_some() {
            self.processes.insert(disk, process);
            return Ok(());
        }
        if self.rng.random_range(0..12) == 0 {
            self.counts.crashed += 1;
            return Ok(());
        }
        let step = process.opening.step();
        let is_replaced = match &step {
            OpeningStep::Ask | OpeningStep::Announce(_) => return self.ask_next(disk, process, &step),
            OpeningStep::Claim { from, to } => {
                let from = *from;
                self.replace(from, *to)
            }
            OpeningStep::Confirm { from, to } => self.replace(Some(*from), *to),
            OpeningStep::Force(history) => {
                self.disks[process.disk].history = history.encode();
                true
            }
            OpeningStep::Serve { opening, .. } => {
                let opening = *opening;
                process.serving = Some(opening);
                self.processes.insert(disk, process);
                self.counts.served += 1;
                self.last_served = Some(opening);
                return self.check_served(disk, opening);
            }
        };
        if process.opening.handle_done(is_replaced) {
            self.processes.insert(disk, process);
        }
        // Otherwise another process claims; this one ends, and may be started again.
        Ok(())
    }

    /// Compares and sets the record of the catalogue. The witnesses follow the catalogue.
    fn replace(&mut self, from: Option<OpeningRecord>, to: OpeningRecord) -> bool {
        if self.record != from && !planted(Bug::ClaimUnchecked) {
            return false;
        }
        self.record = Some(to);
        true
    }

    /// Asks the next witness, or ends the step if all have answered.
    fn ask_next(&mut self, disk: usize, mut process: Process, step: &OpeningStep) -> Result<(), String> {
        if process.left.is_empty() {
            process.left = (0..WITNESSES).filter(|witness| !self.away[*witness]).collect();
        }
        let Some(witness) = process.left.pop() else { return Ok(()) };
        if self.away[witness] {
            self.processes.insert(disk, process);
            return Ok(());
        }
        (0..CONNECTIONS).for_each(|connection| self.note_received(witness, connection));
        let known = self.witnesses[witness].of(BRICK).to_vec();
        if let OpeningStep::Announce(opening) = step {
            self.witnesses[witness].note_claim(BRICK, *opening);
        }
        if let Some(refusal) = known.iter().find_map(|known| process.opening.handle_seen(known.forced).err()) {
            if process.is_behind && matches!(step, OpeningStep::Announce(_)) {
                return Err("a directory that a witness knew to be older was claimed".to_owned());
            }
            return self.refuse(disk, &refusal);
        }
        if process.left.is_empty() && !process.opening.handle_done(true) {
            return Ok(());
        }
        self.processes.insert(disk, process);
        Ok(())
    }

    /// A process that begins to serve lacks nothing that the catalogue and the first witness know, which were asked. Those that were
    /// away connect now.
    fn check_served(&mut self, disk: usize, opening: Opening) -> Result<(), String> {
        let (state, seen) = (&self.disks[disk], self.seen[0]);
        let (position, recorded) = (state.position(), self.record.map_or(0, |record| record.position));
        if recorded > position {
            return Err(format!("position {recorded} was recorded, and a log that ends at {position} serves"));
        }
        if !state.has(seen) {
            return Err(format!("{seen:?} is missing in a log that ends at {position} and serves"));
        }
        let living: Vec<usize> = (0..WITNESSES).filter(|witness| !self.away[*witness]).collect();
        living.into_iter().try_for_each(|witness| self.connect(witness, opening).map(drop))
    }

    /// A process that serves forces a write and acknowledges it.
    fn write(&mut self) {
        let Some(disk) = self.any_process() else { return };
        let Some(opening) = self.processes.get(&disk).and_then(|process| process.serving) else { return };
        let to = self.rng.random_range(0..WITNESSES);
        let state = &mut self.disks[disk];
        self.writes += 1;
        let write = self.writes;
        state.log.push(write);
        let position = state.position();
        if self.rng.random_range(0..8) == 0
            && let Some(record) = &mut self.record
            && record.base == Some(opening)
            && record.claimed.is_none()
        {
            record.position = record.position.max(position);
        }
        self.answers.push(Answer { to, forced: ForcedPosition { opening, position }, write });
    }

    /// A witness gets an acknowledgement.
    fn deliver(&mut self) -> Result<(), String> {
        if self.answers.is_empty() {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.answers.len());
        let Answer { to, forced, write } = self.answers.remove(at);
        if self.away[to] || !self.connected[to].contains(&forced.opening) && !self.connect(to, forced.opening)? {
            return Ok(());
        }
        // It follows the catalogue, from which it knows openings that were confirmed.
        if !self.witnesses[to].believes(BRICK, forced.opening) {
            return Ok(());
        }
        let connection = self.rng.random_range(0..CONNECTIONS);
        self.note_received(to, connection);
        self.received[to][connection] = Some(forced);
        // The first witness keeps at once what it saw, as its row is all that it has after a restart.
        if to == 0 || self.rng.random_range(0..8) == 0 {
            self.note_received(to, connection);
        }
        if self.seen[to].is_none_or(|seen| seen.position < forced.position) {
            self.seen[to] = Some(SeenWrite { position: forced.position, write });
        }
        self.counts.acknowledged += 1;
        match self.last_believed {
            Some(last) if forced.opening.number < last.number => {
                Err(format!("{} is believed after {}", forced.opening, last))
            }
            Some(last) if forced.opening.number == last.number && forced.opening.nonce != last.nonce => {
                Err(format!("two processes are believed under {last}"))
            }
            _ => {
                self.last_believed = Some(forced.opening);
                Ok(())
            }
        }
    }

    /// A witness connects to the process that serves under an opening, and says what it saw. Returns whether that process serves on.
    ///
    /// Its connections end one after the other: what a later one got is noted while the log is compared for an earlier one.
    fn connect(&mut self, witness: usize, opening: Opening) -> Result<bool, String> {
        let serving = self.processes.iter().find(|(_, process)| process.serving == Some(opening));
        let Some(disk) = serving.map(|(disk, _)| *disk) else { return Ok(false) };
        let state = self.disks[disk].clone();
        let history = OpeningHistory::decode(&state.history).map_err(|error| error.to_string())?;
        self.note_received(witness, 0);
        for next in 1..=CONNECTIONS {
            let compared = self.witnesses[witness].of(BRICK).to_vec();
            let refusal = compared.iter().find_map(|seen| history.check(state.position(), seen.forced).err());
            if let Some(refusal) = refusal {
                return self.refuse(disk, &refusal).map(|()| false);
            }
            if next < CONNECTIONS {
                self.note_received(witness, next);
            }
            if self.witnesses[witness].believes(BRICK, opening) {
                self.witnesses[witness].drop_compared(BRICK, opening, &compared);
            }
        }
        if !self.witnesses[witness].believes(BRICK, opening) {
            return Ok(false);
        }
        if !state.has(self.seen[witness]) {
            let position = state.position();
            return Err(format!(
                "a witness saw {:?}, and a log without it serves up to {position}",
                self.seen[witness]
            ));
        }
        self.connected[witness].push(opening);
        Ok(true)
    }

    /// A witness, but not the first one, is stopped for a while and misses openings, or goes on and connects to what is served.
    fn pause_witness(&mut self) -> Result<(), String> {
        let witness = self.rng.random_range(1..WITNESSES);
        self.away[witness] = !self.away[witness];
        if self.away[witness] {
            return Ok(());
        }
        self.connected[witness].clear();
        self.follow_catalogue(witness);
        let serving: Vec<Opening> = self.processes.values().filter_map(|process| process.serving).collect();
        serving.into_iter().try_for_each(|opening| self.connect(witness, opening).map(drop))
    }

    fn crash(&mut self) {
        if let Some(disk) = self.any_process() {
            self.processes.remove(&disk);
        }
    }

    /// A witness restarts. One of them keeps what it saw in a row, as bricks do.
    fn lose_witness(&mut self) {
        let witness = self.rng.random_range(0..WITNESSES);
        if witness != 0 {
            (self.seen[witness], self.received[witness]) = (None, [None; CONNECTIONS]);
        }
        let kept = match witness == 0 && !planted(Bug::WitnessNotKept) {
            true => Witnesses::decode(&self.witnesses[witness].encode()).unwrap_or_default(),
            false => Witnesses::default(),
        };
        self.witnesses[witness] = kept;
        self.away[witness] = false;
        self.connected[witness].clear();
        self.follow_catalogue(witness);
    }

    /// A witness notes what it got on a connection.
    fn note_received(&mut self, witness: usize, connection: usize) {
        if let Some(forced) = self.received[witness][connection].take() {
            self.witnesses[witness].note(BRICK, forced, 0);
        }
    }

    /// A witness reads the catalogue, which it does before it believes anything.
    fn follow_catalogue(&mut self, witness: usize) {
        let Some(record) = self.record else { return };
        if let Some(base) = record.base {
            self.witnesses[witness].note(BRICK, ForcedPosition { opening: base, position: record.position }, 0);
        }
        if let Some(claimed) = record.claimed {
            self.witnesses[witness].note_claim(BRICK, claimed);
        }
    }

    /// Something happens to directories.
    fn disturb(&mut self) {
        let disk = self.rng.random_range(0..self.disks.len());
        let image = Disk { is_honest: false, ..self.disks[disk].clone() };
        match self.rng.random_range(0..if self.plan.has_repairs { 4 } else { 3 }) {
            0 => self.images.push(image),
            3 if self.rng.random_range(0..4) == 0 => {
                self.processes.remove(&disk);
                // The directory is kept before it is repaired.
                self.images.push(image);
                self.repair(disk);
                self.disks.iter_mut().for_each(|disk| disk.is_honest = false);
            }
            1 if self.plan.goes_back && !self.images.is_empty() => {
                let last = self.images.len() - 1;
                let oldest = if self.rng.random() { last } else { 0 };
                let older = self.images[self.rng.random_range(oldest..=last)].clone();
                self.processes.remove(&disk);
                // The directory that was there is kept and may be put back.
                self.images.push(image);
                self.disks[disk] = older;
                self.disks.iter_mut().for_each(|disk| disk.is_honest = false);
            }
            2 if self.plan.has_twins && self.disks.len() < 3 => {
                self.disks.push(image);
                self.disks.iter_mut().for_each(|disk| disk.is_honest = false);
            }
            _ => {}
        }
    }

    /// A repair gives up the end of a damaged log. Its next position is above all that there were.
    fn repair(&mut self, disk: usize) {
        let state = &mut self.disks[disk];
        let before = state.log.len();
        if before == 0 {
            return;
        }
        state.log.truncate(self.rng.random_range(0..before));
        while state.log.len() < before + 20 {
            self.writes += 1;
            state.log.push(self.writes);
        }
        state.has_lost = true;
    }

    /// Any process, if there is one.
    fn any_process(&mut self) -> Option<usize> {
        let disks: Vec<usize> = self.processes.keys().copied().collect();
        (!disks.is_empty()).then(|| disks[self.rng.random_range(0..disks.len())])
    }
}
