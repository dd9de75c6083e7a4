use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::catalog::ident::PeerId;

/// Items of each part.
const ITEMS: u64 = 12;
const PARTS: u32 = 2;

fn worker(server: u32, start: u64) -> JobWorker {
    JobWorker { server: ServerId::Peer(PeerId(server)), start: StartNumber(start) }
}

fn job(parts: u32) -> Job {
    let kind = JobKind::Evolve { space: SpaceId(1), classes: Vec::new() };
    Job::begin(JobId(1), kind, ("ann".to_owned(), 5), None, (0..parts).collect())
}

/// What a process knows of the part that it works on.
struct Work {
    number: u32,
    next: u64,
}

/// A process, which may be taken for dead while it lives on.
struct Process {
    id: JobWorker,
    counts_as_alive: bool,
    work: Option<Work>,
}

/// A job, its parts, and two processes that work on it.
struct World {
    rng: StdRng,
    job: Job,
    parts: Vec<JobPart>,
    processes: [Process; 2],
    next_start: u64,
    /// How often each item of each part was worked on.
    worked: Vec<Vec<u32>>,
    /// How often a part was taken over: only then is work repeated.
    takeovers: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let process = |number| Process { id: worker(number, u64::from(number)), counts_as_alive: true, work: None };
        Self {
            rng: StdRng::seed_from_u64(seed),
            job: job(PARTS),
            parts: vec![JobPart::default(); PARTS as usize],
            processes: [process(1), process(2)],
            next_start: 3,
            worked: vec![vec![0; ITEMS as usize]; PARTS as usize],
            takeovers: 0,
        }
    }

    fn claim(&mut self, at: usize, number: u32) {
        let process = &self.processes[at];
        let was = self.parts[number as usize].clone();
        let alive: Vec<JobWorker> = self.processes.iter().filter(|one| one.counts_as_alive).map(|one| one.id).collect();
        let part = &mut self.parts[number as usize];
        if process.work.is_some() || self.job.claim((number, part), process.id, |one| alive.contains(&one)).is_err() {
            return;
        }
        assert_eq!(self.job.state, JobState::Running, "rule 4");
        assert!(
            was.worker.is_none_or(|one| one == process.id || !alive.contains(&one)),
            "rule 1: a part of the living"
        );
        assert_eq!(part.place, was.place, "rule 3: the place stays");
        self.takeovers += u32::from(was.worker.is_some_and(|one| one != process.id));
        let next = part.place.as_ref().map_or(0, |place| place.parse().unwrap());
        self.processes[at].work = Some(Work { number, next });
    }

    fn progress(next: u64) -> (Option<String>, JobProgress) {
        (Some(next.to_string()), JobProgress { done: next, total: ITEMS, ..JobProgress::default() })
    }

    /// Works on an item, or records what was done.
    fn step(&mut self, at: usize) {
        let Process { id, work, .. } = &mut self.processes[at];
        let Some(Work { number, next }) = work else { return };
        let (number, part) = (*number, &mut self.parts[*number as usize]);
        let before = part.clone();
        let is_ended = self.job.state.is_end();
        if self.job.state == JobState::Running && *next < ITEMS && self.rng.random_bool(0.7) {
            self.worked[number as usize][*next as usize] += 1;
            *next += 1;
            return;
        }
        let next = *next;
        let report = match (self.job.state, next == ITEMS) {
            (_, true) => PartReport::Complete,
            (JobState::Paused, _) => PartReport::Released,
            _ => PartReport::Continues,
        };
        let result = self.job.report((number, part), *id, Self::progress(next), (&report, 9));
        let keeps = result.is_ok() && next < ITEMS && self.job.state == JobState::Running;
        if result.is_ok() {
            assert_eq!(before.worker, Some(*id), "rule 2: only the worker records");
            assert!(!is_ended, "rule 5: a job that has ended does not change");
            assert!(before.progress.done <= part.progress.done, "rule 3: progress is kept");
        } else {
            assert_eq!(&before, part, "what is refused changes nothing");
        }
        if !keeps {
            *work = None;
        }
    }

    fn control(&mut self) {
        let before = self.job.clone();
        let result = match self.rng.random_range(0..3) {
            0 => self.job.pause(),
            1 => self.job.set_rate(Some(7)),
            _ => self.job.resume(),
        };
        assert!(result.is_err() || !before.state.is_end(), "rule 5: a job that has ended does not change");
        assert!(result.is_ok() || before == self.job);
    }

    fn act(&mut self) {
        let at = self.rng.random_range(0..2);
        match self.rng.random_range(0..20) {
            0 => {
                // A crash: the next start of the process is another worker.
                let id = JobWorker { start: StartNumber(self.next_start), ..self.processes[at].id };
                self.next_start += 1;
                self.processes[at] = Process { id, counts_as_alive: true, work: None };
            }
            1 => self.processes[at].counts_as_alive ^= true,
            2 => self.control(),
            3..=6 => {
                let number = self.rng.random_range(0..PARTS);
                self.claim(at, number);
            }
            _ => self.step(at),
        }
        self.check();
    }

    fn check(&self) {
        if self.job.state == JobState::Done {
            assert!(self.worked.iter().flatten().all(|times| *times > 0), "rule 5: done when all was done");
            assert!(self.parts.iter().all(|part| part.ended && part.progress.done == ITEMS));
        }
        assert!(
            self.worked.iter().flatten().all(|times| *times <= 1 + self.takeovers),
            "only what was lost is repeated"
        );
    }

    fn run(seed: u64) {
        let mut world = Self::new(seed);
        for _ in 0..200 {
            world.act();
        }
        world.processes.iter_mut().for_each(|one| one.counts_as_alive = true);
        let _ = world.job.resume();
        for _ in 0..1000 {
            (0..PARTS).for_each(|number| world.claim(number as usize % 2, number));
            world.step(0);
            world.step(1);
            world.check();
        }
        assert_eq!(world.job.state, JobState::Done, "a job that is worked on ends");
    }
}

pub(crate) fn two_workers_that_crash_do_all_of_a_job() {
    (0..300).for_each(World::run);
}

#[test]
fn all_of_a_job_is_done_with_crashes() {
    two_workers_that_crash_do_all_of_a_job();
}

#[test]
fn a_cancelled_job_and_a_failed_one_stay_so() {
    for state in [JobState::Cancelled, JobState::Failed] {
        let (mut job, mut part) = (job(1), JobPart::default());
        job.claim((0, &mut part), worker(1, 1), |_| true).unwrap();
        job.end(state, Some("why"), 9).unwrap();
        let after = job.clone();
        assert!(job.resume().is_err() && job.pause().is_err() && job.set_rate(None).is_err());
        assert!(job.end(JobState::Cancelled, None, 10).is_err());
        let state = (None, JobProgress::default());
        assert!(job.report((0, &mut part), worker(1, 1), state, (&PartReport::Complete, 10)).is_err());
        assert_eq!((job, part.ended), (after, false));
    }
}

#[test]
fn ended_jobs_are_kept_for_a_time_and_up_to_a_number() {
    let ended = |id: u64, ended_ms: u64| {
        let mut one = Job { id: JobId(id), ..job(1) };
        one.end(JobState::Done, None, ended_ms).unwrap();
        one
    };
    let old = limits::ENDED_JOB_MS;
    let jobs = [ended(1, 10), ended(2, 20), Job { id: JobId(3), ..job(1) }];
    assert_eq!(expired_jobs(jobs.iter(), 15 + old), [JobId(1)]);
    let many: Vec<Job> = (0..limits::ENDED_JOBS as u64 + 2).map(|id| ended(id, id)).collect();
    assert_eq!(expired_jobs(many.iter(), 200), [JobId(1), JobId(0)]);
}

#[test]
fn a_job_keeps_some_findings_and_counts_all() {
    let mut progress = JobProgress::default();
    (0..limits::JOB_FINDINGS + 5).for_each(|_| progress.add_finding(&"é".repeat(limits::JOB_TEXT)));
    assert_eq!((progress.findings.len(), progress.found), (limits::JOB_FINDINGS, limits::JOB_FINDINGS as u64 + 5));
    let part = JobPart { progress, ..JobPart::default() };
    part.check().unwrap();
    assert_eq!(serde_json::from_slice::<JobPart>(&serde_json::to_vec(&part).unwrap()).unwrap(), part);
}
