//! Many seeds over several threads, each run twice: two runs of one seed must be the same.
//!
//! A world never leaves its thread, and a bug is planted in one thread only.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use sim::bug::Bug;
use sim::run::{RunReport, run};
use sim::workload::{Choice, plan};

use crate::{interrupt, screen};

/// The seeds to run, and how.
pub(crate) struct Campaign {
    pub(crate) seeds: Range<u64>,
    pub(crate) choice: Choice,
    pub(crate) bug: Option<Bug>,
    pub(crate) threads: usize,
    /// Every seed only once.
    pub(crate) once: bool,
    /// The number of failed seeds after which no more begin.
    pub(crate) failures: usize,
}

/// How much has happened.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) seeds: u64,
    pub(crate) runs: u64,
    pub(crate) events: u64,
    pub(crate) simulated_ms: u64,
    pub(crate) operations: u64,
    pub(crate) succeeded: u64,
    /// Cuts from which clusters were restored.
    pub(crate) cuts: u64,
    /// Of all threads together.
    pub(crate) busy_ms: u64,
    pub(crate) elapsed_ms: u64,
}

impl Totals {
    /// How fast one thread is.
    pub(crate) fn events_a_second(&self) -> u64 {
        (self.events * 1_000).checked_div(self.busy_ms).unwrap_or_default()
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let Self { seeds, runs, events, simulated_ms, operations, succeeded, cuts, elapsed_ms, .. } = *self;
        let grouped = screen::group_digits;
        format!(
            "{} seeds, {} runs in {}: {} events ({} a second and core), {} simulated, {} operations, {} of them ok, {} cuts restored",
            grouped(seeds),
            grouped(runs),
            screen::duration(elapsed_ms),
            grouped(events),
            grouped(self.events_a_second()),
            screen::duration(simulated_ms),
            grouped(operations),
            grouped(succeeded),
            grouped(cuts)
        )
    }
}

/// A seed at which something was found wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FailedSeed {
    pub(crate) seed: u64,
    pub(crate) wrong: String,
    /// Two runs were not the same: there is nothing that could be shrunk.
    pub(crate) differs: bool,
}

impl FailedSeed {
    /// Without the operations, which the transcript has.
    fn brief(&self) -> String {
        let lines: Vec<&str> = self.wrong.lines().take_while(|line| !line.contains("{\"number\":")).collect();
        lines.join("\n")
    }
}

/// What has come of all.
pub(crate) struct CampaignResult {
    pub(crate) totals: Totals,
    /// By seed.
    pub(crate) failed: Vec<FailedSeed>,
    pub(crate) interrupted: bool,
}

/// One seed is done.
struct SeedResult {
    seed: u64,
    first: RunReport,
    runs: u64,
    differs: bool,
    busy: Duration,
}

impl Campaign {
    /// Runs the seeds until all are done, enough have failed, or the user interrupts.
    pub(crate) fn run(&self) -> CampaignResult {
        let (next, stop) = (AtomicU64::new(self.seeds.start), AtomicBool::new(false));
        let began = Instant::now();
        let bar = screen::bar(self.seeds.end.saturating_sub(self.seeds.start));
        let (mut totals, mut failed) = (Totals::default(), Vec::new());
        let mut busy = Duration::ZERO;
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..self.threads {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                scope.spawn(move || self.run_seeds(next, stop, &sender));
            }
            drop(sender);
            for done in receiver {
                busy += done.busy;
                totals.busy_ms = busy.as_millis() as u64;
                totals.elapsed_ms = began.elapsed().as_millis() as u64;
                done.add_to(&mut totals);
                bar.inc(1);
                bar.set_message(message(&totals));
                if let Some(one) = done.failure() {
                    bar.suspend(|| screen::status(format_args!("seed {}: {}", one.seed, one.brief())));
                    failed.push(one);
                    stop.fetch_or(failed.len() >= self.failures, Ordering::Relaxed);
                }
            }
        });
        bar.finish_and_clear();
        failed.sort();
        CampaignResult { totals, failed, interrupted: interrupt::is_requested() }
    }

    /// What each thread does.
    fn run_seeds(&self, next: &AtomicU64, stop: &AtomicBool, sender: &Sender<SeedResult>) {
        while !stop.load(Ordering::Relaxed) && !interrupt::is_requested() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.end {
                break;
            }
            let began = Instant::now();
            let first = run(plan(seed, self.choice), self.bug, false);
            let again = (!self.once).then(|| run(plan(seed, self.choice), self.bug, false));
            let (runs, busy) = (1 + u64::from(again.is_some()), began.elapsed());
            let differs = again.is_some_and(|again| again.digest() != first.digest());
            if sender.send(SeedResult { seed, first, runs, differs, busy }).is_err() {
                break;
            }
        }
    }
}

impl SeedResult {
    fn add_to(&self, totals: &mut Totals) {
        totals.seeds += 1;
        totals.runs += self.runs;
        totals.events += self.first.count.events * self.runs;
        totals.simulated_ms += self.first.count.simulated_ms * self.runs;
        totals.operations += self.first.history.operations.len() as u64;
        totals.succeeded += self.first.success_count() as u64;
        totals.cuts += self.first.count.cuts;
    }

    fn failure(&self) -> Option<FailedSeed> {
        let (seed, differs) = (self.seed, self.differs);
        match &self.first.wrong {
            _ if differs => Some(FailedSeed { seed, wrong: "two runs of it are not the same".to_owned(), differs }),
            Some(wrong) => Some(FailedSeed { seed, wrong: wrong.to_string(), differs }),
            None => None,
        }
    }
}

fn message(totals: &Totals) -> String {
    let seeds = totals.seeds as f64 * 1_000.0 / totals.elapsed_ms.max(1) as f64;
    let events = totals.events * 1_000 / totals.elapsed_ms.max(1);
    let simulated = screen::duration(totals.simulated_ms);
    format!("{seeds:.1} seeds/s, {} events/s, {simulated} simulated", screen::group_digits(events))
}
