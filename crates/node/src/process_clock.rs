//! The clock of this process beside those of its cluster (rule L2): the machine [`ClockAgreement`] with a real clock and the meta-server.
//!
//! A process that follows a remote catalogue compares its clock once a second ([`ProcessClock::follow`]). The meta-server keeps what the
//! processes report (`ProcessClock::handle_report`). The roles of one process share one clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{env, fs};

use arc_swap::ArcSwap;
use model::{Error, ErrorKind, Result, checksum};
use protocol::clock::ClusterTime;
use protocol::clock_agreement::{
    COMPARE_MS, ClockAgreement, ClockAnswer, ClockOffset, ClockReport, ClockVerdict, Machine, ProcessOffset,
};
use protocol::ident::HlcTimestamp;
use tokio::sync::watch;
use tokio::time;
use tracing::{debug, error, info, warn};
use wire::driving::MonotonicClock;
use wire::proto::{ClockStatus, meta as proto};
use wire::tasks;

use crate::brick::SKEW_MS;
use crate::meta::RemoteMetaStore;
use crate::server::Metric;

/// Names the machine of a process.
const MACHINE_VARIABLE: &str = "MORTAR_MACHINE";
/// The longest name of a process in a report, in bytes.
const MAX_NAME: usize = 64;
/// Changes of the time of the cluster by less than this are not passed on, in milliseconds: each measurement differs a little.
const NOTICED_MS: u64 = 100;
/// The pause before a clock is compared again that this run of the meta-server has not heard of.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Comparisons of a process that ends soon.
const MAX_COMPARISONS: usize = 40;

/// The clock of a process.
pub struct ProcessClock {
    time: MonotonicClock,
    /// The number of this run, if the process is the meta-server.
    run: u64,
    agreement: Mutex<ClockAgreement>,
    /// What the machines of the process go by, readable without the lock.
    current: ArcSwap<CurrentTime>,
    changed: watch::Sender<()>,
    /// Whether the log has a line that the clock is refused, and none that it is right again.
    was_refused: AtomicBool,
}

/// The time of the cluster, and why the process makes no timestamps, if so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CurrentTime {
    time: ClusterTime,
    refusal: Option<String>,
}

impl std::fmt::Debug for ProcessClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessClock").field("current", &self.current.load()).finish_non_exhaustive()
    }
}

impl ProcessClock {
    /// The clock of a meta-server, or of a process that has the whole cluster: it believes itself until it hears of others.
    #[must_use]
    pub fn of_catalogue() -> Arc<Self> {
        let time = MonotonicClock::of_process();
        Self::new(time, ClockAgreement::catalogue(SKEW_MS, time.wall_offset_ms(), time.now()))
    }

    /// The clock of a process that compares it with those of others.
    #[must_use]
    pub fn of_member() -> Arc<Self> {
        let time = MonotonicClock::of_process();
        Self::new(time, ClockAgreement::member("", SKEW_MS, time.wall_offset_ms()))
    }

    fn new(time: MonotonicClock, agreement: ClockAgreement) -> Arc<Self> {
        let (agreement, current) = (Mutex::new(agreement.on(this_machine())), ArcSwap::default());
        let (changed, was_refused) = (watch::Sender::new(()), AtomicBool::new(false));
        let clock = Self { time, run: rand::random(), agreement, current, changed, was_refused };
        clock.publish(&clock.lock());
        Arc::new(clock)
    }

    fn lock(&self) -> MutexGuard<'_, ClockAgreement> {
        // The machine is consistent between any two calls.
        self.agreement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the machine an input, and tells those that follow the time of what has changed.
    fn update<T>(&self, act: impl FnOnce(&mut ClockAgreement, &MonotonicClock) -> T) -> T {
        let mut agreement = self.lock();
        let done = act(&mut agreement, &self.time);
        self.publish(&agreement);
        done
    }

    fn publish(&self, agreement: &ClockAgreement) {
        let mut next = CurrentTime { time: agreement.time(self.time.now()), refusal: refusal(agreement) };
        let before = self.current.load();
        if before.time.offset_ms.abs_diff(next.time.offset_ms) < NOTICED_MS {
            next.time.offset_ms = before.time.offset_ms;
        }
        if **before == next {
            return;
        }
        match (&before.refusal, &next.refusal) {
            (_, Some(why)) if !self.is_first_refusal(agreement) => debug!("{why}"),
            (_, Some(why)) => error!("{why}"),
            (Some(_), None) if self.was_refused.swap(false, Ordering::Relaxed) => {
                info!("the clock of this process is right again");
            }
            _ => {}
        }
        self.current.store(Arc::new(next));
        self.changed.send_replace(());
    }

    /// Whether the clock is refused, and was not before.
    fn is_first_refusal(&self, agreement: &ClockAgreement) -> bool {
        let is_refused = matches!(agreement.verdict(), ClockVerdict::Refused(_));
        is_refused && !self.was_refused.swap(true, Ordering::Relaxed)
    }

    /// A brick or a peer server in this process makes timestamps.
    pub(crate) fn begin_use(&self) {
        self.update(|agreement, time| agreement.begin_use(time.now()));
    }

    /// Names the process when its number in the cluster is known.
    pub(crate) fn set_process(&self, name: &str) {
        self.update(|agreement, _| {
            if agreement.process().is_empty() {
                agreement.set_process(name);
            }
        });
    }

    /// Reads the wall clock again; to be called once a second.
    pub(crate) fn refresh(&self) {
        self.update(|agreement, time| agreement.set_own(time.wall_offset_ms(), time.now()));
    }

    /// The log of a logical node has timestamps up to this one.
    pub(crate) fn note_log(&self, last: HlcTimestamp) {
        self.update(|agreement, time| agreement.note_log(last.ms(), time.now()));
    }

    // -------------------------------------------------------------------------------------------- the meta-server

    /// Compares this clock with those of the cluster once, at a meta-server.
    ///
    /// # Errors
    /// If no meta-server answers.
    pub async fn compare(&self, catalogue: &RemoteMetaStore) -> Result<()> {
        let answered = catalogue.compare_clocks(|| {
            self.refresh();
            let sent = self.time.now();
            (sent, report_to_proto(self.lock().report(sent)))
        });
        match answered.await {
            Ok((sent, answer)) => {
                let answer = answer_of_proto(answer);
                self.update(|agreement, time| agreement.handle_answer(&answer, sent, time.now()));
                Ok(())
            }
            // An older meta-server compares no clocks.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                debug!(%error, "the meta-server compares no clocks; this process believes its own");
                self.update(|agreement, time| agreement.believe_own(time.now()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Compares this clock with those of the cluster until it is known whether it is right, for a process that ends soon.
    ///
    /// # Errors
    /// If no meta-server answers, or the clock is wrong.
    pub async fn compare_until_known(&self, catalogue: &RemoteMetaStore) -> Result<()> {
        for _ in 0..MAX_COMPARISONS {
            self.compare(catalogue).await?;
            if !matches!(self.lock().verdict(), ClockVerdict::Unknown) {
                break;
            }
            time::sleep(FIRST_PAUSE).await;
        }
        self.check()
    }

    /// Compares this clock with those of the cluster once a second, as long as the clock is used.
    pub fn follow(self: &Arc<Self>, catalogue: RemoteMetaStore) {
        let clock = Arc::downgrade(self);
        tasks::spawn(async move {
            let mut is_away = false;
            while let Some(clock) = Weak::upgrade(&clock) {
                let before = clock.lock().run();
                let compared = clock.compare(&catalogue).await;
                clock.refresh();
                let is_reported = clock.lock().run() == before;
                drop(clock);
                match &compared {
                    Err(error) if !is_away => warn!(%error, "clocks cannot be compared"),
                    _ => {}
                }
                is_away = compared.is_err();
                time::sleep(if is_reported { Duration::from_millis(COMPARE_MS) } else { FIRST_PAUSE }).await;
            }
        });
    }

    /// At a meta-server: a process reports its clock.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if its name is too long.
    pub(crate) fn handle_report(&self, report: proto::CompareClocks) -> Result<proto::Clocks> {
        if report.process.len() > MAX_NAME {
            return Err(Error::new(ErrorKind::Invalid, "the name of a process is too long"));
        }
        let report = report_of_proto(report);
        let answer = self.update(|agreement, time| {
            let now = time.now();
            agreement.set_own(time.wall_offset_ms(), now);
            agreement.handle_report(&report, self.run, now);
            agreement.answer(self.run, now)
        });
        Ok(answer_to_proto(answer))
    }

    // -------------------------------------------------------------------------------------------- outputs

    /// The time of the cluster, for the machines of this process.
    pub(crate) fn cluster_time(&self) -> ClusterTime {
        self.current.load().time
    }

    /// The time of the cluster in milliseconds since 1970; 0 if this process does not know it.
    pub(crate) fn time_ms(&self) -> u64 {
        let time = self.cluster_time();
        if time.is_trusted { time.at(self.time.now()) } else { 0 }
    }

    /// Why this process makes no timestamps; `None` if it makes some.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.current.load().refusal.clone()
    }

    /// Checks that this process may make timestamps.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] with the reason why not.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.current.load().refusal {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, why.clone())),
            None => Ok(()),
        }
    }

    /// Signals changes of the time of the cluster, and of whether this process makes timestamps.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The clocks of the cluster.
    pub(crate) fn statuses(&self) -> Vec<ClockStatus> {
        let offsets = self.lock().offsets(self.time.now()).into_iter();
        let name = |process: String| if process.is_empty() { "this process".to_owned() } else { process };
        let status = |(process, offset_ms): (String, i64)| ClockStatus {
            process: name(process),
            offset_ms,
            refused: offset_ms.unsigned_abs() > SKEW_MS,
        };
        offsets.map(status).collect()
    }

    /// How a process's clock is wrong, if it is known to be: "brick 2: its clock is 600.0 s ahead".
    pub(crate) fn refusal_of(&self, process: &str) -> Option<String> {
        let offset_ms = self.lock().offsets(self.time.now()).get(process).copied()?;
        (offset_ms.unsigned_abs() > SKEW_MS).then(|| format!("its clock is {}", distance(offset_ms)))
    }

    /// The metrics of clocks.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let clocks = self.statuses();
        let (own, ahead) = {
            let agreement = self.lock();
            let own = match agreement.verdict() {
                ClockVerdict::Unknown => 0,
                ClockVerdict::Trusted(offset_ms) | ClockVerdict::Refused(offset_ms) => offset_ms,
            };
            (own, agreement.ahead_ms(self.time.now()))
        };
        let refused = clocks.iter().filter(|clock| clock.refused).count() as u64;
        let own_refused = u64::from(!self.cluster_time().is_trusted);
        vec![
            Metric::gauge("clock_ahead_ms", own.max(0).unsigned_abs(), "How far the clock of this process is ahead."),
            Metric::gauge("clock_behind_ms", own.min(0).unsigned_abs(), "How far the clock of this process is behind."),
            Metric::gauge("clock_refused", own_refused, "Whether this process serves nothing because of its clock."),
            Metric::gauge("clocks_compared", clocks.len() as u64, "Processes whose clocks are compared."),
            Metric::gauge("clocks_refused", refused, "Processes whose clocks are wrong."),
            Metric::gauge("cluster_time_ahead_ms", ahead, "How far the time of the cluster is ahead of its clocks."),
        ]
    }
}

/// The machine of this process, whose processes have one clock: by `MORTAR_MACHINE`, or the number of its kernel's run.
fn this_machine() -> Machine {
    let name = env::var(MACHINE_VARIABLE).ok().filter(|name| !name.is_empty());
    let name = name.or_else(|| fs::read_to_string("/proc/sys/kernel/random/boot_id").ok());
    Machine(name.map_or(0, |name| checksum::crc64(name.trim().as_bytes())))
}

/// Why a process makes no timestamps.
fn refusal(agreement: &ClockAgreement) -> Option<String> {
    let name = if agreement.process().is_empty() { "this process" } else { agreement.process() };
    match agreement.verdict() {
        ClockVerdict::Trusted(_) => None,
        ClockVerdict::Unknown => Some(format!("the clock of {name} was not compared with others yet: try again")),
        ClockVerdict::Refused(offset_ms) => Some(format!(
            "the clock of {name} is {} the cluster's, and {} s are allowed: set it right",
            match offset_ms > 0 {
                true => format!("{} of", distance(offset_ms)),
                false => distance(offset_ms),
            },
            SKEW_MS / 1_000
        )),
    }
}

/// "600.0 s ahead", "3600.0 s behind".
fn distance(offset_ms: i64) -> String {
    let seconds = offset_ms.unsigned_abs() as f64 / 1_000.0;
    format!("{seconds:.1} s {}", if offset_ms > 0 { "ahead" } else { "behind" })
}

fn report_to_proto(report: ClockReport) -> proto::CompareClocks {
    let ClockReport { process, machine, clock, time_ms } = report;
    let (run, clock) = match clock {
        // A process without a number is not counted.
        Some((run, clock)) if !process.is_empty() => (Some(run), clock),
        _ => (None, ClockOffset { offset_ms: 0, error_ms: 0 }),
    };
    let ClockOffset { offset_ms, error_ms } = clock;
    proto::CompareClocks { process, run, offset_ms, error_ms, time_ms, machine: machine.0 }
}

fn report_of_proto(report: proto::CompareClocks) -> ClockReport {
    let proto::CompareClocks { process, run, offset_ms, error_ms, time_ms, machine } = report;
    let clock = run.map(|run| (run, ClockOffset { offset_ms, error_ms }));
    ClockReport { process, machine: Machine(machine), clock, time_ms }
}

fn answer_to_proto(answer: ClockAnswer) -> proto::Clocks {
    let ClockAnswer { run, steady_ms, clocks, time_ms } = answer;
    let clock = |clock: ProcessOffset| {
        let ProcessOffset { process, machine, clock: ClockOffset { offset_ms, error_ms } } = clock;
        proto::Clock { process, offset_ms, error_ms, machine: machine.0 }
    };
    proto::Clocks { run, steady_ms, clocks: clocks.into_iter().map(clock).collect(), time_ms }
}

fn answer_of_proto(answer: proto::Clocks) -> ClockAnswer {
    let proto::Clocks { run, steady_ms, clocks, time_ms } = answer;
    let clock = |clock: proto::Clock| {
        let proto::Clock { process, offset_ms, error_ms, machine } = clock;
        ProcessOffset { process, machine: Machine(machine), clock: ClockOffset { offset_ms, error_ms } }
    };
    ClockAnswer { run, steady_ms, clocks: clocks.into_iter().map(clock).collect(), time_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_process_and_say_how_far_its_clock_is_off() {
        assert_eq!((distance(600_000), distance(-1_500)), ("600.0 s ahead".to_owned(), "1.5 s behind".to_owned()));
        let mut agreement = ClockAgreement::member("brick 2", SKEW_MS, 600_000);
        assert_eq!(refusal(&agreement).unwrap(), "the clock of brick 2 was not compared with others yet: try again");
        let clock = |process: &str| ProcessOffset {
            process: process.to_owned(),
            machine: Machine::default(),
            clock: ClockOffset { offset_ms: 0, error_ms: 0 },
        };
        let clocks = vec![clock("meta-server"), clock("brick 1")];
        agreement.handle_answer(&ClockAnswer { run: 1, steady_ms: 7, clocks, time_ms: 0 }, 7, 7);
        assert_eq!(
            refusal(&agreement).unwrap(),
            "the clock of brick 2 is 600.0 s ahead of the cluster's, and 5 s are allowed: set it right"
        );
    }

    #[test]
    fn process_whose_clock_is_wrong_is_refused_in_the_list_and_by_name() {
        let clock = ProcessClock::of_catalogue();
        let right_ms = clock.time_ms() as i64 - clock.time.now() as i64;
        for (process, ahead_ms) in
            [("brick 1", 0), ("brick 2", 600_000), ("brick 3", -600_000), ("peer server 1", 1_000)]
        {
            let offset = ClockOffset { offset_ms: right_ms + ahead_ms, error_ms: 0 };
            let (process, machine) = (process.to_owned(), Machine::default());
            let report = ClockReport { process, machine, clock: Some((1, offset)), time_ms: 0 };
            clock.update(|agreement, time| agreement.handle_report(&report, 1, time.now()));
        }
        let refused = clock.statuses().into_iter().filter(|status| status.refused).map(|status| status.process);
        assert_eq!(refused.collect::<Vec<_>>(), ["brick 2", "brick 3"]);
        let refusal = |process| clock.refusal_of(process);
        assert!(refusal("brick 2").unwrap().ends_with("s ahead") && refusal("brick 3").unwrap().ends_with("s behind"));
        assert_eq!((refusal("brick 1"), refusal("peer server 1"), refusal("brick 4")), (None, None, None));
    }

    #[test]
    fn store_on_its_own_believes_its_clock() {
        let clock = ProcessClock::of_catalogue();
        assert!(clock.check().is_ok() && clock.time_ms() > 0);
        assert_eq!(clock.statuses().len(), 1);
        let ahead = clock.time_ms() + 3_600_000;
        clock.note_log(HlcTimestamp::at(ahead));
        assert!(clock.time_ms() >= ahead, "it goes on from its log");
    }

    #[test]
    fn long_names_are_refused() {
        let clock = ProcessClock::of_catalogue();
        let report = proto::CompareClocks { process: "x".repeat(MAX_NAME + 1), ..Default::default() };
        assert_eq!(clock.handle_report(report).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
