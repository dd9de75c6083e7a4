//! `mortar job`: what a cluster does in the background.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use client::AdminClient;
use meta::catalog::{JobAnswer, JobId, JobPartView, JobRate, JobRequest, JobState, JobView};
use node::catalog_messages::{job_answer_from_proto, job_request_to_proto};
use serde::Serialize;
use tokio::{signal, time};

use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, HumanBytes, HumanCount, Output, Printable, Report, pluralize};
use crate::progress::{HumanDuration, Progress};
use crate::time::{from_microseconds, to_seconds};

/// How often a job is looked at while it is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a problem lasts at least before a command stops waiting because of it: others pass at the next attempt.
const PASSING: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  mortar job ls                        what runs, waits, and has ended
  mortar job show 12                   one job with its parts and findings
  mortar job watch 12                  waits for its end and shows progress
  mortar job pause 12
  mortar job resume 12
  mortar job set 12 --rate 500/s       at most 500 objects a second
  mortar job set 13 --rate 20MiB/s     of a scrub: at most 20 MiB a second at each brick
  mortar job set 12 --rate none        as fast as possible
  mortar job cancel 12                 what is done stays; an index that is being built is removed

Jobs are begun by `mortar evolve`, `mortar index create`, `mortar space clone` and `mortar scrub`. They go on when the command,
or a process of the cluster, ends. Jobs that have ended are shown for 14 days, the last 100 of them. Users who may begin a job in a space may see
and change the jobs there; a scrub is for administrators.";

/// List, pause, slow down and cancel what the cluster does in the background
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JobCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the jobs
    #[command(alias = "list", after_help = EXAMPLES)]
    Ls,
    /// Show a job with its parts and findings
    #[command(after_help = EXAMPLES)]
    Show(Target),
    /// Wait for the end of a job, and show its progress
    #[command(after_help = EXAMPLES)]
    Watch(Target),
    /// Pause a job
    #[command(after_help = EXAMPLES)]
    Pause(Target),
    /// Resume a job
    #[command(after_help = EXAMPLES)]
    Resume(Target),
    /// Cancel a job
    #[command(after_help = EXAMPLES)]
    Cancel(Target),
    /// Change the rate of a job
    #[command(after_help = EXAMPLES)]
    Set {
        #[command(flatten)]
        target: Target,
        /// Objects a second (500/s), of a scrub bytes a second at each brick (20MiB/s), or `none`
        #[arg(long, value_parser = parse_rate)]
        rate: Rate,
    },
}

#[derive(Args)]
struct Target {
    /// Its number, as `mortar job ls` shows it
    #[arg(value_name = "JOB", value_parser = parse_job)]
    job: u64,
}

/// Reads the number of a job.
fn parse_job(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| "a job has a number, such as 12; `mortar job ls` shows it".to_owned())
}

/// A rate, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) Option<JobRate>);

/// Reads a rate: `500/s`, `20MiB/s`, `none`.
pub(crate) fn parse_rate(text: &str) -> std::result::Result<Rate, String> {
    const UNITS: [(&str, u64); 9] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("k", 1000),
        ("B", 1),
        ("", 1),
    ];
    let wrong = || {
        "a rate is objects a second, such as 500/s, or for a scrub bytes a second, such as 20MiB/s: whole numbers above 0; or none".to_owned()
    };
    if text == "none" {
        return Ok(Rate(None));
    }
    let text = text.strip_suffix("/s").unwrap_or(text).trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let (name, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let rate = number.checked_mul(*factor).filter(|rate| *rate > 0).ok_or_else(wrong)?;
    let is_bytes = name.ends_with('B');
    Ok(Rate(Some(if is_bytes { JobRate::Bytes(rate) } else { JobRate::Objects(rate) })))
}

// ---------------------------------------------------------------------------------------------- output

/// A job, with its parts and findings if they were asked for.
#[derive(Serialize)]
pub(crate) struct JobLine {
    #[serde(flatten)]
    view: JobView,
    /// Seconds until its end at the speed so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<u64>,
    #[serde(skip)]
    is_detailed: bool,
}

impl JobLine {
    pub(crate) fn of(view: JobView, is_detailed: bool) -> Self {
        let seconds_left = time_left(&view).map(|left| left.as_secs());
        Self { view, seconds_left, is_detailed }
    }
}

/// The time until the end of a running job at the speed so far.
fn time_left(view: &JobView) -> Option<Duration> {
    let JobView { done, total, worked_ms, .. } = *view;
    let is_known = view.state == JobState::Running && done > 0 && done < total && worked_ms > 0;
    is_known.then(|| Duration::from_secs_f64((worked_ms as f64 / 1e3 * (total - done) as f64 / done as f64).min(1e9)))
}

/// What a job does: `evolve Person in main`.
pub(crate) fn title(view: &JobView) -> String {
    let subjects = if view.subjects.is_empty() { String::new() } else { format!(" {}", view.subjects.join(", ")) };
    let relation = if view.kind == "clone" { "of" } else { "in" };
    let space = view.space.as_ref().map(|space| format!(" {relation} {space}")).unwrap_or_default();
    format!("{}{subjects}{space}", view.kind)
}

/// A count with its unit, in bytes or otherwise.
fn amount(view: &JobView, count: u64) -> String {
    match view.unit.as_str() {
        "bytes" => HumanBytes(count).to_string(),
        unit => format!("{} {unit}", HumanCount(count)),
    }
}

fn rate_text(view: &JobView) -> String {
    match (view.rate, view.unit.as_str()) {
        (None, _) => String::new(),
        (Some(rate), "bytes") => format!(", at most {}/s at each brick", HumanBytes(rate)),
        (Some(rate), _) => format!(", at most {} objects/s", HumanCount(rate)),
    }
}

fn progress_text(view: &JobView) -> String {
    let mut parts = Vec::new();
    if view.total > 0 {
        // The size of what is read may change meanwhile.
        let percent = (u128::from(view.done) * 100 / u128::from(view.total)).min(100);
        parts.push(format!("{percent} % of {}", amount(view, view.total)));
    } else if view.done > 0 {
        parts.push(amount(view, view.done));
    }
    if view.changed > 0 {
        parts.push(format!("{} changed", HumanCount(view.changed)));
    }
    if view.found > 0 {
        parts.push(pluralize(view.found, "finding", "findings"));
    }
    if let Some(left) = time_left(view) {
        parts.push(format!("{} left", HumanDuration(left)));
    }
    parts.join(", ")
}

impl Report for JobLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let view = &self.view;
        let begun =
            to_seconds(&from_microseconds(i64::try_from(view.begun_ms.saturating_mul(1000)).unwrap_or(i64::MAX)));
        let by = if view.begun_by.is_empty() { String::new() } else { format!(" by {}", Printable(&view.begun_by)) };
        let (title, progress) = (title(view), progress_text(view));
        let separator = if progress.is_empty() { "" } else { ", " };
        let (id, state) = (view.job, view.state.word());
        let (title, rate) = (Printable(&title).to_string(), rate_text(view));
        writeln!(out, "job {id:<4} {title:<32} {state}{separator}{progress}{rate}; begun {begun}{by}")?;
        if let Some(error) = &view.error {
            writeln!(out, "         failed: {}", Printable(error))?;
        }
        for problem in &view.problems {
            writeln!(out, "         waits: {}", Printable(problem))?;
        }
        if self.is_detailed {
            view.parts.iter().try_for_each(|part| write_part(out, view, part))?;
            view.findings.iter().try_for_each(|finding| writeln!(out, "  finding: {}", Printable(finding)))?;
            view.corrected.iter().try_for_each(|one| writeln!(out, "  corrected: {}", Printable(one)))?;
            let more = view.found.saturating_sub(view.findings.len() as u64);
            if more > 0 {
                writeln!(out, "  {} more", pluralize(more, "finding", "findings"))?;
            }
        }
        Ok(())
    }
}

fn write_part(out: &mut dyn Write, view: &JobView, part: &JobPartView) -> io::Result<()> {
    let JobPartView { part: name, worker, done, total, changed, ended } = part;
    let name = Printable(name).to_string();
    match (*total, *ended || view.state.is_end()) {
        (0, false) => write!(out, "  {name:<24} {}, the total is not known yet", amount(view, *done))?,
        _ if view.unit == "bytes" => write!(out, "  {name:<24} {} of {}", HumanBytes(*done), HumanBytes(*total))?,
        _ => write!(out, "  {name:<24} {} of {}", HumanCount(*done), amount(view, *total))?,
    }
    if *changed > 0 {
        write!(out, ", {} changed", HumanCount(*changed))?;
    }
    if let Some(worker) = worker {
        write!(out, ", at {}", Printable(worker))?;
    }
    writeln!(out, "{}", if *ended { ", complete" } else { "" })
}

// ---------------------------------------------------------------------------------------------- requests

/// Sends a request about jobs.
pub(crate) async fn ask(client: &AdminClient, request: &JobRequest) -> Result<JobAnswer> {
    let answer = client.jobs(job_request_to_proto(request)).await?;
    let mut answer = job_answer_from_proto(answer)?;
    for view in &mut answer.jobs {
        view.problems.extend(unfinished_index(view));
    }
    Ok(answer)
}

/// What an index may wait for that has all objects and is not ready. The cluster does not know whether the command still runs that enters the values
/// of a unique one.
fn unfinished_index(view: &JobView) -> Option<String> {
    let JobView { kind, state, problems, done, total, subjects, space, .. } = view;
    let waits = kind == "index" && *state == JobState::Running && problems.is_empty() && *total > 0 && done == total;
    let name = subjects.first().filter(|_| waits)?;
    let space = space.as_ref().filter(|space| *space != "main").map(|space| format!(" --space {space}"));
    let space = space.unwrap_or_default();
    Some(format!(
        "all objects are entered; if the index is unique and the command that made it has ended, `mortar{space} index build {name}` completes it"
    ))
}

/// Sends a request about one job.
pub(crate) async fn ask_one(client: &AdminClient, request: &JobRequest) -> Result<JobView> {
    let missing = || Failure::new("the server has answered without the job");
    ask(client, request).await?.jobs.into_iter().next().ok_or_else(missing)
}

pub(crate) async fn run(args: JobCommand, session: &mut CommandContext) -> Result {
    let client = session.connect_to_cluster().await?;
    let job = |target: &Target| JobId(target.job);
    let request = match &args.action {
        Action::Ls => {
            let jobs = ask(&client, &JobRequest::List).await?.jobs;
            return jobs.into_iter().try_for_each(|view| session.output.print(&JobLine::of(view, false)));
        }
        Action::Show(target) => {
            let view = ask_one(&client, &JobRequest::Show { job: job(target) }).await?;
            return session.output.print(&JobLine::of(view, true));
        }
        Action::Watch(target) => {
            let (job, title) = (job(target), "working");
            let view = or_ctrl_c(job, wait(&client, session, job, title, None)).await?;
            session.output.print(&JobLine::of(view.clone(), true))?;
            return check_end(&view);
        }
        Action::Pause(target) => JobRequest::Pause { job: job(target) },
        Action::Resume(target) => JobRequest::Resume { job: job(target) },
        Action::Cancel(target) => JobRequest::Cancel { job: job(target) },
        Action::Set { target, rate } => JobRequest::SetRate { job: job(target), rate: rate.0 },
    };
    let view = ask_one(&client, &request).await?;
    session.output.print(&JobLine::of(view, false))
}

/// Waits as [`wait_while_it_proceeds`] does. Ctrl-C also ends the waiting, not the job.
pub(crate) async fn follow(
    client: &AdminClient,
    session: &CommandContext,
    job: JobId,
    title: &'static str,
) -> Result<JobView> {
    or_ctrl_c(job, wait_while_it_proceeds(client, session, job, title)).await
}

/// The result of waiting for the end of a job, unless Ctrl-C ends the waiting.
async fn or_ctrl_c(job: JobId, waiting: impl Future<Output = Result<JobView>>) -> Result<JobView> {
    tokio::select! {
        ended = waiting => ended,
        _ = signal::ctrl_c() => {
            let hint = format!("`mortar job watch {job}` waits again, `mortar job cancel {job}` stops it.");
            Err(Failure::interrupted(format!("stopped waiting; job {job} goes on")).hint(hint))
        }
    }
}

/// Waits for the end of a job, and shows its progress. Ends the waiting, not the job, when the job waits for something and nothing was done for the
/// timeout of the command.
pub(crate) async fn wait_while_it_proceeds(
    client: &AdminClient,
    session: &CommandContext,
    job: JobId,
    title: &'static str,
) -> Result<JobView> {
    wait(client, session, job, title, Some(session.timeout())).await
}

/// Waits for the end of a job; while the job waits for something, for at most `patience` since something was done last.
async fn wait(
    client: &AdminClient,
    session: &CommandContext,
    job: JobId,
    title: &'static str,
    patience: Option<Duration>,
) -> Result<JobView> {
    let mut shown: Option<Progress> = None;
    let mut told = Vec::new();
    let mut away: Option<time::Instant> = None;
    let mut standstill = Standstill::default();
    loop {
        let view = match ask_one(client, &JobRequest::Show { job }).await {
            Ok(view) => view,
            // The server may be started again: the job goes on meanwhile.
            Err(failure) if failure.exit() == Exit::Unavailable => {
                if away.get_or_insert_with(time::Instant::now).elapsed() >= session.timeout() {
                    return Err(failure.hint(format!("Job {job} goes on. `mortar job watch {job}` waits again.")));
                }
                time::sleep(POLL_INTERVAL).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        away = None;
        let progress = shown.get_or_insert_with(|| Progress::start_with_unit(title, unit(&view), &session.output));
        show(progress, &view);
        if view.state.is_end() {
            progress.end();
            return Ok(view);
        }
        tell(progress, &session.output, &view, &mut told);
        let stands = standstill.duration(&view, time::Instant::now());
        if patience.is_some_and(|patience| stands.is_some_and(|stands| stands >= patience)) {
            progress.end();
            return Err(waiting_job_failure(&view));
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

/// How long nothing was done of a job that waits for something.
#[derive(Default)]
struct Standstill {
    /// When something was done last, and how much was done then.
    progressed: Option<(time::Instant, u64)>,
    /// Since when it waits for something.
    waits_since: Option<time::Instant>,
}

impl Standstill {
    /// How long it lasts, as of the state of the job at a time; `None` if the job waits for nothing, has just begun to wait, or was paused.
    fn duration(&mut self, view: &JobView, now: time::Instant) -> Option<Duration> {
        let is_running = view.state == JobState::Running;
        let before = self.progressed.filter(|(_, done)| is_running && *done == view.done);
        let (since, _) = *self.progressed.insert(before.unwrap_or((now, view.done)));
        if !is_running || view.problems.is_empty() {
            self.waits_since = None;
            return None;
        }
        let waits_since = *self.waits_since.get_or_insert(now);
        (now - waits_since >= PASSING).then(|| now - since)
    }
}

fn waiting_job_failure(view: &JobView) -> Failure {
    let JobView { job, problems, .. } = view;
    let what = format!("job {job} waits: {}", problems.join("; "));
    Failure::with(Exit::Unavailable, "unavailable", what)
        .hint(format!("The job stays. `mortar job watch {job}` waits again, `mortar job cancel {job}` stops it."))
}

fn unit(view: &JobView) -> &'static str {
    match view.unit.as_str() {
        "pages" => "pages",
        _ => "objects",
    }
}

fn show(progress: &Progress, view: &JobView) {
    progress.set_worked(Duration::from_millis(view.worked_ms));
    match view.unit.as_str() {
        "bytes" => {
            progress.set_total(view.total, 0);
            progress.set_done(view.done, view.objects);
        }
        _ => {
            progress.set_total(0, view.total);
            progress.set_done(0, view.done);
        }
    }
}

/// Says once why a job does not proceed.
fn tell(progress: &Progress, output: &Output, view: &JobView, told: &mut Vec<String>) {
    let mut now = view.problems.clone();
    if view.state == JobState::Paused {
        now.push(format!("it is paused: `mortar job resume {}`", view.job));
    }
    for problem in &now {
        if !told.contains(problem) && !output.is_quiet() {
            progress.suspend(|| output::warn(output.json(), "waits", &format!("job {} waits: {problem}", view.job)));
        }
    }
    *told = now;
}

/// The failure of a job that has ended otherwise than done.
pub(crate) fn check_end(view: &JobView) -> Result {
    let id = view.job;
    match view.state {
        JobState::Failed => {
            let why = view.error.clone().unwrap_or_default();
            let exit = if view.damaged { Exit::Corrupt } else { Exit::Failure };
            Err(Failure::with(exit, "job_failed", format!("job {id} has failed: {why}")))
        }
        JobState::Cancelled => Err(Failure::with(Exit::Failure, "job_cancelled", format!("job {id} was cancelled"))),
        JobState::Running | JobState::Paused | JobState::Done => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, rate) in [
            ("500/s", JobRate::Objects(500)),
            ("500", JobRate::Objects(500)),
            ("2k/s", JobRate::Objects(2000)),
            ("20MiB/s", JobRate::Bytes(20 << 20)),
            ("1 MB/s", JobRate::Bytes(1_000_000)),
            ("7B", JobRate::Bytes(7)),
        ] {
            assert_eq!(parse_rate(text).unwrap(), Rate(Some(rate)), "{text}");
        }
        assert_eq!(parse_rate("none").unwrap(), Rate(None));
        for wrong in ["", "0/s", "-1/s", "5/m", "1.5MiB/s", "MiB/s", "18446744073709551615GiB/s"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn job_is_a_number_and_other_words_are_refused_with_where_to_find_it() {
        assert_eq!(parse_job("12"), Ok(12));
        for wrong in ["abc", "", "-1", "1.5"] {
            assert!(parse_job(wrong).unwrap_err().contains("mortar job ls"), "{wrong}");
        }
    }

    /// A job that runs.
    fn running() -> JobView {
        JobView {
            job: JobId(1),
            kind: "evolve".to_owned(),
            space: Some("main".to_owned()),
            subjects: vec!["Person".to_owned()],
            state: JobState::Running,
            begun_by: String::new(),
            begun_ms: 0,
            ended_ms: None,
            rate: Some(500),
            unit: "objects".to_owned(),
            done: 1000,
            total: 5000,
            worked_ms: 2000,
            objects: 1000,
            changed: 900,
            found: 0,
            error: None,
            damaged: false,
            problems: Vec::new(),
            parts: Vec::new(),
            findings: Vec::new(),
            corrected: Vec::new(),
        }
    }

    #[test]
    fn a_job_stands_still_while_it_waits_and_nothing_is_done() {
        let (mut standstill, begun) = (Standstill::default(), time::Instant::now());
        let at = |second: u64| begun + Duration::from_secs(second);
        let mut view = running();
        assert_eq!(standstill.duration(&view, at(1)), None);
        view.problems = vec!["brick 2 is not alive".to_owned()];
        assert_eq!(standstill.duration(&view, at(4)), None, "it may pass");
        assert_eq!(standstill.duration(&view, at(6)), Some(Duration::from_secs(5)), "since something was done last");
        // Other bricks go on.
        view.done += 1;
        assert_eq!(standstill.duration(&view, at(7)), Some(Duration::ZERO));
        assert_eq!(standstill.duration(&view, at(9)), Some(Duration::from_secs(2)));
        let failure = waiting_job_failure(&view);
        assert!(failure.exit() == Exit::Unavailable && failure.message().contains("brick 2 is not alive"));
        // Who has paused it may take any time.
        view.state = JobState::Paused;
        assert_eq!(standstill.duration(&view, at(10)), None);
        view.state = JobState::Running;
        assert_eq!(standstill.duration(&view, at(11)), None);
        view.problems.clear();
        assert_eq!(standstill.duration(&view, at(12)), None);
    }

    #[test]
    fn an_index_that_has_all_objects_says_what_may_complete_it() {
        let mut view = JobView { kind: "index".to_owned(), subjects: vec!["by_name".to_owned()], ..running() };
        assert_eq!(unfinished_index(&view), None, "it is being built");
        view.done = view.total;
        assert!(unfinished_index(&view).unwrap().contains("`mortar index build by_name`"));
        view.space = Some("photos".to_owned());
        assert!(unfinished_index(&view).unwrap().contains("`mortar --space photos index build by_name`"));
        view.problems = vec!["two objects have the same values".to_owned()];
        assert_eq!(unfinished_index(&view), None, "another problem comes first");
        assert_eq!(unfinished_index(&JobView { problems: Vec::new(), state: JobState::Done, ..view }), None);
    }

    #[test]
    fn progress_of_bytes_is_in_one_unit() {
        let view = JobView { unit: "bytes".to_owned(), ..running() };
        let part =
            JobPartView { part: "brick 1".to_owned(), done: 1_500_000, total: 3_000_000, ..JobPartView::default() };
        let mut text = Vec::new();
        write_part(&mut text, &view, &part).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("1.5 MB of 3.0 MB"));
    }

    #[test]
    fn a_job_that_fails_because_of_damage_ends_with_the_code_of_damage() {
        let mut view = JobView { state: JobState::Failed, error: Some("why".to_owned()), ..running() };
        assert_eq!(check_end(&view).unwrap_err().exit(), Exit::Failure);
        view.damaged = true;
        let failure = check_end(&view).unwrap_err();
        assert!(failure.exit() == Exit::Corrupt && failure.message().contains("why"), "{failure:?}");
    }

    #[test]
    fn the_time_left_is_that_of_a_running_job_at_its_speed() {
        let mut view = running();
        assert_eq!(title(&view), "evolve Person in main");
        assert_eq!(progress_text(&view), "20 % of 5,000 objects, 900 changed, 8.00 s left");
        assert_eq!(JobLine::of(view.clone(), false).seconds_left, Some(8));
        view.state = JobState::Paused;
        assert_eq!(JobLine::of(view, false).seconds_left, None);
    }
}
