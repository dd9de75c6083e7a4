//! What time it is in a cluster, and whether the clock of a process is believed (rule L2).
//!
//! A process has two clocks. The *steady* clock never jumps; leases and time-outs go by it. The *wall clock* shows the date, and may be
//! set at any time. A member of a cluster compares its wall clock with those of the others: it asks the meta-server, which keeps what each
//! process has reported. How far two steady clocks are apart is measured with each answer, as NTP does it: an answer that arrives at
//! `received` to a question that was sent at `sent` was written at the middle of both, give or take half of the time between.
//!
//! ```text
//!   member       sent ─────────────────────────── received       its clock by the meta-server's steady clock:
//!                  ╲  report: own clock         ╱                 own + middle − steady_ms ± (received − sent) / 2
//!   meta-server     ───── all clocks, steady_ms                   (the next question reports it)
//! ```
//!
//! 1. The *agreed time* is the median of the clocks that were heard lately, if more than half of them are within the allowed skew of it.
//!    Otherwise it is that of the meta-server. A clock whose measurement took too long does not count. The processes of one machine have
//!    one clock, which counts once.
//! 2. A process whose wall clock is further from the agreed time than the allowed skew is *refused*: it makes, logs and promises no
//!    timestamp. Neither does a member that has not compared its clock yet.
//! 3. Timestamps go by the agreed time, not by the wall clock of the process. So a wrong clock makes no wrong timestamp, not even before
//!    it is noticed.
//! 4. While nothing is heard, the agreed time goes on with the steady clock.
//! 5. The *time of the cluster* never jumps back: when the agreed time does, it goes on from where it was, a little slower, until the
//!    clocks have caught up. A process that starts learns of it from its own log, and from processes that are not refused.
//!    A store on its own believes its clock in the same way.
//! 6. A meta-server that starts again has heard of no clock yet. What its members heard before counts until it is forgotten, so that a
//!    wrong clock of the meta-server outvotes none of them.

use std::collections::BTreeMap;

use crate::clock::{ClusterTime, LEAD_MS, MAX_TIME_MS};
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// How often a member compares its clock, in milliseconds.
pub const COMPARE_MS: Ms = 1_000;
/// How long a clock counts that is not heard any more, in milliseconds.
const FORGET_MS: Ms = 5_000;
/// Part of the time that the time of the cluster loses while it is ahead of the clocks: one in this number.
const SLOW_DOWN: u64 = 16;
/// A time of the cluster that is this much later than the own one is taken over, in milliseconds: the bounds of a log are later by the lead
/// of a bound. It is less than clients may be ahead.
const NOTED_MS: u64 = LEAD_MS + 500;
/// Clocks that are remembered, at most.
const MAX_CLOCKS: usize = 1_024;
/// The name of the meta-server.
pub const CATALOGUE: &str = "meta-server";

/// A machine, whose processes have one clock. Each machine has another number; 0 if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine(pub u64);

/// How far a wall clock is ahead of a steady clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// The difference, in milliseconds.
    pub offset_ms: i64,
    /// How wrong it may be, in milliseconds.
    pub error_ms: u64,
}

/// The clock of a process, by the steady clock of the meta-server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOffset {
    /// The process, as `status` names it.
    pub process: String,
    /// Its machine.
    pub machine: Machine,
    /// What its clock shows.
    pub clock: ClockOffset,
}

/// What a member reports of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReport {
    /// The process.
    pub process: String,
    /// Its machine.
    pub machine: Machine,
    /// Its clock, by the steady clock of the meta-server's run with this number; `None` before the first answer of that.
    pub clock: Option<(u64, ClockOffset)>,
    /// The time by which it makes timestamps, in milliseconds since 1970; 0 if it makes none.
    pub time_ms: u64,
}

/// The answer of a meta-server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockAnswer {
    /// The number of its run. Another run has another steady clock.
    pub run: u64,
    /// Its steady clock.
    pub steady_ms: Ms,
    /// The clocks of all processes that it has heard of lately, its own included.
    pub clocks: Vec<ProcessOffset>,
    /// The latest time by which a process makes timestamps, in milliseconds since 1970; 0 if it knows of none.
    pub time_ms: u64,
}

/// Whether the clock of a process is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockVerdict {
    /// It was not compared yet.
    Unknown,
    /// It is ahead of the agreed time by this number of milliseconds, which is allowed.
    Trusted(i64),
    /// It is ahead by more than the allowed skew, or behind.
    Refused(i64),
}

/// A clock that was heard, by the own steady clock.
#[derive(Clone, Copy, Debug)]
struct HeardClock {
    machine: Machine,
    clock: ClockOffset,
    at: Ms,
}

impl HeardClock {
    fn is_fresh(&self, now: Ms) -> bool {
        self.at + FORGET_MS > now || planted(Bug::SampleKept)
    }
}

/// The clocks of a cluster as one process knows them.
#[derive(Clone, Debug)]
pub struct ClockAgreement {
    process: String,
    machine: Machine,
    skew_ms: u64,
    /// How far the own wall clock is ahead of the own steady clock, in milliseconds.
    own: i64,
    heard: BTreeMap<String, HeardClock>,
    /// How far the steady clock of the meta-server's run with this number is ahead of the own.
    upstream: Option<(u64, ClockOffset)>,
    /// How far the agreed time is ahead of the steady clock; `None` before the first comparison.
    agreed: Option<i64>,
    /// The same of the time by which timestamps were made, here or elsewhere; and when that was computed.
    used: Option<(i64, Ms)>,
    /// Whether this process makes timestamps. A meta-server of its own makes none.
    is_used: bool,
}

impl ClockAgreement {
    /// The agreement of a process that compares its clock with those of others. `own` is how far its wall clock is ahead of its steady
    /// clock.
    #[must_use]
    pub fn member(process: impl Into<String>, skew_ms: u64, own: i64) -> Self {
        Self {
            process: process.into(),
            machine: Machine::default(),
            skew_ms,
            own,
            heard: BTreeMap::new(),
            upstream: None,
            agreed: None,
            used: None,
            is_used: true,
        }
    }

    /// The same of a process on this machine.
    #[must_use]
    pub fn on(self, machine: Machine) -> Self {
        Self { machine, ..self }
    }

    /// The agreement of a meta-server, or of a store on its own: it believes its clock until it hears of others.
    #[must_use]
    pub fn catalogue(skew_ms: u64, own: i64, now: Ms) -> Self {
        let mut agreement = Self { is_used: false, ..Self::member(CATALOGUE, skew_ms, own) };
        agreement.agree(now);
        agreement
    }

    /// A brick or a peer server in this process makes timestamps.
    pub fn begin_use(&mut self, now: Ms) {
        self.is_used = true;
        self.agree(now);
    }

    fn is_catalogue(&self) -> bool {
        self.process == CATALOGUE
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &str {
        &self.process
    }

    /// Names the process when its number is known.
    pub fn set_process(&mut self, process: impl Into<String>) {
        self.process = process.into();
    }

    // -------------------------------------------------------------------------------------------- inputs

    /// The own wall clock is ahead of the own steady clock by this now.
    pub fn set_own(&mut self, own: i64, now: Ms) {
        self.own = own;
        self.agree(now);
    }

    /// At a meta-server: a member reports its clock.
    pub fn handle_report(&mut self, report: &ClockReport, run: u64, now: Ms) {
        self.heard.retain(|_, heard| heard.is_fresh(now));
        let Some((_, clock)) = report.clock.filter(|(of, _)| *of == run && report.process != self.process) else {
            return self.agree(now);
        };
        if self.heard.len() < MAX_CLOCKS || self.heard.contains_key(&report.process) {
            self.heard.insert(report.process.clone(), HeardClock { machine: report.machine, clock, at: now });
        }
        self.agree(now);
        let is_right = self.agreed.is_some_and(|agreed| agreed.abs_diff(clock.offset_ms) <= self.skew_ms);
        if is_right || planted(Bug::ReportedTimeTaken) {
            self.note_time(report.time_ms, now);
            self.agree(now);
        }
    }

    /// At a member: the meta-server answers the report that was sent at `sent`.
    pub fn handle_answer(&mut self, answer: &ClockAnswer, sent: Ms, now: Ms) {
        let travel = now.saturating_sub(sent);
        let middle = if planted(Bug::TravelTimeIgnored) { now } else { sent + travel / 2 };
        let steady = ClockOffset { offset_ms: difference(answer.steady_ms, middle), error_ms: travel.div_ceil(2) };
        let is_another_run = self.run().is_some_and(|run| run != answer.run);
        self.upstream = Some((answer.run, steady));
        let forgets = is_another_run && planted(Bug::HeardDropped);
        self.heard.retain(|_, heard| heard.is_fresh(now) && !forgets);
        for ProcessOffset { process, machine, clock } in answer.clocks.iter().take(MAX_CLOCKS) {
            if *process == self.process {
                continue;
            }
            let shift = if planted(Bug::OffsetReversed) { -steady.offset_ms } else { steady.offset_ms };
            let clock = ClockOffset {
                offset_ms: clock.offset_ms.saturating_add(shift),
                error_ms: clock.error_ms.saturating_add(steady.error_ms),
            };
            self.heard.insert(process.clone(), HeardClock { machine: *machine, clock, at: now });
        }
        self.note_time(answer.time_ms, now);
        self.agree(now);
    }

    /// At a member: the meta-server compares no clocks, so this process believes its own.
    pub fn believe_own(&mut self, now: Ms) {
        self.heard.clear();
        self.agreed = Some(self.own);
        self.agree(now);
    }

    /// Timestamps were made up to this time in milliseconds since 1970: by processes that are not refused, or in the own log.
    pub fn note_log(&mut self, time_ms: u64, now: Ms) {
        if !planted(Bug::LogTimeIgnored) {
            self.note_time(time_ms, now);
        }
    }

    fn note_time(&mut self, time_ms: u64, now: Ms) {
        let offset = difference(time_ms, now);
        let used = self.used.map(|(used, _)| used);
        let known = self.time_offset(now).or(used).unwrap_or(i64::MIN);
        let is_ahead = offset > known.saturating_add_unsigned(NOTED_MS);
        if time_ms > 0 && time_ms <= MAX_TIME_MS && is_ahead {
            self.used = Some((offset, now));
        }
    }

    // -------------------------------------------------------------------------------------------- the agreed time

    /// The clocks of other processes that count.
    fn counted_clocks(&self, now: Ms) -> impl Iterator<Item = (&str, &HeardClock)> {
        let is_near = |heard: &HeardClock| heard.clock.error_ms <= self.skew_ms / 2 || planted(Bug::DistantSampleTaken);
        let heard = self.heard.iter().filter(move |(_, heard)| heard.is_fresh(now) && is_near(heard));
        heard.map(|(process, heard)| (process.as_str(), heard))
    }

    /// One clock of each machine, by the own steady clock: that which was measured best.
    fn machine_clocks(&self, now: Ms) -> Vec<i64> {
        let mut clocks = vec![self.own];
        let mut machines: BTreeMap<Machine, ClockOffset> = BTreeMap::new();
        for (_, HeardClock { machine, clock, .. }) in self.counted_clocks(now) {
            if *machine == Machine::default() || planted(Bug::MachineCountsOften) {
                clocks.push(clock.offset_ms);
            } else if *machine != self.machine {
                let best = machines.entry(*machine).or_insert(*clock);
                *best = if clock.error_ms < best.error_ms { *clock } else { *best };
            }
        }
        clocks.extend(machines.values().map(|clock| clock.offset_ms));
        clocks
    }

    fn agree(&mut self, now: Ms) {
        if self.is_catalogue() || self.counted_clocks(now).next().is_some() {
            self.agreed = self.agreed_clock(now).or(self.agreed);
        }
        let trusted = matches!(self.verdict(), ClockVerdict::Trusted(_));
        if let Some(offset) = self.time_offset(now).filter(|_| trusted && self.is_used) {
            // What is lost is rounded down, so it is computed for longer times.
            let is_news = self.used.is_none_or(|(used, at)| used != offset || now >= at + COMPARE_MS);
            self.used = if is_news { Some((offset, now)) } else { self.used };
        }
    }

    /// The agreed time; `None` if most clocks do not agree, and that of the meta-server is not known.
    fn agreed_clock(&self, now: Ms) -> Option<i64> {
        if planted(Bug::OwnClockTaken) {
            return Some(self.own);
        }
        let mut clocks = self.machine_clocks(now);
        clocks.sort_unstable();
        let median = *clocks.get(clocks.len().saturating_sub(1) / 2)?;
        let near = clocks.iter().filter(|clock| clock.abs_diff(median) <= self.skew_ms).count();
        if near * 2 > clocks.len() || planted(Bug::MinorityBelieved) {
            return Some(median);
        }
        match self.is_catalogue() {
            true => Some(self.own),
            false => self
                .counted_clocks(now)
                .find(|(process, _)| *process == CATALOGUE)
                .map(|(_, heard)| heard.clock.offset_ms),
        }
    }

    /// How far the time of the cluster is ahead of the steady clock.
    fn time_offset(&self, now: Ms) -> Option<i64> {
        let agreed = self.agreed?;
        let Some((used, at)) = self.used else { return Some(agreed) };
        let slowed = used.saturating_sub_unsigned(now.saturating_sub(at) / SLOW_DOWN);
        Some(if planted(Bug::TimeGoesBack) { agreed } else { slowed.max(agreed) })
    }

    // -------------------------------------------------------------------------------------------- outputs

    /// The run of the meta-server that has answered last.
    #[must_use]
    pub fn run(&self) -> Option<u64> {
        self.upstream.map(|(run, _)| run)
    }

    /// Whether the clock of this process is believed.
    #[must_use]
    pub fn verdict(&self) -> ClockVerdict {
        match self.agreed {
            None if planted(Bug::ServesUncompared) => ClockVerdict::Trusted(0),
            None => ClockVerdict::Unknown,
            Some(agreed) => {
                let offset = self.own.saturating_sub(agreed);
                let is_near = offset.unsigned_abs() <= self.skew_ms;
                if is_near { ClockVerdict::Trusted(offset) } else { ClockVerdict::Refused(offset) }
            }
        }
    }

    /// The time of the cluster, for the machines of this process.
    #[must_use]
    pub fn time(&self, now: Ms) -> ClusterTime {
        let is_trusted = matches!(self.verdict(), ClockVerdict::Trusted(_));
        ClusterTime { offset_ms: self.time_offset(now).unwrap_or(self.own), is_trusted }
    }

    /// What this member reports to a meta-server.
    #[must_use]
    pub fn report(&self, now: Ms) -> ClockReport {
        let clock = self.upstream.map(|(run, steady)| {
            let offset_ms = self.own.saturating_sub(steady.offset_ms);
            (run, ClockOffset { offset_ms, error_ms: steady.error_ms })
        });
        let time = self.time(now);
        let time_ms = match time.is_trusted {
            true => time.at(now),
            false if planted(Bug::WrongClockTeaches) => now.saturating_add_signed(self.own),
            false => 0,
        };
        ClockReport { process: self.process.clone(), machine: self.machine, clock, time_ms }
    }

    /// What this meta-server answers to a report.
    #[must_use]
    pub fn answer(&self, run: u64, now: Ms) -> ClockAnswer {
        let own = ProcessOffset {
            process: self.process.clone(),
            machine: self.machine,
            clock: ClockOffset { offset_ms: self.own, error_ms: 0 },
        };
        let clocks = self.counted_clocks(now).map(|(process, HeardClock { machine, clock, .. })| ProcessOffset {
            process: process.to_owned(),
            machine: *machine,
            clock: *clock,
        });
        let used = self.used.and(self.time_offset(now));
        let time_ms = used.map_or(0, |offset_ms| ClusterTime { offset_ms, is_trusted: true }.at(now));
        ClockAnswer { run, steady_ms: now, clocks: clocks.chain([own]).collect(), time_ms }
    }

    /// How far the clock of each process that counts is ahead of the agreed time, in milliseconds.
    #[must_use]
    pub fn offsets(&self, now: Ms) -> BTreeMap<String, i64> {
        let agreed = self.agreed.unwrap_or(self.own);
        let clocks = self.counted_clocks(now).map(|(process, heard)| (process, heard.clock.offset_ms));
        let clocks = clocks.chain([(self.process.as_str(), self.own)]);
        clocks.map(|(process, offset)| (process.to_owned(), offset.saturating_sub(agreed))).collect()
    }

    /// How far the time of the cluster is ahead of the agreed time, in milliseconds: it was ahead once.
    #[must_use]
    pub fn ahead_ms(&self, now: Ms) -> u64 {
        let ahead = self.time_offset(now).zip(self.agreed).map(|(time, agreed)| time.saturating_sub(agreed));
        ahead.and_then(|ahead| u64::try_from(ahead).ok()).unwrap_or(0)
    }
}

/// How far one clock is ahead of another.
const fn difference(one: u64, other: u64) -> i64 {
    one.wrapping_sub(other) as i64
}

#[cfg(test)]
mod tests;
