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
//!    Otherwise it is that of the meta-server. A clock whose measurement took too long does not count.
//! 2. A process whose wall clock is further from the agreed time than the allowed skew is *refused*: it makes, logs and promises no
//!    timestamp. Neither does a member that has not compared its clock yet.
//! 3. Timestamps go by the agreed time, not by the wall clock of the process. So a wrong clock makes no wrong timestamp, not even before
//!    it is noticed.
//! 4. While nothing is heard, the agreed time goes on with the steady clock.
//! 5. The *time of the cluster* never jumps back: when the agreed time does, it goes on from where it was, a little slower, until the
//!    clocks have caught up. A process that starts learns of it from its own log, and from processes that are not refused.
//!    A store on its own believes its clock in the same way.

use std::collections::BTreeMap;

use crate::clock::ClusterTime;
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// How often a member compares its clock, in milliseconds.
pub const COMPARE_MS: Ms = 1_000;
/// How long a clock counts that is not heard any more, in milliseconds.
const FORGET_MS: Ms = 5_000;
/// Part of the time that the time of the cluster loses while it is ahead of the clocks: one in this number.
const SLOW_DOWN: u64 = 16;
/// Clocks that are remembered, at most.
const MAX_CLOCKS: usize = 1_024;
/// The latest time that is believed: a later one is an error of the sender.
const MAX_TIME_MS: u64 = 1 << 46;
/// The name of the meta-server.
pub const CATALOGUE: &str = "meta-server";

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
    /// What its clock shows.
    pub clock: ClockOffset,
}

/// What a member reports of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReport {
    /// The process.
    pub process: String,
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
    clock: ClockOffset,
    at: Ms,
}

/// The clocks of a cluster as one process knows them.
#[derive(Clone, Debug)]
pub struct ClockAgreement {
    process: String,
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
        let process = process.into();
        Self { process, skew_ms, own, heard: BTreeMap::new(), upstream: None, agreed: None, used: None, is_used: true }
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
        if let Some((of, clock)) = report.clock
            && of == run
            && report.process != self.process
            && (self.heard.len() < MAX_CLOCKS || self.heard.contains_key(&report.process))
        {
            self.heard.insert(report.process.clone(), HeardClock { clock, at: now });
        }
        self.note_time(report.time_ms, now);
        self.agree(now);
    }

    /// At a member: the meta-server answers the report that was sent at `sent`.
    pub fn handle_answer(&mut self, answer: &ClockAnswer, sent: Ms, now: Ms) {
        let travel = now.saturating_sub(sent);
        let middle = if planted(Bug::TravelTimeIgnored) { now } else { sent + travel / 2 };
        let steady = ClockOffset { offset_ms: difference(answer.steady_ms, middle), error_ms: travel.div_ceil(2) };
        self.upstream = Some((answer.run, steady));
        if !planted(Bug::SampleKept) {
            self.heard.clear();
        }
        for ProcessOffset { process, clock } in answer.clocks.iter().take(MAX_CLOCKS) {
            if *process == self.process {
                continue;
            }
            let shift = if planted(Bug::OffsetReversed) { -steady.offset_ms } else { steady.offset_ms };
            let clock = ClockOffset {
                offset_ms: clock.offset_ms.saturating_add(shift),
                error_ms: clock.error_ms.saturating_add(steady.error_ms),
            };
            self.heard.insert(process.clone(), HeardClock { clock, at: now });
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
        let is_ahead = offset > known.saturating_add_unsigned(self.skew_ms);
        if time_ms > 0 && time_ms <= MAX_TIME_MS && is_ahead {
            self.used = Some((offset, now));
        }
    }

    // -------------------------------------------------------------------------------------------- the agreed time

    /// The clocks that count, by the own steady clock.
    fn counted(&self, now: Ms) -> impl Iterator<Item = (&str, i64)> {
        let counts = move |heard: &HeardClock| {
            let is_near = heard.clock.error_ms <= self.skew_ms / 2 || planted(Bug::DistantSampleTaken);
            is_near && (heard.at + FORGET_MS > now || planted(Bug::SampleKept))
        };
        let heard = self.heard.iter().filter(move |(_, heard)| counts(heard));
        let heard = heard.map(|(process, heard)| (process.as_str(), heard.clock.offset_ms));
        heard.chain([(self.process.as_str(), self.own)])
    }

    fn agree(&mut self, now: Ms) {
        let clocks: Vec<(&str, i64)> = self.counted(now).collect();
        if clocks.len() > 1 || self.is_catalogue() {
            self.agreed = self.agreed_clock(&clocks).or(self.agreed);
        }
        let trusted = matches!(self.verdict(), ClockVerdict::Trusted(_));
        if let Some(offset) = self.time_offset(now).filter(|_| trusted && self.is_used) {
            // What is lost is rounded down, so it is computed for longer times.
            let is_news = self.used.is_none_or(|(used, at)| used != offset || now >= at + COMPARE_MS);
            self.used = if is_news { Some((offset, now)) } else { self.used };
        }
    }

    /// The agreed time of these clocks; `None` if most of them do not agree, and that of the meta-server is not known.
    fn agreed_clock(&self, clocks: &[(&str, i64)]) -> Option<i64> {
        if planted(Bug::OwnClockTaken) {
            return Some(self.own);
        }
        let mut offsets: Vec<i64> = clocks.iter().map(|(_, offset)| *offset).collect();
        offsets.sort_unstable();
        let median = *offsets.get(offsets.len().saturating_sub(1) / 2)?;
        let near = offsets.iter().filter(|offset| offset.abs_diff(median) <= self.skew_ms).count();
        if near * 2 > offsets.len() || planted(Bug::MinorityBelieved) {
            return Some(median);
        }
        clocks.iter().find(|(process, _)| *process == CATALOGUE).map(|(_, offset)| *offset)
    }

    /// How far the time of the cluster is ahead of the steady clock.
    fn time_offset(&self, now: Ms) -> Option<i64> {
        let agreed = self.agreed?;
        let Some((used, at)) = self.used else { return Some(agreed) };
        let lost = now.saturating_sub(at) / SLOW_DOWN;
        let slowed = used.saturating_sub_unsigned(lost);
        let is_ahead = slowed > agreed.saturating_add_unsigned(self.skew_ms);
        Some(if is_ahead && !planted(Bug::TimeGoesBack) { slowed } else { agreed })
    }

    // -------------------------------------------------------------------------------------------- outputs

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
        ClockReport { process: self.process.clone(), clock, time_ms }
    }

    /// What this meta-server answers to a report.
    #[must_use]
    pub fn answer(&self, run: u64, now: Ms) -> ClockAnswer {
        let clocks = self.counted(now).map(|(process, offset_ms)| {
            let error_ms = self.heard.get(process).map_or(0, |heard| heard.clock.error_ms);
            ProcessOffset { process: process.to_owned(), clock: ClockOffset { offset_ms, error_ms } }
        });
        let used = self.used.and(self.time_offset(now));
        let time_ms = used.map_or(0, |offset_ms| ClusterTime { offset_ms, is_trusted: true }.at(now));
        ClockAnswer { run, steady_ms: now, clocks: clocks.collect(), time_ms }
    }

    /// How far the clock of each process that counts is ahead of the agreed time, in milliseconds.
    #[must_use]
    pub fn offsets(&self, now: Ms) -> BTreeMap<String, i64> {
        let agreed = self.agreed.unwrap_or(self.own);
        self.counted(now).map(|(process, offset)| (process.to_owned(), offset.saturating_sub(agreed))).collect()
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
