//! Cuts through the stores of all bricks (K1), and the clusters that are restored from them.
//!
//! The parts of a cut that counts become a second cluster, which starts as after a crash, and decides what was prepared. What it has then must be
//! what a strictly serializable transaction could have read that began with the cut and ended with it: so the checkers judge a cut as a read of
//! everything.
//!
//! Each part is archived as an increment of the one before, and, unless the brick was restarted since, as what has changed. One cluster is restored from
//! the increments, the next one is rolled forward by the changes.

use std::collections::{BTreeMap, BTreeSet};

use model::ErrorKind;
use node::drivers::brick::SimulatedDisk;
use protocol::cut::{CutCoordinator, CutNumber, CutOutcome, CutOutput, CutRefusal, HoldReport, Run};
use protocol::lease::Ms;

use super::catalog::PlacementCatalog;
use super::net::{Datagram, Pid};
use super::process::ProcessMachine;
use super::schema::SpaceSchema;
use super::{RunFailure, World};
use crate::plan::{Cluster, Demand, Noise, Plan, ProcessName};
use check::history::{Kind, Operation, Outcome, Step};

/// How long a cut may take, in milliseconds.
const PATIENCE_MS: Ms = 4_000;
/// The reads of restored clusters are those of clients with numbers from this one on: one for each cut.
pub(crate) const FIRST_CUT: u64 = 1 << 63;
/// How often a cut is tried.
const TRIES: u32 = 4;
/// Member numbers that a restored cluster skips, as the catalogue does.
const SKIPPED_MEMBERS: u64 = 1_000;

/// The process that takes cuts.
#[derive(Default)]
pub(super) struct AdminProcess {
    last: u64,
    attempt: Option<CutAttempt>,
}

/// A cut that is being taken.
struct CutAttempt {
    cut: CutCoordinator<Pid>,
    hold_ms: Ms,
    /// How often it is tried again if it fails.
    tries_left: u32,
    /// When it began, by the right time.
    began: u64,
    /// The catalogue at the moment of the cut.
    moment: Option<(PlacementCatalog, SpaceSchema)>,
}

/// A message about a cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum CutMessage {
    Hold(CutNumber, Ms),
    Held(CutNumber, Run),
    Refused(CutNumber),
    Release(CutNumber),
    Released(CutNumber, HoldReport),
}

/// The part of a cut that a brick has.
pub(super) struct CutPart {
    number: CutNumber,
    /// The position of the brick's log.
    position: u64,
    /// The archive of the part; from the second one that counts on it is an increment.
    archive: Vec<u8>,
    /// What has changed since the last cut that counts, if the brick knows that.
    changes: Option<Vec<u8>>,
}

/// The archives of a brick.
#[derive(Clone, Default)]
pub(super) struct BrickArchives {
    /// A full archive, and increments.
    chain: Vec<Vec<u8>>,
    /// The changes since the first `base` archives of the chain.
    changes: Vec<Vec<u8>>,
    base: usize,
    /// The position of the last part.
    position: u64,
}

impl BrickArchives {
    fn add(&mut self, part: &CutPart) {
        self.chain.push(part.archive.clone());
        self.position = part.position;
        match &part.changes {
            Some(changes) => self.changes.push(changes.clone()),
            None => (self.base, self.changes) = (self.chain.len(), Vec::new()),
        }
    }

    fn restore(&self, rolls_forward: bool) -> model::Result<SimulatedDisk> {
        match rolls_forward {
            true => SimulatedDisk::restore(&self.chain[..self.base], &self.changes),
            false => SimulatedDisk::restore(&self.chain, &[]),
        }
    }
}

/// What a cluster has that was restored from a cut, by the names of histories.
pub(super) struct CutRead {
    number: u64,
    began: u64,
    ended: u64,
    finals: BTreeMap<String, Vec<i64>>,
}

impl AdminProcess {
    pub(super) fn poll(&mut self, now: u64) {
        if let Some(attempt) = &mut self.attempt {
            attempt.cut.poll(now);
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.attempt.as_ref().map(|attempt| attempt.cut.deadline())
    }
}

impl World {
    fn admin(&mut self) -> Option<(Pid, &mut AdminProcess)> {
        let pid = self.pid(ProcessName::Admin)?;
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Admin(admin)) => Some((pid, admin)),
            _ => None,
        }
    }

    /// Begins a cut, unless one is being taken.
    pub(super) fn begin_cut(&mut self, hold_ms: Ms) {
        self.try_cut(hold_ms, TRIES - 1);
    }

    fn try_cut(&mut self, hold_ms: Ms, tries_left: u32) {
        let is_brick = |pid: &Pid| matches!(self.processes[*pid].place, ProcessName::Brick(_));
        let bricks: Vec<Pid> = (0..self.processes.len()).filter(is_brick).collect();
        let (began, now) = (self.now, self.pid(ProcessName::Admin).map(|pid| self.local_time(pid)));
        let Some(((pid, admin), now)) = self.admin().zip(now) else { return };
        if admin.attempt.is_none() {
            admin.last += 1;
            let cut = CutCoordinator::begin(CutNumber(admin.last), bricks, PATIENCE_MS, now);
            admin.attempt = Some(CutAttempt { cut, hold_ms, tries_left, began, moment: None });
            self.drain_process(pid);
        }
    }

    pub(super) fn handle_cut_message(&mut self, from: Pid, to: Pid, message: CutMessage) {
        match message {
            CutMessage::Hold(number, hold_ms) => self.handle_hold(from, to, number, hold_ms),
            CutMessage::Release(number) => {
                let mut ended = None;
                self.with_driven(to, |driven, now| ended = Some(driven.cuts.release(number, now)));
                if let Some(ended) = ended {
                    self.send_datagram(to, from, Datagram::Cut(CutMessage::Released(number, ended)));
                }
            }
            CutMessage::Held(number, run) => self.with_cut(number, |cut| cut.handle_held(from, run)),
            CutMessage::Refused(number) => self.with_cut(number, |cut| cut.handle_refused(from)),
            CutMessage::Released(number, ended) => self.with_cut(number, |cut| cut.handle_released(from, ended)),
        }
    }

    /// Calls a function with the cut of this number, if it is being taken.
    fn with_cut(&mut self, number: CutNumber, act: impl FnOnce(&mut CutCoordinator<Pid>)) {
        let cut = self.admin().and_then(|(_, admin)| admin.attempt.as_mut()).map(|attempt| &mut attempt.cut);
        if let Some(cut) = cut.filter(|cut| cut.number() == number) {
            act(cut);
        }
    }

    /// A brick is asked to hold: it does between two forces.
    fn handle_hold(&mut self, from: Pid, pid: Pid, number: CutNumber, hold_ms: Ms) {
        let mut refused = false;
        self.with_driven(pid, |driven, now| match driven.cuts.begin(number, hold_ms, now) {
            Ok(()) => driven.asked_cut = Some((from, number)),
            // The message was repeated.
            Err(CutRefusal::Busy(known) | CutRefusal::Taken(known)) if known == number => {}
            Err(_) => refused = true,
        });
        if refused {
            self.send_datagram(pid, from, Datagram::Cut(CutMessage::Refused(number)));
        }
        self.take_asked_part(pid);
    }

    /// Takes the part of a cut if the brick is to hold and no force is under way.
    pub(super) fn take_asked_part(&mut self, pid: Pid) {
        let mut taken = None;
        let before = self.archives.get(&pid).map(|before| (before.chain.last().cloned(), before.position));
        let (base, since) = before.map_or((None, None), |(base, position)| (base, Some(position)));
        self.with_driven(pid, |driven, now| {
            let Some((to, number)) = driven.asked_cut.filter(|_| driven.is_still()) else { return };
            driven.asked_cut = None;
            driven.cuts.poll(now);
            if driven.cuts.holds(number) {
                let archive = || {
                    let archive = driven.brick.archive(base.as_deref())?;
                    let changes = since.map(|since| driven.brick.changes_since(since)).transpose()?.flatten();
                    Ok::<_, model::Error>(CutPart { number, position: driven.brick.position(), archive, changes })
                };
                let part = archive().map(|part| driven.part = Some(part));
                let run = driven.cuts.run();
                taken = Some(part.map(|()| (to, number, run)).map_err(|error| (error, to, number)));
            }
        });
        match taken {
            Some(Ok((to, number, run))) => self.send_datagram(pid, to, Datagram::Cut(CutMessage::Held(number, run))),
            // The archive is not complete, and its command says so.
            Some(Err((error, to, number))) if error.kind() == ErrorKind::Corrupt && self.is_damaged_brick(pid) => {
                self.send_datagram(pid, to, Datagram::Cut(CutMessage::Refused(number)));
            }
            Some(Err((error, ..))) => {
                self.oracle.report(format!("K1: {} cannot be backed up: {error}", self.name(pid)))
            }
            None => {}
        }
    }

    pub(super) fn drain_admin(&mut self, pid: Pid) {
        loop {
            let Some(attempt) = self.admin().and_then(|(_, admin)| admin.attempt.as_mut()) else { return };
            let (number, hold_ms) = (attempt.cut.number(), attempt.hold_ms);
            match attempt.cut.next_output() {
                Some(CutOutput::Hold(brick)) => {
                    self.send_datagram(pid, brick, Datagram::Cut(CutMessage::Hold(number, hold_ms)));
                }
                Some(CutOutput::Release(brick)) => {
                    self.send_datagram(pid, brick, Datagram::Cut(CutMessage::Release(number)));
                }
                Some(CutOutput::AllHold) => self.read_catalogue(),
                None => break,
            }
        }
        let Some((_, admin)) = self.admin() else { return };
        let Some(outcome) = admin.attempt.as_ref().and_then(|attempt| attempt.cut.outcome().cloned()) else { return };
        let attempt = admin.attempt.take();
        self.note(|_| format!("the cut: {outcome:?}"));
        match (outcome, attempt) {
            (CutOutcome::Counts, Some(attempt)) => self.restore_cut(attempt),
            (CutOutcome::Failed(_), Some(CutAttempt { hold_ms, tries_left, .. }))
                if tries_left > 0 && !self.healing =>
            {
                // A brick may need longer than the last time.
                self.try_cut(hold_ms * 2, tries_left - 1);
            }
            _ => {}
        }
    }

    /// Reads the catalogue at the moment of a cut, if it can be read, and releases the bricks.
    fn read_catalogue(&mut self) {
        let meta = self.pid(ProcessName::Meta);
        let is_down = meta.is_some_and(|meta| self.processes[meta].machine.is_none());
        let moment = (self.placement.clone(), self.schema.clone());
        let Some(attempt) = self.admin().and_then(|(_, admin)| admin.attempt.as_mut()) else { return };
        if is_down {
            attempt.cut.abandon();
        } else {
            attempt.moment = Some(moment);
            attempt.cut.release();
        }
    }

    /// Restores a cluster from a cut that counts, and keeps what it has for the checkers.
    fn restore_cut(&mut self, attempt: CutAttempt) {
        let CutAttempt { cut, began, moment, .. } = attempt;
        let (mut disks, mut archives) = (BTreeMap::new(), BTreeMap::new());
        let rolls_forward = cut.number().0 % 2 == 0;
        for pid in 0..self.processes.len() {
            if !matches!(self.processes[pid].place, ProcessName::Brick(_)) {
                continue;
            }
            let Some(ProcessMachine::Driven(driven)) = &self.processes[pid].machine else { return };
            // A brick that was restarted since has no part any more, and there is no backup.
            let Some(part) = driven.part.as_ref().filter(|part| part.number == cut.number()) else { return };
            let mut of_brick = self.archives.get(&pid).cloned().unwrap_or_default();
            of_brick.add(part);
            match of_brick.restore(rolls_forward) {
                Ok(disk) => {
                    disks.insert(pid, disk);
                    archives.insert(pid, of_brick);
                }
                Err(error) => {
                    let place = self.processes[pid].place;
                    return self.oracle.report(format!("K1: the part of {place} cannot be restored: {error}"));
                }
            }
        }
        self.archives = archives;
        let Some(moment) = moment else {
            return self.oracle.report("K1: a cut counts, and its moment did not come".to_owned());
        };
        let mut restored = self.restored_world(disks, moment);
        match restored.finish_restored(self.plan.demand) {
            Ok(finals) => {
                self.last_operation += 1;
                self.count.cuts += 1;
                let (number, ended) = (self.last_operation, self.now);
                self.cuts.push(CutRead { number, began, ended, finals });
            }
            Err(failure) => self.oracle.report(format!("K1: the restored cluster: {failure}")),
        }
    }

    /// A cluster with these disks and this catalogue.
    fn restored_world(
        &self,
        disks: BTreeMap<Pid, SimulatedDisk>,
        (placement, schema): (PlacementCatalog, SpaceSchema),
    ) -> Self {
        let cluster = Cluster { peers: 0, redirectors: 0, clients: 0, ..self.plan.cluster };
        let actions = self.plan.actions.clone();
        let plan = Plan { cluster, noise: Noise::NONE, actions, demand: Demand::None, ..self.plan };
        let mut world = Self::empty(plan);
        world.now = self.now;
        world.last_member = self.last_member + SKIPPED_MEMBERS;
        (world.placement, world.schema) = (placement, schema);
        world.build_from(disks);
        let pages: Vec<_> = self.oracle.pages().collect();
        for page in pages {
            if let Some(driven) = world.driven_brick(page.node) {
                let (version, objects) = (driven.version(page), driven.objects(page));
                world.oracle.begin_at(page, version, objects);
            }
        }
        world
    }

    /// Adds and starts the processes of a restored cluster. Nothing of the plan happens in it.
    fn build_from(&mut self, mut disks: BTreeMap<Pid, SimulatedDisk>) {
        for number in 1..=self.plan.cluster.bricks {
            let pid = self.add(ProcessName::Brick(number), Vec::new());
            self.processes[pid].driven_disk = disks.remove(&pid);
        }
        if self.has_catalog() {
            self.add(ProcessName::Meta, Vec::new());
        }
        let bricks: Vec<_> = self.placement.bricks().collect();
        for (node, brick) in bricks {
            if let Some(pid) = self.pid(ProcessName::Brick(brick)) {
                self.serving.insert(node, pid);
            }
        }
        (0..self.processes.len()).for_each(|pid| self.start(pid));
    }

    /// Runs a restored cluster until it has decided what was prepared. Returns what it has.
    fn finish_restored(&mut self, demand: Demand) -> Result<BTreeMap<String, Vec<i64>>, RunFailure> {
        self.healing = true;
        self.oracle.result()?;
        self.tell_placement();
        self.quiesce()?;
        self.plan.demand = demand;
        self.check_demand()?;
        Ok(self.finals())
    }

    /// Adds the restored clusters to the history: as transactions that read everything.
    pub(super) fn add_cut_reads(&mut self) {
        let appends = self.history.operations.iter().flat_map(Operation::appends);
        let keys: BTreeSet<String> = appends.map(|(key, _)| key.to_owned()).collect();
        for (index, cut) in std::mem::take(&mut self.cuts).into_iter().enumerate() {
            let mut read = Operation::begin(cut.number, FIRST_CUT + index as u64, Kind::ReadOnly, cut.began);
            let found = |key: &String| cut.finals.get(key).cloned().unwrap_or_default();
            read.steps = keys.iter().map(|key| Step::read_list(key.clone(), found(key))).collect();
            read.finish(Outcome::Ok, cut.ended);
            self.history.operations.push(read);
        }
        self.history.operations.sort_by_key(|operation| operation.number);
    }
}
