//! `mortar backup --follow`: a backup that goes on, so that any moment since its beginning can be restored.
//!
//! It writes the archive of a state and then, each half second, what has changed since: the bricks track changes for it (`store::change_tracking`). If
//! a brick does not know what has changed, because it was restarted or too much has, the next archive is an increment, which has a journal of its own.
//!
//! An error of a brick may pass, so the backup tries again. An error of a local file ends it.

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{AdminClient, ServerIdentity};
use meta::catalog::{MemberAnswer, MemberRequest};
use model::{Error, ErrorKind, Timestamp};
use node::cluster_archive::PartName;
use serde::Serialize;
use tokio::time::{self, Instant};
use wire::tasks;

use super::base::Base;
use super::chain;
use super::cluster::{self, ArchiveContents, Bricks, Follower, TakenArchive};
use super::directory::{FollowDirectory, StateFile, StateKind, header_of, len_of};
use super::encryption::wrap_archive_output;
use super::journal::JournalWriter;
use super::lag::Lag;
use super::{Backup, open_archive, open_base};
use crate::commands::member;
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanBytes, Report, pluralize};
use crate::progress::{HumanDuration, Progress};
use crate::serving::Signals;

/// A journal with so many bytes, and with as many as the archives before it, is followed by an increment: a restore applies all changes of a journal, and
/// an increment reads all rows.
const MAX_JOURNAL_BYTES: u64 = 1 << 30;
/// The shortest and the longest interval. Bricks forget a backup that was not heard of for ten minutes.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(300);
/// Increments after a full archive.
const MAX_INCREMENTS: usize = 500;
/// The shortest time to keep.
const LEAST_KEEP: Duration = Duration::from_secs(1);
/// How long the moment that is being taken may last when the command is to end.
const LAST_MOMENT: Duration = Duration::from_secs(5);
/// What is encrypted and decrypted once at the start.
const TEST_TEXT: &[u8] = b"mortar";
/// The pause after a failure, which doubles up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a backup that was stopped has written.
#[derive(Serialize)]
struct FollowReport {
    moments: u64,
    archives: u64,
    bytes: u64,
    seconds: f64,
    /// The longest time that a loss of the cluster would have cost.
    most_behind_s: f64,
}

impl Report for FollowReport {
    fn write_text(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(
            out,
            "followed for {}: {}, {}, {}, at most {} behind",
            HumanDuration(Duration::from_secs_f64(self.seconds)),
            pluralize(self.archives, "archive", "archives"),
            pluralize(self.moments, "moment", "moments"),
            HumanBytes(self.bytes),
            HumanDuration(Duration::from_secs_f64(self.most_behind_s))
        )
    }
}

/// An archive of a state, when it is complete.
#[derive(Serialize)]
struct StateReport {
    archive: String,
    bytes: u64,
    seconds: f64,
    /// How old the moment before it was when it was complete, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind_s: Option<f64>,
}

impl Report for StateReport {
    fn write_text(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let took = HumanDuration(Duration::from_secs_f64(self.seconds));
        write!(out, "{}: {} in {took}; its changes follow", self.archive, HumanBytes(self.bytes))?;
        match self.behind_s {
            Some(behind) => {
                writeln!(out, "; the moment before is {} older", HumanDuration(Duration::from_secs_f64(behind)))
            }
            None => writeln!(out),
        }
    }
}

/// The connections of a backup.
struct Connections {
    bricks: Bricks,
    /// To a peer server, which knows what bricks there are.
    cluster: AdminClient,
}

/// The journal to which changes are added.
struct OpenJournal {
    journal: JournalWriter,
    /// The next archive has what has changed since this one.
    last: TakenArchive,
}

/// What decides when an increment, or another full archive, is due.
struct FullArchive {
    /// In microseconds since 1970.
    time_us: i64,
    bytes: u64,
}

struct Following<'a> {
    args: &'a Backup,
    directory: FollowDirectory,
    session: &'a mut CommandContext,
    progress: Progress,
    follower: Follower,
    connections: Option<Connections>,
    /// The cluster that it follows.
    identity: Option<ServerIdentity>,
    /// The last archive, if it was found to be damaged.
    damaged_base: Option<u32>,
    open: Option<OpenJournal>,
    /// The last full archive, if it can be read.
    full: Option<FullArchive>,
    report: FollowReport,
    lag: Lag,
}

/// Follows a cluster until Ctrl-C or SIGTERM.
pub(super) async fn follow(args: &Backup, directory: FollowDirectory, session: &mut CommandContext) -> Result {
    check_arguments(args)?;
    directory.remove_incomplete().map_err(|error| Failure::file("cannot remove an incomplete archive", &error))?;
    let follower = directory.follower()?;
    let mut signals = Signals::listen()?;
    let progress = Progress::start_with_unit("following", "moments", &session.output);
    let json = session.output.json();
    let mut following = Following {
        args,
        directory,
        session,
        progress: progress.clone(),
        follower: Follower::new(follower),
        connections: None,
        identity: None,
        damaged_base: None,
        open: None,
        full: None,
        report: FollowReport { moments: 0, archives: 0, bytes: 0, seconds: 0.0, most_behind_s: 0.0 },
        lag: Lag::new(args.every, progress.clone(), json),
    };
    following.note_last_moment();
    let done = following.run(&mut signals).await;
    progress.end();
    following.report.seconds = progress.elapsed().as_secs_f64();
    done?;
    if following.report.archives == 0 {
        return Err(Failure::interrupted("stopped before the first archive was complete; nothing was written"));
    }
    following.session.output.print(&following.report)
}

/// Checks what would be noticed only when an increment begins.
fn check_arguments(args: &Backup) -> Result {
    if !INTERVALS.contains(&args.every) {
        return Err(Failure::usage("--every takes an interval from 10ms to 5min"));
    }
    if args.keep.is_some_and(|keep| keep < LEAST_KEEP) {
        return Err(Failure::usage("--keep takes a second or more"));
    }
    let Some(encryptor) = args.encryption.encryptor()? else {
        return match args.identity {
            None => Ok(()),
            Some(_) => Err(Failure::usage("--identity reads what --encrypt-to encrypts: name that, too")),
        };
    };
    if args.identity.is_none() {
        return Ok(());
    }
    let mut text = Vec::new();
    let write =
        encryptor.wrap_output(&mut text).and_then(|mut out| out.write_all(TEST_TEXT).and_then(|()| out.finish()));
    write.map_err(|error| Failure::usage(format!("--encrypt-to: {error}")))?;
    let opened = args.decryption().open(Box::new(io::Cursor::new(text)));
    opened.map(drop).map_err(|failure| failure.context("--identity does not fit --encrypt-to"))
}

impl Following<'_> {
    /// Takes moments until a signal comes. One that is being taken is completed, unless that takes long or another signal comes; the archive of a
    /// state is not.
    async fn run(&mut self, signals: &mut Signals) -> Result {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let is_moment = self.connections.is_some() && !self.is_state_due();
            let (done, is_stopped) = {
                let lag = self.lag.clone();
                let step = self.step(begun);
                tokio::pin!(step);
                let watched = async {
                    tokio::select! {
                        done = &mut step => done,
                        never = lag.watch() => match never {},
                    }
                };
                tokio::select! {
                    done = watched => (done, false),
                    () = signals.next() => if is_moment {
                        tokio::select! {
                            done = &mut step => (done, true),
                            () = signals.next() => return Ok(()),
                            () = time::sleep(LAST_MOMENT) => return Ok(()),
                        }
                    } else {
                        return Ok(());
                    },
                }
            };
            let next = match done {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    begun + self.args.every
                }
                Err(failure) => {
                    self.handle(failure)?;
                    let next = Instant::now() + pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    next
                }
            };
            if is_stopped {
                return Ok(());
            }
            tokio::select! {
                () = time::sleep_until(next) => {}
                () = signals.next() => return Ok(()),
            }
        }
    }

    /// Goes on after a failure that may pass, and returns others.
    fn handle(&mut self, failure: Failure) -> Result {
        match failure.exit() {
            Exit::Unavailable | Exit::Unknown => {
                self.connections = None;
                let age = self.lag.age().map(|age| format!("; the last moment is {} old", HumanDuration(age)));
                let age = age.unwrap_or_default();
                self.warn(&format!("{}; the backup tries again{age}", failure.message()));
                Ok(())
            }
            _ => Err(failure),
        }
    }

    fn warn(&self, message: &str) {
        self.lag.warn(message);
    }

    /// Notes how old the last moment of an earlier backup to this directory is, as far as that can be read: it only serves a warning.
    fn note_last_moment(&self) {
        let Some(last) = self.directory.states().ok().and_then(|mut states| states.pop()) else { return };
        let of_journal = self.directory.journal_up_to(last.number, i64::MAX).ok().and_then(|journal| journal.last_us);
        let time_us = match of_journal {
            Some(time_us) => Some(time_us),
            // Without the secret key the times of archives cannot be read; a damaged one is no moment.
            None => header_of(&last.path, &self.args.decryption()).ok().map(|header| header.id.time_us),
        };
        time_us.into_iter().for_each(|time_us| self.lag.note_earlier(time_us));
    }

    /// A moment that began at this time is complete. Returns how old the one before was, in seconds.
    fn note_moment(&mut self, begun: Instant) -> Option<f64> {
        let behind = self.lag.note_moment(begun)?.as_secs_f64();
        self.report.most_behind_s = self.report.most_behind_s.max(behind);
        Some(behind)
    }

    async fn step(&mut self, begun: Instant) -> Result {
        if self.connections.is_none() {
            let cluster = self.session.connect_to_cluster().await?;
            // Its archives belong together, so it follows no other cluster.
            self.identity.get_or_insert_with(|| cluster.identity().clone()).check(cluster.identity())?;
            let bricks = Bricks::connect(self.session).await?;
            self.directory.check_cluster(bricks.cluster, &self.args.decryption())?;
            self.lag.note_cluster(cluster.clone());
            self.connections = Some(Connections { bricks, cluster });
        }
        if self.is_state_due() { self.begin_state(begun).await } else { self.take_moment(begun).await }
    }

    /// Whether the archive of a state comes next, and not what has changed.
    fn is_state_due(&self) -> bool {
        let Some(open) = &self.open else { return true };
        let most = self.full.as_ref().map_or(0, |full| full.bytes).max(MAX_JOURNAL_BYTES);
        open.journal.bytes() >= most || self.is_full_due()
    }

    /// Whether the last full archive is older than the time to keep.
    fn is_full_due(&self) -> bool {
        let full = self.full.as_ref().zip(self.args.keep);
        full.is_some_and(|(full, keep)| full.time_us < micros_before(keep))
    }

    /// Writes the archive of a state, and begins its journal.
    async fn begin_state(&mut self, step_begun: Instant) -> Result {
        let encryptor = self.args.encryption.encryptor()?;
        let states = self.directory.states()?;
        let base = self.sound_base(&states, encryptor.is_some())?;
        let Some(connections) = &self.connections else { return Ok(()) };
        let number = self.directory.next_number().map_err(cannot_write)?;
        let kind = if base.is_some() { StateKind::Increment } else { StateKind::Full };
        let contents = match &base {
            Some(base) => ArchiveContents::Increment(open_base(&base.path, self.args, encryptor.is_some())?),
            None => ArchiveContents::Full,
        };
        contents.check_cluster(&connections.bricks)?;
        let state = self.directory.state(number, kind);
        let begun = Instant::now();
        let (archive, part) = open_archive(&state.path)?;
        let archive = wrap_archive_output(archive, encryptor).map_err(cannot_write)?;
        let confirm = async || confirm(connections).await;
        let (before, moments, progress) = (self.report.bytes, self.report.moments, self.progress.clone());
        let report = move |bytes, _| progress.set_done(before + bytes, moments);
        let follower = Some(&mut self.follower);
        let name = state.path.display().to_string();
        let taken = cluster::backup(&connections.bricks, contents, follower, (&name, archive), confirm, report).await;
        let taken = match (taken, &base) {
            // A brick was restarted in between.
            (Err(failure), _) if failure.exit() == Exit::NotFound => {
                return Err(Error::new(ErrorKind::Unavailable, failure.message()).into());
            }
            (Err(failure), Some(base)) if failure.exit() == Exit::Corrupt => {
                let (path, decryption) = (base.path.clone(), self.args.decryption());
                let read = tasks::spawn_blocking(move || Base::damage_of(&path, &decryption)).await;
                let panicked = |_| Error::new(ErrorKind::Internal, "the reader of the base has panicked").into();
                let Some(damage) = read.unwrap_or_else(|error| Err(panicked(error)))? else { return Err(failure) };
                self.damaged_base = Some(base.number);
                self.warn(&format!("{damage}: a full archive comes next"));
                return Ok(());
            }
            (taken, _) => taken?,
        };
        // The journal comes first: an archive without one is damaged.
        let journal = JournalWriter::create(&self.directory.journal(number)).map_err(cannot_write)?;
        if let Some(part) = part {
            part.appear_at(&state.path, false)?;
        }
        self.warn_of_clock(&states, taken.id.time_us);
        let report = StateReport {
            archive: state.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes: taken.bytes,
            seconds: begun.elapsed().as_secs_f64(),
            behind_s: self.note_moment(step_begun),
        };
        self.open = Some(OpenJournal { journal, last: taken });
        self.report.archives += 1;
        self.count(taken.bytes);
        let output = &mut self.session.output;
        self.progress.suspend(|| output.announce(&report));
        if kind == StateKind::Full {
            self.full = Some(FullArchive { time_us: taken.id.time_us, bytes: taken.bytes });
            return self.remove_old(&states);
        }
        Ok(())
    }

    /// Warns if the clock went back: `--at` finds the moments in the order of their times. A journal that cannot be read does not end the backup.
    fn warn_of_clock(&self, states: &[StateFile], time_us: i64) {
        let before = states.last().and_then(|before| self.directory.journal_up_to(before.number, i64::MAX).ok());
        if let Some(last) = before.and_then(|journal| journal.last_us).filter(|last| *last >= time_us) {
            let last = Timestamp::from_micros(last);
            self.warn(&format!("the clock has gone back: the last moment is dated {last}, later than this archive"));
        }
    }

    /// As [`Following::base`]; none if that is known to be damaged, or if an archive that it needs is.
    fn sound_base(&mut self, states: &[StateFile], encrypts: bool) -> Result<Option<StateFile>> {
        let found = self.base(states, encrypts);
        let found = found.and_then(|base| match base.filter(|base| Some(base.number) != self.damaged_base) {
            Some(base) => chain::check(states, &self.args.decryption()).map(|()| Some(base)),
            None => Ok(None),
        });
        match found {
            Err(failure) if failure.exit() == Exit::Corrupt => {
                self.warn(&format!("{}: a full archive comes next", failure.message()));
                Ok(None)
            }
            found => found,
        }
    }

    /// The archive of which the next one is an increment; `None` if that is to be a full one.
    fn base(&mut self, states: &[StateFile], encrypts: bool) -> Result<Option<StateFile>> {
        // Without the secret key no earlier archive can be read.
        if encrypts && self.args.identity.is_none() {
            return Ok(None);
        }
        let Some(full) = states.iter().rposition(|state| state.kind == StateKind::Full) else { return Ok(None) };
        let path = &states[full].path;
        let time_us = header_of(path, &self.args.decryption())?.id.time_us;
        self.full = Some(FullArchive { time_us, bytes: len_of(path)? });
        let is_long = states.len() - full > MAX_INCREMENTS;
        Ok(states.last().filter(|_| !is_long && !self.is_full_due()).cloned())
    }

    /// Removes archives that no moment within the time to keep needs.
    fn remove_old(&self, states: &[StateFile]) -> Result {
        let Some(keep) = self.args.keep else { return Ok(()) };
        let first = chain::first_needed(states, micros_before(keep), &self.args.decryption())?;
        let Some(first) = first else { return Ok(()) };
        let removed = self.directory.remove_before(first);
        removed.map_err(|error| Failure::file("cannot remove an archive that is no longer needed", &error))
    }

    async fn take_moment(&mut self, begun: Instant) -> Result {
        let (Some(connections), Some(open)) = (&self.connections, &mut self.open) else { return Ok(()) };
        let archive = Box::new(io::BufWriter::with_capacity(1 << 18, open.journal.begin().map_err(cannot_write)?));
        let archive = wrap_archive_output(archive, self.args.encryption.encryptor()?).map_err(cannot_write)?;
        let confirm = async || confirm(connections).await;
        let (contents, follower) = (ArchiveContents::Changes(open.last), Some(&mut self.follower));
        let archive = ("the journal of the backup", archive);
        let taken = cluster::backup(&connections.bricks, contents, follower, archive, confirm, |_, _| {}).await;
        let taken = match taken {
            // A brick does not know what has changed, or there are others.
            Err(failure) if failure.exit() == Exit::NotFound => {
                (self.open, self.connections) = (None, None);
                self.warn(&format!("{}: an increment comes next", failure.message()));
                return Ok(());
            }
            taken => taken?,
        };
        open.journal.end(taken.id.time_us).map_err(cannot_write)?;
        open.last = taken;
        self.note_moment(begun);
        self.report.moments += 1;
        self.count(taken.bytes);
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.report.bytes += bytes;
        self.progress.set_done(self.report.bytes, self.report.moments);
    }
}

/// Checks that the bricks of the cluster are those of the backup: what was moved to another one may be in no part.
async fn confirm(connections: &Connections) -> Result {
    let MemberAnswer { bricks, .. } = member::ask(&connections.cluster, &MemberRequest::List).await?;
    let names = &connections.bricks.names;
    let what = match bricks.iter().find(|brick| !names.contains(&PartName::Brick(brick.brick.0))) {
        None if bricks.len() == names.len() => return Ok(()),
        None => "a brick has left the cluster".to_owned(),
        Some(brick) => format!("brick {} has joined the cluster", brick.brick),
    };
    Err(Failure::not_found(what))
}

fn cannot_write(error: io::Error) -> Failure {
    Failure::file("cannot write the backup", &error)
}

fn micros_before(age: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(age).as_micros() as i64
}
