//! `mortar backup` and `mortar restore`: writes the whole cluster as one archive, and restores it.

mod base;
mod chain;
mod cluster;
mod directory;
mod encryption;
mod follow;
mod journal;
mod lag;
mod verification;
mod write_behind;

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use model::{Error, ErrorKind, Timestamp};
use node::cluster_archive::is_bad_sector;
use node::restore::ArchiveInput;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use store::{Amount, DirectoryContents, Options};

use self::base::Base;
use self::cluster::{ArchiveContents, Bricks};
use self::directory::{FollowDirectory, JournalSummary, RestoreInputs, RestorePosition, StateSummary, note_bases};
use self::encryption::{DecryptArgs, EncryptArgs, wrap_archive_output};
use self::write_behind::WriteBehind;
use super::dev::explain_open;
use crate::connection::{CommandContext, DATA};
use crate::failure::{Exit, Failure, Result};
use crate::link_values::parse_duration;
use crate::output::{HumanBytes, Output, Report, pluralize, warn};
use crate::progress::{HumanDuration, Progress, rate};
use crate::serving::Signals;

const BACKUP: &str = "\
Examples:
  mortar backup monday.mortar
  mortar backup - | zstd > monday.mortar.zst        through a pipe
  mortar backup - | ssh elsewhere 'cat > monday.mortar'
  mortar backup --since monday.mortar tuesday.mortar  only what has changed
  mortar backup --encrypt-to age1… monday.mortar    for the owner of a key: age-keygen -o KEY makes one
  mortar backup --follow /backup/mortar             goes on until Ctrl-C: what has changed, each half second
  mortar backup --follow /backup/mortar --keep 14d  and removes what is older than 14 to 28 days";

const BACKUP_USAGE: &str = "\
mortar backup [OPTIONS] <FILE>
       mortar backup [OPTIONS] --follow <DIR>";

const RESTORE: &str = "\
Examples:
  mortar restore monday.mortar --data restored      then: mortar dev --data restored
                                                    and as many bricks more as are wanted: mortar node --role brick
  zstd -dc monday.mortar.zst | mortar restore - --data restored
  mortar restore monday.mortar tuesday.mortar --data restored      a full archive and its increments
  mortar restore --identity KEY monday.mortar --data restored
  mortar restore /backup/mortar --list                             the moments of a backup with --follow
  mortar restore /backup/mortar --list --verify                    and whether they can be read
  mortar restore /backup/mortar --data restored --at 2026-11-27T14:05:00+01:00";

/// Write a backup of a cluster, its catalogue included, while it serves: one consistent moment of all bricks
#[derive(Args)]
#[command(after_help = BACKUP, override_usage = BACKUP_USAGE)]
pub(crate) struct Backup {
    /// The archive to write; it appears when it is complete and on disk. - is the standard output
    #[arg(required_unless_present = "follow")]
    file: Option<PathBuf>,
    /// Replace an existing archive
    #[arg(long)]
    overwrite: bool,
    /// Write only what has changed since this archive, its base. A restore needs both, and those before the base
    #[arg(long, value_name = "ARCHIVE")]
    since: Option<PathBuf>,
    /// Decrypt the base with the secret keys in this file; with --follow, the last archive in the directory
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file")]
    identity: Option<PathBuf>,
    /// Write an archive into this directory, and then what changes, until Ctrl-C: every moment since then can be restored
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "since", "overwrite", "passphrase_file"])]
    follow: Option<PathBuf>,
    /// With --follow: how often changes are written
    #[arg(long, value_name = "DURATION", requires = "follow", conflicts_with = "file", default_value = "500ms", value_parser = parse_duration)]
    every: Duration,
    /// With --follow: keep moments for so long, and remove what no such moment needs; everything is kept without it
    // Without the conflict clap accepts it with a file: what conflicts with `follow` takes the requirement away.
    #[arg(long, value_name = "DURATION", requires = "follow", conflicts_with = "file", value_parser = parse_duration)]
    keep: Option<Duration>,
    #[command(flatten)]
    encryption: EncryptArgs,
}

/// Make a data directory from a backup, for `mortar dev`; no server may run on it
#[derive(Args)]
#[command(after_help = RESTORE)]
pub(crate) struct Restore {
    /// The archive; then the increments that were taken after it, in order. - reads one of them from the standard input. Or the directory of a
    /// backup with --follow
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Of a backup with --follow: the last moment at or before this time, such as 2026-11-27T14:05:00Z. Default: the last one
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// Only show the moments of a backup with --follow. Exit code 6 if something is damaged: the heads of archives and moments and the ends of
    /// archives are read, not all bytes
    #[arg(long, conflicts_with_all = ["at", "data"])]
    list: bool,
    /// With --list: read all archives and moments and compare their checksums, which takes as long as reading the files
    #[arg(long, requires = "list")]
    verify: bool,
    /// The data directory to make; it must be empty or not exist
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    #[command(flatten)]
    encryption: DecryptArgs,
}

#[derive(Serialize)]
struct ArchiveReport {
    #[serde(skip)]
    action: &'static str,
    bytes: u64,
    seconds: f64,
    bricks: u64,
    /// Which moment was restored, if it was chosen from several.
    #[serde(skip_serializing_if = "Option::is_none")]
    moment: Option<String>,
}

impl Report for ArchiveReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let time = Duration::from_secs_f64(self.seconds);
        writeln!(
            out,
            "{} {} of {} in {}, {}/s",
            self.action,
            HumanBytes(self.bytes),
            if self.bricks == 1 { "1 brick".to_owned() } else { format!("{} bricks", self.bricks) },
            HumanDuration(time),
            HumanBytes(rate(self.bytes, time))
        )?;
        match &self.moment {
            Some(moment) => writeln!(out, "the moment is {moment}"),
            None => Ok(()),
        }
    }
}

impl Backup {
    /// Whether it goes on until a signal.
    pub(crate) fn follows(&self) -> bool {
        self.follow.is_some()
    }

    /// How an earlier archive is read.
    fn decryption(&self) -> DecryptArgs {
        DecryptArgs::of_base(self.identity.clone(), &self.encryption)
    }
}

/// An archive of a state in the directory of a backup with `--follow`, and its moments.
#[derive(Serialize)]
struct StateLine {
    archive: String,
    kind: &'static str,
    bytes: u64,
    /// The moment of the archive, and the last one of its journal.
    first: String,
    last: String,
    moments: u64,
    journal_bytes: u64,
    /// Why later moments of the journal, or none of all, can be restored.
    damage: Option<String>,
}

impl StateLine {
    fn new(StateSummary { file, header, bytes, damage, journal }: StateSummary) -> Self {
        let time = |micros| Timestamp::from_micros(micros).to_string();
        let first_us = header.id.time_us;
        Self {
            archive: file.path.display().to_string(),
            kind: file.kind.word(),
            bytes,
            first: time(first_us),
            last: time(journal.last_us.unwrap_or(first_us)),
            moments: journal.moments,
            journal_bytes: journal.bytes,
            damage: damage.or(journal.damage),
        }
    }
}

impl Report for StateLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { archive, bytes, first, last, moments, journal_bytes, .. } = self;
        let moments = pluralize(*moments, "moment", "moments");
        writeln!(out, "{archive}  {}, {first}", HumanBytes(*bytes))?;
        writeln!(out, "    {moments}, {}, to {last}", HumanBytes(*journal_bytes))?;
        match &self.damage {
            Some(damage) => writeln!(out, "    damage: {damage}"),
            None => Ok(()),
        }
    }
}

fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The name, in messages, of what an archive is written to.
fn output_name(path: &Path) -> String {
    if is_stream(path) { "the standard output".to_owned() } else { path.display().to_string() }
}

fn exists(path: &Path) -> Failure {
    Failure::conflict(format!("{} exists", path.display())).hint("Choose another name, or replace it with --overwrite.")
}

/// Checks that an archive may get this name.
fn check_target(file: &Path, args: &Backup) -> Result {
    if args.identity.is_some() && args.since.is_none() {
        return Err(Failure::usage("--identity is the key of the base: name that with --since"));
    }
    let Some(found) = fs::metadata(file).ok().filter(|_| !is_stream(file)) else { return Ok(()) };
    if found.is_dir() {
        return Err(Failure::usage(format!("{} is a directory", file.display()))
            .hint("Name a file in it, or write to the directory with --follow."));
    }
    if !found.is_file() {
        return Err(Failure::usage(format!("{} is no file: - writes to a pipe or a device", file.display())));
    }
    if !args.overwrite {
        return Err(exists(file));
    }
    let base = args.since.as_ref().and_then(|base| fs::metadata(base).ok());
    match base.is_some_and(|base| (base.dev(), base.ino()) == (found.dev(), found.ino())) {
        true => Err(Failure::usage("an increment cannot replace its base, which a restore needs before it")
            .hint("Choose another name.")),
        false => Ok(()),
    }
}

/// Opens the base of an increment. The archives of a chain are all encrypted, or none is.
fn open_base(path: &Path, args: &Backup, encrypts: bool) -> Result<Base> {
    let (base, is_encrypted) = Base::open(path, &args.decryption())?;
    let name = path.display();
    match (is_encrypted, encrypts) {
        (true, false) => Err(Failure::usage(format!("{name} is encrypted, and its increment would not be"))
            .hint("Name --encrypt-to or --passphrase-file, too.")),
        (false, true) => Err(Failure::usage(format!("{name} is not encrypted, and its increment would be"))
            .hint("Begin a new chain with an encrypted full archive.")),
        _ => Ok(base),
    }
}

pub(crate) async fn backup(args: Backup, session: &mut CommandContext) -> Result {
    if let Some(dir) = &args.follow {
        return follow::follow(&args, FollowDirectory::lock(dir)?, session).await;
    }
    let Some(file) = &args.file else { return Err(Failure::usage("name the archive to write")) };
    check_target(file, &args)?;
    let encryptor = args.encryption.encryptor()?;
    let contents = match &args.since {
        Some(base) => ArchiveContents::Increment(open_base(base, &args, encryptor.is_some())?),
        None => ArchiveContents::Full,
    };
    let bricks = Bricks::connect(session).await?;
    contents.check_cluster(&bricks)?;
    let progress = Progress::start("backing up", &session.output);
    let shown = progress.clone();
    let report = move |bytes, total| {
        shown.set_total(total, 0);
        shown.set_done(bytes, 0);
    };
    let confirm = async || {
        // What was moved to a brick that joined meanwhile may be in no part.
        if Bricks::connect(session).await?.names.iter().any(|brick| !bricks.names.contains(brick)) {
            let what = "a brick joined the cluster during the backup, which may lack what was moved to it";
            return Err(Failure::from(Error::new(ErrorKind::Unavailable, what)).hint("Begin the backup again."));
        }
        Ok(())
    };
    let (archive, part) = open_archive(file)?;
    let name = output_name(file);
    let archive = wrap_archive_output(archive, encryptor)
        .map_err(|error| Failure::file(format!("cannot write {name}"), &error))?;
    let done = cluster::backup(&bricks, contents, None, (&name, archive), confirm, report).await;
    progress.end();
    let taken = done?;
    if is_stream(file) {
        // The standard output is the archive and contains nothing else.
        return Ok(());
    }
    if let Some(part) = part {
        part.appear_at(file, args.overwrite)?;
    }
    let (seconds, bricks) = (progress.elapsed().as_secs_f64(), bricks.clients.len() as u64);
    session.output.print(&ArchiveReport { action: "backed up", bytes: taken.bytes, seconds, bricks, moment: None })
}

/// Opens what an archive is written to; also the file that becomes the archive, if there is one.
fn open_archive(path: &Path) -> Result<(Box<dyn Write + Send>, Option<PartFile>)> {
    if is_stream(path) {
        return Ok((Box::new(io::stdout()), None));
    }
    // Two backups to one name have a file each.
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{:08x}.part", rand::random::<u32>()));
    let part = PathBuf::from(part);
    let mut options = fs::OpenOptions::new();
    // An archive is as confidential as the data.
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(&part);
    let file = file.map_err(|error| Failure::file(format!("cannot write {}", path.display()), &error))?;
    Ok((Box::new(WriteBehind::new(file)), Some(PartFile(part))))
}

/// A file that is removed unless it becomes the archive.
struct PartFile(PathBuf);

impl PartFile {
    fn appear_at(self, path: &Path, overwrite: bool) -> Result {
        let appear = || {
            File::open(&self.0)?.sync_all()?;
            match overwrite {
                true => fs::rename(&self.0, path)?,
                false => store::rename_new(&self.0, path)?,
            }
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(directory)?.sync_all()
        };
        appear().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => Failure::file(format!("cannot write {}", path.display()), &error),
        })
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        // A complete file was renamed; an incomplete one is removed, and an error of that is ignored.
        let _ = fs::remove_file(&self.0);
    }
}

/// The failure to read a file of a backup. A bad sector is damage, as a wrong checksum is.
fn read_failure(what: impl fmt::Display, error: &io::Error) -> Failure {
    match is_bad_sector(error) {
        true => Failure::local(Error::new(ErrorKind::Corrupt, format!("{what}: {error}"))),
        false => Failure::file(what, error),
    }
}

/// Opens an archive, decrypted.
fn open_input(path: &Path, encryption: &DecryptArgs) -> Result<ArchiveInput<'static>> {
    let bytes: Box<dyn Read + Send> = if is_stream(path) {
        Box::new(io::stdin())
    } else {
        let file = File::open(path);
        Box::new(file.map_err(|error| read_failure(format!("cannot read {}", path.display()), &error))?)
    };
    let name = path.display().to_string();
    let opened = encryption.open(bytes).map_err(|failure| failure.context(&name))?;
    Ok(ArchiveInput { bytes: opened.bytes, name })
}

/// Restores archives into a directory, without a server.
///
/// Ctrl-C stops it and leaves the directory as it was, or removes it if it is new; a second one ends the process at once.
pub(crate) fn restore(args: &Restore, output: &mut Output) -> Result {
    // Rows go from one thread to another by the million.
    allocator::configure_for_batches();
    if args.files.iter().filter(|file| is_stream(file)).count() > 1 {
        return Err(Failure::usage("only one archive can be the standard input"));
    }
    // clap does not ask for an argument that conflicts with another one, as --list does with the default of --data.
    if args.verify && !args.list {
        return Err(Failure::usage("--verify needs --list").hint("A restore verifies all that it reads."));
    }
    let directory = args.files.iter().find(|file| file.is_dir());
    if args.list {
        return list(args, output);
    }
    raise_file_limit();
    let RestoreInputs { archives, changes, bytes, moment_us, ends_before, position } = match directory {
        Some(directory) if args.files.len() == 1 => {
            let at = args.at.map(|at| i64::try_from(at.as_nanos() / 1_000).unwrap_or(i64::MAX));
            FollowDirectory::open(directory).choose(at, &args.encryption)?
        }
        Some(_) => return Err(Failure::usage("name one directory of a backup with --follow, or archives")),
        None if args.at.is_some() => {
            let what = "--at needs the directory of a backup with --follow: an archive has one moment";
            return Err(Failure::usage(what));
        }
        None => {
            let archives =
                args.files.iter().map(|file| open_input(file, &args.encryption)).collect::<Result<Vec<_>>>()?;
            // A pipe does not say how much comes.
            let lengths =
                args.files.iter().map(|file| fs::metadata(file).ok().filter(Metadata::is_file).map(|file| file.len()));
            let bytes = lengths.sum::<Option<u64>>().unwrap_or(0);
            let (changes, position) = (Box::new(std::iter::empty()), RestorePosition::default());
            RestoreInputs { archives, changes, bytes, moment_us: None, ends_before: false, position }
        }
    };
    let moment = moment_us.map(|moment| Timestamp::from_micros(moment).to_string());
    if let (true, Some(at), Some(moment)) = (ends_before, args.at, &moment) {
        let message = format!("the backup ends before {at}: its last moment, {moment}, is restored");
        warn(output.json(), "restore", &message);
    }
    let progress = Progress::start("restoring", output);
    progress.set_total(bytes, 0);
    let stopped = watch_signals()?;
    let tell = |amount: Amount| {
        progress.set_done(amount.bytes, 0);
        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let done = node::restore::restore(&args.data, (archives, changes), &Options::default(), &tell);
    progress.end();
    let summary = match done {
        Err(_) if stopped.load(Ordering::Relaxed) => return Err(explain_stop(&args.data)),
        Err(error) if error.kind() == ErrorKind::Unavailable => return Err(explain_open(error, &args.data)),
        done => done.map_err(|error| position.explain(explain_restore(error, &args.data)))?,
    };
    output.print(&ArchiveReport {
        action: "restored",
        bytes: summary.archive_bytes,
        seconds: progress.elapsed().as_secs_f64(),
        bricks: summary.bricks,
        moment,
    })
}

/// Why a restore failed. The message about a full disk does not name the target by itself.
fn explain_restore(error: model::Error, target: &Path) -> Failure {
    let is_full = error.kind() == ErrorKind::Full;
    let failure = Failure::local(error);
    match is_full {
        true => failure.context(&format!("cannot restore to {}", target.display())),
        false => failure,
    }
}

/// A stop by Ctrl-C: says what it has left of the target.
fn explain_stop(target: &Path) -> Failure {
    let name = target.display();
    Failure::interrupted(match DirectoryContents::of(target) {
        Ok(DirectoryContents::Missing) => format!("stopped; nothing was restored, and {name} was removed again"),
        Ok(DirectoryContents::Empty) => format!("stopped; nothing was restored, and {name} is empty"),
        Ok(DirectoryContents::InterruptedRestore) => format!("stopped; {name} has an incomplete restore: remove it"),
        _ => format!("stopped; {name} is as it was"),
    })
}

/// Shows the moments in the directory of a backup with `--follow`.
fn list(args: &Restore, output: &mut Output) -> Result {
    let [dir] = &args.files[..] else {
        return Err(Failure::usage("--list shows one directory of a backup with --follow"));
    };
    if is_stream(dir) || fs::metadata(dir).is_ok_and(|found| !found.is_dir()) {
        let what = format!("{} is no directory: --list shows that of a backup with --follow", dir.display());
        return Err(Failure::usage(what));
    }
    let directory = FollowDirectory::open(dir);
    let (mut states, unreadable) = directory.list(&args.encryption)?;
    if states.is_empty() && unreadable.is_empty() {
        return Err(Failure::not_found(format!("{} has no archive of a backup with --follow", dir.display())));
    }
    if args.verify {
        let progress = Progress::start("verifying", output);
        let verified = verification::verify(&directory, &mut states, &args.encryption, &progress);
        progress.end();
        verified?;
    }
    note_bases(&mut states);
    unreadable.iter().for_each(|damage| warn(output.json(), "damaged", damage));
    let mut damaged = unreadable.len() as u64;
    let mut remedies = Vec::new();
    for state in states {
        remedies.extend(remedy(&directory, &state));
        let line = StateLine::new(state);
        damaged += u64::from(line.damage.is_some());
        output.print(&line)?;
    }
    match damaged {
        0 => Ok(()),
        damaged => Err(explain_damage(dir, damaged, &remedies)),
    }
}

/// The command that gives up the damaged end of a journal: what is left is whole, so it is not damaged any more.
fn remedy(directory: &FollowDirectory, state: &StateSummary) -> Option<String> {
    let JournalSummary { bytes, damage, .. } = &state.journal;
    let is_only_damage = damage.is_some() && state.damage.is_none();
    is_only_damage.then(|| format!("truncate -s {bytes} {}", directory.journal(state.file.number).display()))
}

fn explain_damage(dir: &Path, damaged: u64, remedies: &[String]) -> Failure {
    let what = format!("{} is damaged in {}", dir.display(), pluralize(damaged, "place", "places"));
    let mut hint = "Moments before the damage of a journal can be restored with --at. A backup that is started again begins with another archive, and needs \
                    nothing of a damaged journal."
        .to_owned();
    if !remedies.is_empty() {
        let commands = remedies.join("; ");
        hint.push_str(&format!(
            " When it has, and what is left of the damaged journal cannot be had from elsewhere, give its end up: {commands}"
        ));
    }
    Failure::with(Exit::Corrupt, "corrupt", what).hint(hint)
}

/// Lets this process open as many files as it may: each brick reads its parts of all increments at the same time.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, a long chain does, and says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A flag that the first Ctrl-C or SIGTERM sets.
fn watch_signals() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stopped);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::file("cannot start", &e))?;
    let signals = {
        let _guard = runtime.enter();
        Signals::listen()
    };
    // Without signal handling Ctrl-C ends the process at once.
    let Ok(mut signals) = signals else { return Ok(stopped) };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                signals.next().await;
                if raised.swap(true, Ordering::Relaxed) {
                    std::process::exit(i32::from(Exit::Interrupted as u8));
                }
            }
        });
    });
    Ok(stopped)
}
