//! Wall clocks that are set wrong and right, and the meta-server that compares them (rule L2).
//!
//! A process has the steady clock of [`LocalClock`](super::clock::LocalClock), which its machines are given. Its wall clock shows the right
//! time until the plan sets it. Only in runs whose plan does so are clocks compared, by the machine that ships.

use std::rc::Rc;

use protocol::clock::ClusterTime;
use protocol::clock_agreement::{COMPARE_MS, ClockAgreement, ClockAnswer, ClockReport, ClockVerdict};
use protocol::commit::Answer;
use protocol::plant::{Bug, planted};

use super::clock::START_MS;
use super::event::Event;
use super::net::Pid;
use super::process::ProcessMachine;
use super::{SKEW_MS, World};
use crate::plan::{Action, Plan, ProcessName};

/// The longest way of a message about clocks, in milliseconds.
const MAX_WAY_MS: u64 = 40;
/// The number of the meta-server's run.
const RUN: u64 = 1;
/// How far timestamps may be ahead of the right time: the skew, the lead of bounds, and what is measured wrongly.
const MAX_AHEAD_MS: u64 = 7_500;
/// How long a process may go on after its clock was found to be wrong, in milliseconds.
const NOTICED_MS: u64 = 1_000;

/// The wall clock of a process.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// How far it is ahead of the right time.
    pub(super) wrong_ms: i64,
    agreement: Option<ClockAgreement>,
    /// Since when the process is refused.
    refused_since: Option<u64>,
}

/// The meta-server, as far as it compares clocks.
#[derive(Debug)]
pub(super) struct ClockComparison {
    agreement: ClockAgreement,
    /// How far its clock is ahead of the right time.
    wrong_ms: i64,
}

impl ClockComparison {
    /// Compares clocks if the plan sets some.
    pub(super) fn of(plan: &Plan) -> Option<Self> {
        let sets = plan.actions.iter().any(|(_, action)| matches!(action, Action::SetClock(..)));
        let agreement = ClockAgreement::catalogue(SKEW_MS, 0, START_MS);
        sets.then_some(Self { agreement, wrong_ms: 0 })
    }
}

/// A message about clocks.
#[derive(Clone, Debug)]
pub(super) enum ClockMessage {
    /// The process compares its clock now.
    Due,
    /// Its report arrives, which was sent when its steady clock showed this.
    Reported(u64, ClockReport),
    /// The answer to that arrives.
    Answered(u64, ClockAnswer),
}

impl World {
    /// Sets a wall clock. A process that starts with it has a steady clock that is as wrong.
    pub(super) fn set_clock(&mut self, place: ProcessName, wrong_ms: i64) {
        if place == ProcessName::Meta {
            self.comparison.iter_mut().for_each(|one| one.wrong_ms = wrong_ms);
        } else if let Some(pid) = self.pid(place) {
            self.processes[pid].wall.wrong_ms = wrong_ms;
            if self.now == 0 {
                self.processes[pid].clock.ahead_ms = wrong_ms;
            }
        }
    }

    /// A process has started: it makes no timestamps before it has compared its clock.
    pub(super) fn begin_comparing(&mut self, pid: Pid) {
        let Some(comparison) = &self.comparison else { return };
        let time = comparison.agreement.time(START_MS + self.now).at(START_MS + self.now);
        let (local, name) = (self.local_time(pid), self.name(pid));
        let told = ClusterTime { offset_ms: time.wrapping_sub(local) as i64, is_trusted: true };
        let own = self.wall_offset(pid);
        let process = &mut self.processes[pid];
        match &mut process.machine {
            Some(ProcessMachine::Driven(_) | ProcessMachine::Peer(_)) => {
                process.wall.agreement = Some(ClockAgreement::member(name, SKEW_MS, own));
                self.apply_time(pid);
                self.push(self.now, Event::Clock(pid, self.processes[pid].incarnation, Rc::new(ClockMessage::Due)));
            }
            // A client has asked for its number, and was told the time.
            Some(ProcessMachine::Client(client)) => client.driver.set_time(told),
            _ => {}
        }
    }

    /// How far the wall clock of a process is ahead of its steady clock.
    fn wall_offset(&self, pid: Pid) -> i64 {
        let wall = START_MS.wrapping_add(self.now).wrapping_add_signed(self.processes[pid].wall.wrong_ms);
        wall.wrapping_sub(self.local_time(pid)) as i64
    }

    pub(super) fn handle_clock(&mut self, pid: Pid, life: u64, message: &ClockMessage) {
        if self.processes[pid].incarnation != life || self.processes[pid].machine.is_none() {
            return;
        }
        let (own, now) = (self.wall_offset(pid), self.local_time(pid));
        let way = self.net.chance(pid, (0, MAX_WAY_MS));
        let Some(agreement) = &mut self.processes[pid].wall.agreement else { return };
        let next = match message {
            ClockMessage::Due => {
                agreement.set_own(own, now);
                Some(ClockMessage::Reported(now, agreement.report(now)))
            }
            ClockMessage::Reported(sent, report) => {
                let (Some(ClockComparison { agreement, wrong_ms }), at) = (&mut self.comparison, START_MS + self.now)
                else {
                    return;
                };
                agreement.set_own(*wrong_ms, at);
                agreement.handle_report(report, RUN, at);
                Some(ClockMessage::Answered(*sent, agreement.answer(RUN, at)))
            }
            ClockMessage::Answered(sent, answer) => {
                agreement.handle_answer(answer, *sent, now);
                None
            }
        };
        if let Some(next) = next {
            self.push(self.now + way, Event::Clock(pid, life, Rc::new(next)));
        }
        if matches!(message, ClockMessage::Due) {
            self.push(self.now + COMPARE_MS, Event::Clock(pid, life, Rc::new(ClockMessage::Due)));
        }
        self.apply_time(pid);
        self.drain_process(pid);
    }

    /// Tells the machine of a process what time it is. The connections to one that is refused are closed.
    fn apply_time(&mut self, pid: Pid) {
        let now = self.local_time(pid);
        let process = &mut self.processes[pid];
        let Some(agreement) = &process.wall.agreement else { return };
        let time = agreement.time(now);
        match &mut process.machine {
            Some(ProcessMachine::Driven(driven)) => driven.brick.set_time(time),
            Some(ProcessMachine::Peer(peer)) => peer.driver.set_time(time, now),
            _ => return,
        }
        let is_refused = !matches!(agreement.verdict(), ClockVerdict::Trusted(_));
        let was_refused = process.wall.refused_since.is_some();
        if is_refused != was_refused {
            process.wall.refused_since = is_refused.then_some(self.now);
            self.note(|world| format!("{} is {}", world.name(pid), if is_refused { "refused" } else { "trusted" }));
            self.oracle.slow.insert(self.processes[pid].place);
        }
        if is_refused && !was_refused && !planted(Bug::ServesOutsideSkew) {
            let below: Vec<_> =
                self.net.links_of(pid).into_iter().filter(|link| self.net.links[*link].upper == pid).collect();
            below.into_iter().for_each(|link| self.cut(link));
        }
    }

    /// Whether the clock of a process is wrong or was not compared.
    pub(super) fn is_refused(&self, pid: Pid) -> bool {
        !planted(Bug::ServesOutsideSkew) && self.processes[pid].wall.refused_since.is_some()
    }

    /// A client connects to a process, which tells it what time it is.
    pub(super) fn tell_time(&mut self, pid: Pid, upper: Pid) {
        let above = |server: Pid| {
            let uplink = self.processes[server].uplinks.first();
            uplink.map(|uplink| uplink.choices[uplink.chosen % uplink.choices.len()])
        };
        let mut servers = std::iter::successors(Some(upper), |server| above(*server));
        let teller = servers.find(|server| self.processes[*server].wall.agreement.is_some());
        let Some(teller) = teller.filter(|teller| !self.is_refused(*teller)) else { return };
        let (theirs, own) = (self.local_time(teller), self.local_time(pid));
        let Some(agreement) = &self.processes[teller].wall.agreement else { return };
        let offset_ms = agreement.time(theirs).at(theirs).wrapping_sub(own) as i64;
        let time = ClusterTime { offset_ms, is_trusted: true };
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Client(client)) => client.driver.set_time(time),
            Some(ProcessMachine::Redirector(redirector)) => redirector.driver.set_time(time),
            _ => {}
        }
    }

    /// What a process has made of a message. One whose clock is wrong takes none, and the connection is closed.
    pub(super) fn expect_served(&mut self, (from, pid): (Pid, Pid), handled: model::Result<()>) {
        match handled {
            Err(error) if error.kind() == model::ErrorKind::Unavailable && self.is_refused(pid) => {
                let links = self.net.all_between(from, pid);
                links.into_iter().for_each(|link| self.cut(link));
            }
            Err(error) if self.is_rightly_denied((from, pid), &error) => {
                let links = self.net.all_between(from, pid);
                links.into_iter().for_each(|link| self.cut(link));
            }
            handled => self.oracle.expect_accepted(handled),
        }
    }

    /// Timestamps and bounds of a brick are close to the right time (L2).
    pub(super) fn check_time(&mut self, pid: Pid) {
        if self.comparison.is_none() {
            return;
        }
        let Some(ProcessMachine::Driven(driven)) = &self.processes[pid].machine else { return };
        let (bound, clock) = (driven.brick.bound().ms(), driven.brick.clock().ms());
        let latest = START_MS + self.now + MAX_AHEAD_MS;
        if bound.max(clock) > latest {
            let (name, ahead) = (self.name(pid), bound.max(clock) - START_MS - self.now);
            self.oracle.report(format!("L2: {name} has made timestamps or bounds that are {ahead} ms ahead"));
        }
    }

    /// A brick votes. It has voted before its clock was refused, if it is.
    pub(super) fn check_vote(&mut self, pid: Pid, answer: &Answer) {
        let Answer::Prepared { txn, proposal, .. } = answer else { return };
        let Some(since) = self.processes[pid].wall.refused_since else { return };
        if proposal.ms() > START_MS + since + NOTICED_MS {
            let name = self.name(pid);
            self.oracle.report(format!("L2: {name} votes for {txn:?} although its clock is wrong"));
        }
    }
}
