//! `mortar backup` and `mortar restore`: writes the whole cluster as one archive, and restores it.

mod base;
mod cluster;
mod encryption;
mod write_behind;

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
use client::AdminClient;
use meta::catalog::BrickId;
use model::ErrorKind;
use node::cluster_archive::PartName;
use node::restore::ArchiveInput;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use store::{Amount, Options};
use tokio::signal;

use self::base::Base;
use self::encryption::{DecryptArgs, EncryptArgs, encrypted};
use self::write_behind::WriteBehind;
use super::dev::explain_open;
use crate::allocator;
use crate::connection::{CommandContext, DATA};
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanBytes, Output, Report};
use crate::progress::{HumanDuration, Progress, rate};

const BACKUP: &str = "\
Examples:
  mortar backup monday.mortar
  mortar backup - | zstd > monday.mortar.zst        through a pipe
  mortar backup - | ssh elsewhere 'cat > monday.mortar'
  mortar backup --since monday.mortar tuesday.mortar only what has changed
  mortar backup --encrypt-to age1… monday.mortar    for the owner of a key: age-keygen -o KEY makes one";

const RESTORE: &str = "\
Examples:
  mortar restore monday.mortar --data restored      then: mortar dev --data restored
                                                    and as many bricks more as are wanted: mortar node --role brick
  zstd -dc monday.mortar.zst | mortar restore - --data restored
  mortar restore monday.mortar tuesday.mortar --data restored      a full archive and its increments
  mortar restore --identity KEY monday.mortar --data restored";

/// Write a backup of a cluster, its catalogue included, while it serves: one consistent moment of all bricks
#[derive(Args)]
#[command(after_help = BACKUP)]
pub(crate) struct Backup {
    /// The archive to write; it appears when it is complete and on disk. - is the standard output
    file: PathBuf,
    /// Replace an existing archive
    #[arg(long)]
    overwrite: bool,
    /// Write only what has changed since this archive, its base. A restore needs both, and those before the base
    #[arg(long, value_name = "ARCHIVE")]
    since: Option<PathBuf>,
    /// Decrypt the base with the secret keys in this file
    #[arg(long, value_name = "FILE", requires = "since", conflicts_with = "passphrase_file")]
    identity: Option<PathBuf>,
    #[command(flatten)]
    encryption: EncryptArgs,
}

/// Make a data directory from a backup, for `mortar dev`; no server may run on it
#[derive(Args)]
#[command(after_help = RESTORE)]
pub(crate) struct Restore {
    /// The archive; then the increments that were taken after it, in order. - reads one of them from the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
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
        )
    }
}

fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn exists(path: &Path) -> Failure {
    Failure::conflict(format!("{} exists", path.display())).hint("Choose another name, or replace it with --overwrite.")
}

/// Checks that an archive may get this name.
fn check_target(args: &Backup) -> Result {
    let Some(found) = fs::metadata(&args.file).ok().filter(|_| !is_stream(&args.file)) else { return Ok(()) };
    if !args.overwrite {
        return Err(exists(&args.file));
    }
    if !found.is_file() {
        return Err(Failure::usage(format!("{} is no file: - writes to a pipe or a device", args.file.display())));
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
    let (base, is_encrypted) = Base::open(path, &DecryptArgs::of_base(args.identity.clone(), &args.encryption))?;
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
    check_target(&args)?;
    let encryptor = args.encryption.encryptor()?;
    let base = match &args.since {
        Some(base) => Some(open_base(base, &args, encryptor.is_some())?),
        None => None,
    };
    let bricks = session.bricks().await?;
    let (numbers, clients): (Vec<Option<BrickId>>, Vec<AdminClient>) = bricks.into_iter().unzip();
    let names = numbers.iter().flatten().map(|brick| PartName::Brick(brick.0)).collect::<Vec<_>>();
    if names.len() < clients.len() {
        let what = "this is a brick, and its cluster has to be backed up as one";
        let hint = "Name a peer server with --server: it knows all bricks.";
        return Err(Failure::from(model::Error::new(ErrorKind::Unsupported, what)).hint(hint));
    }
    let progress = Progress::start("backing up", &session.output);
    let shown = progress.clone();
    let report = move |bytes, total| {
        shown.set_total(total, 0);
        shown.set_done(bytes, 0);
    };
    let confirm = async || {
        // What was moved to a brick that joined meanwhile may be in no part.
        if session.bricks().await?.iter().any(|(brick, _)| !numbers.contains(brick)) {
            let what = "a brick joined the cluster during the backup, which may lack what was moved to it";
            return Err(Failure::from(model::Error::new(ErrorKind::Unavailable, what)).hint("Begin the backup again."));
        }
        Ok(())
    };
    let (archive, part) = open_archive(&args.file)?;
    let archive = encrypted(archive, encryptor).map_err(|error| Failure::file("cannot write the archive", &error))?;
    let done = cluster::backup(&names, &clients, base, archive, confirm, report).await;
    progress.end();
    let bytes = done?;
    if is_stream(&args.file) {
        // The standard output is the archive and contains nothing else.
        return Ok(());
    }
    if let Some(part) = part {
        part.appear_at(&args.file, args.overwrite)?;
    }
    let (seconds, bricks) = (progress.elapsed().as_secs_f64(), clients.len() as u64);
    session.output.print(&ArchiveReport { action: "backed up", bytes, seconds, bricks })
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

/// Opens an archive, decrypted.
fn open_input(path: &Path, encryption: &DecryptArgs) -> Result<ArchiveInput<'static>> {
    let bytes: Box<dyn Read + Send> = if is_stream(path) {
        Box::new(io::stdin())
    } else {
        let file = File::open(path);
        Box::new(file.map_err(|e| Failure::file(format!("cannot read {}", path.display()), &e))?)
    };
    let name = path.display().to_string();
    let opened = encryption.open(bytes).map_err(|failure| failure.context(&name))?;
    Ok(ArchiveInput { bytes: opened.bytes, name })
}

/// Restores archives into a directory, without a server.
///
/// Ctrl-C stops it and leaves the directory empty; a second one ends the process at once.
pub(crate) fn restore(args: &Restore, output: &mut Output) -> Result {
    // Rows go from one thread to another by the million.
    allocator::configure_for_batches();
    if args.files.iter().filter(|file| is_stream(file)).count() > 1 {
        return Err(Failure::usage("only one archive can be the standard input"));
    }
    raise_file_limit();
    let archives = args.files.iter().map(|file| open_input(file, &args.encryption)).collect::<Result<Vec<_>>>()?;
    let progress = Progress::start("restoring", output);
    // A pipe does not say how much comes.
    let lengths =
        args.files.iter().map(|file| fs::metadata(file).ok().filter(Metadata::is_file).map(|file| file.len()));
    progress.set_total(lengths.sum::<Option<u64>>().unwrap_or(0), 0);
    let stopped = watch_ctrl_c()?;
    let tell = |amount: Amount| {
        progress.set_done(amount.bytes, 0);
        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let done = node::restore::restore(&args.data, archives, &Options::default(), &tell);
    progress.end();
    let summary = match done {
        Err(_) if stopped.load(Ordering::Relaxed) => {
            return Err(Failure::interrupted(format!("stopped; {} is as it was", args.data.display())));
        }
        Err(error) if error.kind() == ErrorKind::Unavailable => return Err(explain_open(error, &args.data)),
        done => done.map_err(Failure::local)?,
    };
    output.print(&ArchiveReport {
        action: "restored",
        bytes: summary.archive_bytes,
        seconds: progress.elapsed().as_secs_f64(),
        bricks: summary.bricks,
    })
}

/// Lets this process open as many files as it may: each brick reads its parts of all increments at the same time.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, a long chain does, and says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A flag that the first Ctrl-C sets.
fn watch_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stopped);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::file("cannot start", &e))?;
    thread::spawn(move || {
        runtime.block_on(async {
            // Without signal handling Ctrl-C ends the process at once, which does no harm.
            while signal::ctrl_c().await.is_ok() {
                if raised.swap(true, Ordering::Relaxed) {
                    std::process::exit(i32::from(Exit::Interrupted as u8));
                }
            }
        });
    });
    Ok(stopped)
}
