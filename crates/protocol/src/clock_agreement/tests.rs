use model::planted_bug::plant;

use super::*;

const SKEW_MS: u64 = 5_000;
/// What the true time is when the steady clock of the meta-server shows 0.
const EPOCH: i64 = 1_800_000_000_000;
const RUN: u64 = 7;

/// A process: its agreement, how far its steady clock is ahead of the meta-server's, and how far its wall clock is ahead of the true
/// time.
struct Process {
    agreement: ClockAgreement,
    steady: i64,
    wrong: i64,
}

/// A cluster whose first process is the meta-server. Messages take `way` and `back` milliseconds.
struct Cluster {
    processes: Vec<Process>,
    /// The number of the meta-server's run.
    run: u64,
    now: Ms,
    way: Ms,
    back: Ms,
}

impl Cluster {
    /// A cluster whose wall clocks are this wrong.
    fn new(wrong: &[i64]) -> Self {
        let process = |(number, wrong): (usize, &i64)| {
            let steady = number as i64 * 50_000;
            let agreement = match number {
                0 => ClockAgreement::catalogue(SKEW_MS, EPOCH + wrong, 0),
                _ => ClockAgreement::member(format!("brick {number}"), SKEW_MS, EPOCH + wrong - steady),
            };
            Process { agreement, steady, wrong: *wrong }
        };
        let processes = wrong.iter().enumerate().map(process).collect();
        Self { processes, run: RUN, now: 0, way: 3, back: 3 }
    }

    /// The same, with these processes on one machine.
    fn on_one_machine(mut self, processes: &[usize]) -> Self {
        for number in processes {
            let agreement = &mut self.processes[*number].agreement;
            *agreement = agreement.clone().on(Machine(1));
        }
        self
    }

    /// The meta-server starts again, with a clock that is this wrong.
    fn restart_meta_server(&mut self, wrong: i64) {
        self.run += 1;
        self.processes[0] =
            Process { agreement: ClockAgreement::catalogue(SKEW_MS, EPOCH + wrong, self.now), steady: 0, wrong };
    }

    fn local(&self, number: usize, now: Ms) -> Ms {
        now.saturating_add_signed(self.processes[number].steady)
    }

    /// The process reads its clock and compares it.
    fn compare(&mut self, number: usize) {
        let (sent, asked, answered) = (self.now, self.now + self.way, self.now + self.way + self.back);
        let (sent, answered) = (self.local(number, sent), self.local(number, answered));
        self.read(number);
        let report = self.processes[number].agreement.report(sent);
        let hub = &mut self.processes[0].agreement;
        hub.handle_report(&report, self.run, asked);
        let answer = hub.answer(self.run, asked);
        self.processes[number].agreement.handle_answer(&answer, sent, answered);
    }

    fn read(&mut self, number: usize) {
        let now = self.local(number, self.now);
        let Process { agreement, steady, wrong } = &mut self.processes[number];
        agreement.set_own(EPOCH + *wrong - *steady, now);
    }

    /// Every process but those compares its clock for some seconds.
    fn run(&mut self, seconds: u64, gone: &[usize]) {
        for _ in 0..seconds {
            self.read(0);
            for number in 1..self.processes.len() {
                if !gone.contains(&number) {
                    self.compare(number);
                }
            }
            self.now += COMPARE_MS;
        }
    }

    fn verdict(&self, number: usize) -> ClockVerdict {
        self.processes[number].agreement.verdict()
    }

    fn trusted_processes(&self) -> Vec<usize> {
        let all = 0..self.processes.len();
        all.filter(|number| matches!(self.verdict(*number), ClockVerdict::Trusted(_))).collect()
    }

    /// How far the time of the cluster is ahead of the true time at a process.
    fn ahead(&self, number: usize) -> i64 {
        let time = self.processes[number].agreement.time(self.local(number, self.now)).at(self.local(number, self.now));
        time as i64 - EPOCH - self.now as i64
    }

    fn set(&mut self, number: usize, wrong: i64) {
        self.processes[number].wrong = wrong;
    }
}

const HOUR: i64 = 3_600_000;

#[test]
fn one_wrong_clock_is_refused_and_the_others_go_on() {
    for wrong in [-HOUR, -10_000, 10_000, -600_000, 600_000, HOUR, 10 * 365 * 24 * HOUR] {
        for number in 0..4 {
            let mut cluster = Cluster::new(&[0; 4]);
            cluster.run(3, &[]);
            assert_eq!(cluster.trusted_processes(), [0, 1, 2, 3]);
            cluster.set(number, wrong);
            cluster.run(2, &[]);
            let others: Vec<usize> = (0..4).filter(|other| *other != number).collect();
            assert_eq!(cluster.trusted_processes(), others, "{wrong} at {number}");
            assert_eq!(cluster.verdict(number), ClockVerdict::Refused(wrong));
            assert!(
                (0..4).all(|number| cluster.ahead(number).abs() <= 10),
                "L2: no process takes the time of a wrong clock"
            );
            cluster.set(number, 0);
            cluster.run(2, &[]);
            assert_eq!(cluster.trusted_processes(), [0, 1, 2, 3], "{wrong} at {number}");
        }
    }
}

#[test]
fn clock_that_is_wrong_at_its_start_is_refused() {
    let mut cluster = Cluster::new(&[0, 0, HOUR, 0]);
    assert_eq!(cluster.verdict(2), ClockVerdict::Unknown);
    cluster.run(3, &[]);
    assert_eq!(cluster.trusted_processes(), [0, 1, 3]);
    let _bug = plant(Bug::ServesUncompared);
    let cluster = Cluster::new(&[0, 0, HOUR, 0]);
    assert!(cluster.trusted_processes().contains(&2), "the bug is noticed: a clock counts that was not compared");
}

#[test]
fn small_differences_are_allowed() {
    let mut cluster = Cluster::new(&[0, 2_000, -2_000, 4_000]);
    cluster.run(3, &[]);
    assert_eq!(cluster.trusted_processes(), [0, 1, 2, 3]);
}

#[test]
fn clock_of_the_meta_server_decides_where_no_majority_agrees() {
    let mut cluster = Cluster::new(&[0, HOUR]);
    cluster.run(3, &[]);
    assert_eq!(cluster.trusted_processes(), [0]);
    let mut cluster = Cluster::new(&[HOUR, 0, 0, HOUR]);
    cluster.run(3, &[]);
    assert_eq!(cluster.trusted_processes(), [0, 3]);
    let _bug = plant(Bug::MinorityBelieved);
    let mut cluster = Cluster::new(&[HOUR, 0, 0, HOUR]);
    cluster.run(3, &[]);
    assert_ne!(cluster.trusted_processes(), [0, 3], "the bug is noticed");
}

#[test]
fn clock_of_a_process_that_is_gone_is_forgotten() {
    let clocks = [0, 0, HOUR, HOUR, HOUR];
    let mut cluster = Cluster::new(&clocks);
    cluster.run(3, &[]);
    assert_eq!(cluster.trusted_processes(), [2, 3, 4]);
    let gone = [3, 4];
    cluster.run(11, &gone);
    assert_eq!((cluster.verdict(0), cluster.verdict(1)), (ClockVerdict::Trusted(0), ClockVerdict::Trusted(0)));
    let _bug = plant(Bug::SampleKept);
    let mut cluster = Cluster::new(&clocks);
    cluster.run(3, &[]);
    cluster.run(10, &gone);
    assert_ne!(cluster.verdict(0), ClockVerdict::Trusted(0), "the bug is noticed");
}

#[test]
fn offsets_are_measured_between_any_two_steady_clocks() {
    let measure = |way, back| {
        let mut cluster = Cluster { way, back, ..Cluster::new(&[0, 1_000, 0]) };
        cluster.run(3, &[]);
        cluster.processes[2].agreement.offsets(cluster.local(2, cluster.now))
    };
    let expected =
        BTreeMap::from([(CATALOGUE.to_owned(), 0), ("brick 1".to_owned(), 1_000), ("brick 2".to_owned(), 0)]);
    assert_eq!(measure(400, 400), expected);
    let _bug = plant(Bug::TravelTimeIgnored);
    assert_ne!(measure(400, 400), expected, "the bug is noticed");
    drop(_bug);
    let _bug = plant(Bug::OffsetReversed);
    assert_ne!(measure(400, 400), expected, "the bug is noticed");
}

#[test]
fn clock_whose_measurement_takes_too_long_does_not_count() {
    let slow = || {
        let mut cluster = Cluster { way: 8_000, back: 0, ..Cluster::new(&[0, 0, 0]) };
        cluster.run(3, &[]);
        cluster.trusted_processes()
    };
    assert_eq!(slow(), [0], "nothing was compared");
    let _bug = plant(Bug::DistantSampleTaken);
    assert_ne!(slow(), [0], "the bug is noticed");
}

#[test]
fn clock_that_may_be_wrong_by_half_the_skew_counts() {
    let trusted = |way| {
        let mut cluster = Cluster { way, back: 0, ..Cluster::new(&[0, 0, 0]) };
        cluster.run(3, &[]);
        cluster.trusted_processes()
    };
    assert_eq!(trusted(SKEW_MS), [0, 1, 2]);
    assert_eq!(trusted(SKEW_MS + 1), [0]);
}

#[test]
fn wrong_clock_does_not_tell_others_its_time() {
    let run = || {
        let mut cluster = Cluster::new(&[0, 0, 0, 0]);
        cluster.run(3, &[]);
        cluster.set(2, HOUR);
        cluster.run(3, &[]);
        (0..4).map(|number| cluster.ahead(number).abs()).max().unwrap()
    };
    assert!(run() <= 10);
    let bug = plant(Bug::OwnClockTaken);
    assert!(run() > 1_000_000, "the bug is noticed");
    drop(bug);
    let reported = || {
        let mut cluster = Cluster::new(&[0, 0, HOUR]);
        cluster.run(3, &[]);
        cluster.processes[2].agreement.report(cluster.local(2, cluster.now)).time_ms
    };
    assert_eq!(reported(), 0);
    let _bug = plant(Bug::WrongClockTeaches);
    assert_ne!(reported(), 0, "the bug is noticed");
}

#[test]
fn time_does_not_jump_back_when_all_clocks_do() {
    let run = || {
        let mut cluster = Cluster::new(&[HOUR; 4]);
        cluster.run(3, &[]);
        // All clocks are set right at different moments.
        for number in 0..4 {
            cluster.set(number, 0);
            cluster.run(3, &[]);
        }
        assert_eq!(cluster.trusted_processes(), [0, 1, 2, 3]);
        let ahead: Vec<i64> = (0..4).map(|number| cluster.ahead(number)).collect();
        // A process that is restarted learns what time it is.
        cluster.processes[3].agreement =
            ClockAgreement::member("brick 3", SKEW_MS, EPOCH - cluster.processes[3].steady);
        cluster.run(2, &[]);
        (ahead.into_iter().min().unwrap(), cluster.ahead(3), cluster)
    };
    let (ahead, restarted, mut cluster) = run();
    assert!(ahead > HOUR - 20_000 && restarted > HOUR - 20_000, "{ahead} {restarted}");
    assert!(cluster.processes[1].agreement.ahead_ms(cluster.local(1, cluster.now)) > 3_000_000);
    cluster.run(17 * 3_600, &[]);
    let ahead: Vec<i64> = (0..4).map(|number| cluster.ahead(number)).collect();
    assert!(ahead.iter().all(|ahead| ahead.unsigned_abs() <= SKEW_MS), "the clocks have caught up: {ahead:?}");
    let _bug = plant(Bug::TimeGoesBack);
    let (ahead, ..) = run();
    assert!(ahead < 1_000, "the bug is noticed");
}

#[test]
fn store_goes_on_from_its_log() {
    let run = || {
        let mut agreement = ClockAgreement::catalogue(SKEW_MS, EPOCH, 100);
        agreement.begin_use(100);
        agreement.note_log((EPOCH + HOUR) as u64, 100);
        agreement.set_own(EPOCH, 1_100);
        (agreement.time(1_100).at(1_100) as i64 - EPOCH, agreement.verdict())
    };
    let (ahead, verdict) = run();
    assert!((HOUR..HOUR + 1_100).contains(&ahead), "{ahead}");
    assert_eq!(verdict, ClockVerdict::Trusted(0), "it believes its clock");
    let _bug = plant(Bug::LogTimeIgnored);
    assert!(run().0 < HOUR, "the bug is noticed");
}

#[test]
fn meta_server_that_starts_again_with_a_wrong_clock_outvotes_no_process() {
    let restart = || {
        let mut cluster = Cluster::new(&[0; 4]);
        cluster.run(3, &[]);
        cluster.restart_meta_server(HOUR);
        // The first one hears only of the meta-server's clock.
        for number in [1, 1, 2, 3] {
            cluster.compare(number);
            let is_harmed = |number: usize| {
                !matches!(cluster.verdict(number), ClockVerdict::Trusted(_)) || cluster.ahead(number).abs() > 10
            };
            if (1..4).any(is_harmed) {
                return Vec::new();
            }
        }
        cluster.run(2, &[]);
        cluster.trusted_processes()
    };
    assert_eq!(restart(), [1, 2, 3]);
    let _bug = plant(Bug::HeardDropped);
    assert_eq!(restart(), [], "the bug is noticed");
}

#[test]
fn processes_of_one_machine_count_once() {
    let run = || {
        // Three processes of a machine, whose clock is wrong, and one of each of two others.
        let mut cluster = Cluster::new(&[HOUR, HOUR, HOUR, 0, 0]).on_one_machine(&[0, 1, 2]);
        cluster.run(3, &[]);
        cluster.trusted_processes()
    };
    assert_eq!(run(), [3, 4]);
    let bug = plant(Bug::MachineCountsOften);
    assert_eq!(run(), [0, 1, 2], "the bug is noticed");
    drop(bug);
    // The clock of the only machine is set: none of its processes doubts it before the others have read it.
    let mut cluster = Cluster::new(&[0; 4]).on_one_machine(&[0, 1, 2, 3]);
    cluster.run(3, &[]);
    for number in 0..4 {
        cluster.set(number, -HOUR);
        cluster.read(number);
        assert_eq!(cluster.trusted_processes(), [0, 1, 2, 3]);
    }
}

#[test]
fn process_whose_clock_is_wrong_says_nothing_of_the_time() {
    let ahead = || {
        let mut agreement = ClockAgreement::catalogue(SKEW_MS, EPOCH, 100);
        let report = |process: &str, wrong: i64| ClockReport {
            process: process.to_owned(),
            machine: Machine::default(),
            clock: Some((RUN, ClockOffset { offset_ms: EPOCH + wrong, error_ms: 1 })),
            time_ms: (EPOCH + 100 + wrong) as u64,
        };
        for (process, wrong) in [("brick 1", 0), ("brick 2", 0), ("brick 3", HOUR)] {
            agreement.handle_report(&report(process, wrong), RUN, 100);
        }
        agreement.answer(RUN, 100).time_ms as i64 - EPOCH
    };
    assert!(ahead() <= 100);
    let _bug = plant(Bug::ReportedTimeTaken);
    assert!(ahead() > HOUR, "the bug is noticed");
}

#[test]
fn time_goes_back_slowly_by_however_little_clocks_go_back() {
    let mut cluster = Cluster::new(&[2_000; 3]);
    cluster.run(3, &[]);
    (0..3).for_each(|number| cluster.set(number, 0));
    let mut before = cluster.ahead(1);
    for _ in 0..30 {
        cluster.run(1, &[]);
        let ahead = cluster.ahead(1);
        assert!((before - 130..=before + 10).contains(&ahead), "{before} {ahead}");
        before = ahead;
    }
    assert!(cluster.ahead(1).abs() < 200);
}

#[test]
fn meta_server_with_a_wrong_clock_tells_no_process_its_time() {
    let mut cluster = Cluster::new(&[HOUR, 0, 0]);
    cluster.run(3, &[]);
    assert_eq!(cluster.trusted_processes(), [1, 2]);
    assert!((1..3).all(|number| cluster.ahead(number).abs() <= 10));
}

#[test]
fn impossible_times_are_ignored() {
    let mut agreement = ClockAgreement::catalogue(SKEW_MS, EPOCH, 100);
    agreement.note_log(u64::MAX, 100);
    agreement.handle_report(
        &ClockReport {
            process: "brick 1".to_owned(),
            machine: Machine::default(),
            clock: Some((RUN, ClockOffset { offset_ms: i64::MIN, error_ms: 0 })),
            time_ms: u64::MAX,
        },
        RUN,
        100,
    );
    assert_eq!(agreement.time(100).at(100) as i64, EPOCH + 100);
    let other = ClockReport {
        process: "brick 2".to_owned(),
        machine: Machine::default(),
        clock: Some((8, ClockOffset { offset_ms: 0, error_ms: 0 })),
        time_ms: 0,
    };
    agreement.handle_report(&other, RUN, 100);
    assert!(!agreement.offsets(100).contains_key("brick 2"), "its clock was measured by that of another run");
}

#[test]
fn agreed_time_goes_on_while_no_meta_server_answers() {
    let mut cluster = Cluster::new(&[0; 3]);
    cluster.run(3, &[]);
    for _ in 0..60 {
        cluster.now += 1_000;
        cluster.read(1);
    }
    assert_eq!(cluster.verdict(1), ClockVerdict::Trusted(0));
    cluster.set(1, 600_000);
    cluster.read(1);
    assert_eq!(cluster.verdict(1), ClockVerdict::Refused(600_000), "its own clock has jumped");
    assert!(cluster.ahead(1).abs() <= 10);
}

#[test]
fn older_meta_server_compares_nothing() {
    let mut agreement = ClockAgreement::member("brick 1", SKEW_MS, EPOCH);
    agreement.believe_own(50);
    assert_eq!(agreement.verdict(), ClockVerdict::Trusted(0));
}
