//! The directory of a backup that follows a cluster: archives of states, each with the journal of the changes after it.
//!
//! ```text
//!   000001-full.mortar        000001-changes.mortar
//!   000002-increment.mortar   000002-changes.mortar
//! ```
//!
//! The numbers give the order. A journal begins with the state of the archive that has its number.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::{Error, ErrorKind, Timestamp};
use node::cluster_archive::{self, ArchiveFormat, ArchiveHeader, ClusterArchiveReader};
use node::restore::{ArchiveInput, ChangesInput};

use super::cluster::check_cluster;
use super::encryption::DecryptArgs;
use super::journal::{JournalReader, Record, RecordBytes};
use super::{open_input, read_failure};
use crate::failure::{Exit, Failure, Result};

/// Keeps a second backup out of the directory. Has the number by which the bricks know the backup, 8 bytes, and that of the cluster, 16.
const LOCK: &str = "FOLLOW";
/// Bytes of the first of these numbers.
const FOLLOWER: usize = 8;
/// What a data directory has, in which nothing else belongs.
const STORE: &str = "STORE";
/// What `mkfs` leaves in the root of a file system.
const LOST_AND_FOUND: &str = "lost+found";

/// The name of a journal behind its number.
const JOURNAL: &str = "changes.mortar";

/// What an archive of a state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Full,
    Increment,
}

impl StateKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Increment => "increment",
        }
    }
}

/// An archive of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateFile {
    pub(super) number: u32,
    pub(super) kind: StateKind,
    pub(super) path: PathBuf,
}

pub(super) struct FollowDirectory {
    dir: PathBuf,
    lock: Option<File>,
}

/// What is restored.
pub(super) struct RestoreInputs {
    pub(super) archives: Vec<ArchiveInput<'static>>,
    pub(super) changes: ChangesInput<'static>,
    /// Bytes of all that is read; 0 if that is not known.
    pub(super) bytes: u64,
    /// The moment, in microseconds since 1970, if it was chosen from several.
    pub(super) moment_us: Option<i64>,
    /// Whether a later moment was asked for than the last one of all.
    pub(super) ends_before: bool,
    /// What is being read.
    pub(super) position: RestorePosition,
}

/// What a restore is reading, as far as something before it can be restored without it.
#[derive(Clone, Default)]
pub(super) struct RestorePosition(Rc<RefCell<Option<Rc<Reading>>>>);

/// A part of a backup, with the time of what comes before it in microseconds since 1970. That was read as a whole.
enum Reading {
    /// A moment of a journal.
    Moment { before_us: i64 },
    /// An increment: the archive before it, and the journal of that one.
    Increment { base_us: i64, journal: PathBuf },
}

impl RestorePosition {
    fn set(&self, reading: Option<Rc<Reading>>) {
        *self.0.borrow_mut() = reading;
    }

    /// Adds to a failure which moment can be restored, if what is being read is damaged.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        let reading = self.0.borrow().clone().filter(|_| is_damage(&failure));
        match reading.as_deref() {
            Some(Reading::Moment { before_us }) => failure.hint(lost_moments_hint(*before_us)),
            Some(Reading::Increment { base_us, journal }) => {
                let before = summarize_journal(journal, i64::MAX).ok().and_then(|journal| journal.last_us);
                let before = Timestamp::from_micros(before.unwrap_or(*base_us));
                failure.hint(format!("--at {before} restores the last moment before this archive."))
            }
            None => failure,
        }
    }
}

/// An increment of a backup. Each read says that it is being read.
struct IncrementBytes {
    bytes: Box<dyn Read>,
    reading: Rc<Reading>,
    position: RestorePosition,
}

impl Read for IncrementBytes {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.position.set(Some(self.reading.clone()));
        self.bytes.read(buf)
    }
}

/// Whether a failure of reading an archive means that it is damaged. An altered header of an encrypted one may look like one for other keys.
pub(super) fn is_damage(failure: &Failure) -> bool {
    matches!(failure.exit(), Exit::Corrupt | Exit::Denied)
}

/// What is damaged according to a failure; other failures are returned.
pub(super) fn damage_in(verified: Result) -> Result<Option<String>> {
    match verified {
        Ok(()) => Ok(None),
        Err(failure) if is_damage(&failure) => Ok(Some(failure.message().to_owned())),
        Err(failure) => Err(failure),
    }
}

fn lost_moments_hint(before_us: i64) -> String {
    let before = Timestamp::from_micros(before_us);
    format!("Later moments of this journal are lost. --at {before} restores the last one before.")
}

/// An archive of a state, and its journal.
pub(super) struct StateSummary {
    pub(super) file: StateFile,
    pub(super) header: ArchiveHeader,
    pub(super) bytes: u64,
    /// Why neither its moment nor those of its journal can be restored.
    pub(super) damage: Option<String>,
    pub(super) journal: JournalSummary,
}

/// The complete records of a journal.
#[derive(Default)]
pub(super) struct JournalSummary {
    pub(super) moments: u64,
    pub(super) last_us: Option<i64>,
    pub(super) bytes: u64,
    /// Whether there are later ones than were asked for.
    pub(super) goes_on: bool,
    /// What is wrong with what comes after them.
    pub(super) damage: Option<String>,
}

impl FollowDirectory {
    /// Opens a directory to write to, and makes it if it does not exist. One with files of others is refused: it was named by mistake, and nothing is written
    /// to it.
    pub(super) fn lock(dir: &Path) -> Result<Self> {
        let cannot = |error: io::Error| Failure::file(format!("cannot use {}", dir.display()), &error);
        if dir.join(STORE).exists() {
            return Err(Failure::usage(format!("{} is the data directory of a server", dir.display()))
                .hint("Choose a directory on another disk."));
        }
        if fs::metadata(dir).is_ok_and(|found| !found.is_dir()) {
            return Err(Failure::usage(format!("{} is no directory", dir.display())).hint(
                "A backup with --follow writes several files: name a directory, which is made if it does not exist.",
            ));
        }
        if !dir.exists() {
            DirBuilder::new().mode(0o700).create(dir).map_err(cannot)?;
        }
        if let Some(other) = foreign_name(dir).map_err(cannot)? {
            let what = format!("{} contains other files than those of a backup with --follow: {other}", dir.display());
            return Err(Failure::usage(what).hint("Choose an empty or a new directory, or move the other files away."));
        }
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let lock = options.open(dir.join(LOCK)).map_err(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!("another backup writes to {}", dir.display());
                return Err(Failure::conflict(what).hint("Choose another directory, or end that backup."));
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        Ok(Self { dir: dir.to_owned(), lock: Some(lock) })
    }

    /// The number by which the bricks know the backup to this directory, the same after a restart.
    pub(super) fn follower(&self) -> Result<u64> {
        let cannot = |error: io::Error| Failure::file(format!("cannot use {}", self.dir.display()), &error);
        let Some(lock) = &self.lock else { return Ok(rand::random()) };
        let mut bytes = [0; FOLLOWER];
        if lock.metadata().map_err(cannot)?.len() >= bytes.len() as u64 {
            lock.read_exact_at(&mut bytes, 0).map_err(cannot)?;
            return Ok(u64::from_le_bytes(bytes));
        }
        let number: u64 = rand::random();
        lock.write_all_at(&number.to_le_bytes(), 0).and_then(|()| lock.sync_all()).map_err(cannot)?;
        Ok(number)
    }

    /// Checks that the archives in the directory are of this cluster, and notes the cluster in it. If it is not noted yet, the newest archive that can be read
    /// tells it: without the secret key, none can.
    pub(super) fn check_cluster(&self, cluster: u128, decryption: &DecryptArgs) -> Result {
        let cannot = |error: io::Error| Failure::file(format!("cannot use {}", self.dir.display()), &error);
        let Some(lock) = &self.lock else { return Ok(()) };
        let states = self.states()?;
        let mut noted = None;
        if lock.metadata().map_err(cannot)?.len() >= (FOLLOWER + size_of::<u128>()) as u64 {
            let mut bytes = [0; size_of::<u128>()];
            lock.read_exact_at(&mut bytes, FOLLOWER as u64).map_err(cannot)?;
            noted = Some(u128::from_le_bytes(bytes));
        }
        let mut known = noted.filter(|_| !states.is_empty());
        let mut unread = states.iter().rev();
        while known.is_none()
            && let Some(state) = unread.next()
        {
            known = match header_of(&state.path, decryption) {
                Ok(header) => Some(header.cluster),
                Err(failure) if is_damage(&failure) => None,
                Err(failure) => return Err(failure),
            };
        }
        if let Some(known) = known {
            check_cluster(&self.dir.display().to_string(), known, cluster)?;
        }
        if noted == Some(cluster) {
            return Ok(());
        }
        let written = lock.write_all_at(&cluster.to_le_bytes(), FOLLOWER as u64);
        written.and_then(|()| lock.sync_all()).map_err(cannot)
    }

    /// Opens a directory to read from; a backup may be writing to it.
    pub(super) fn open(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), lock: None }
    }

    /// The archives of states, in order.
    pub(super) fn states(&self) -> Result<Vec<StateFile>> {
        let cannot = |error: io::Error| Failure::file(format!("cannot read {}", self.dir.display()), &error);
        let mut states = BTreeMap::new();
        for entry in fs::read_dir(&self.dir).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            let Some(state) = parse_name(&path) else { continue };
            if let Some(other) = states.insert(state.number, state) {
                let what = format!("{} has two archives with number {:06}", self.dir.display(), other.number);
                return Err(Failure::new(what));
            }
        }
        Ok(states.into_values().collect())
    }

    /// A number above those of all files.
    pub(super) fn next_number(&self) -> io::Result<u32> {
        let mut last = 0;
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            last = last.max(name.to_str().and_then(number_of).unwrap_or(0));
        }
        Ok(last + 1)
    }

    /// Where an archive of a state with this number goes.
    pub(super) fn state(&self, number: u32, kind: StateKind) -> StateFile {
        let path = self.dir.join(format!("{number:06}-{}.mortar", kind.word()));
        StateFile { number, kind, path }
    }

    /// Where the journal of a state goes.
    pub(super) fn journal(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:06}-{JOURNAL}"))
    }

    /// Removes files that an archive which was not completed has left.
    pub(super) fn remove_incomplete(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if is_incomplete(&path) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Removes all archives and journals before the state with this number. The newest go first, and an archive goes before its journal: so at each moment
    /// those that are left have what they need.
    pub(super) fn remove_before(&self, number: u32) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let of = path.file_name().and_then(|name| number_of(name.to_str()?)).filter(|of| *of < number);
            let Some(of) = of else { continue };
            let is_archive = parse_name(&path).is_some();
            if is_archive || path == self.journal(of) {
                files.push((of, is_archive, path));
            }
        }
        files.sort();
        files.into_iter().rev().try_for_each(|(_, _, path)| fs::remove_file(path))
    }

    /// The archives and moments that a directory has, and the archives with damaged heads, with the damage. Of archives only the heads and the ends
    /// are read, and of journals the heads of records.
    pub(super) fn list(&self, encryption: &DecryptArgs) -> Result<(Vec<StateSummary>, Vec<String>)> {
        let (mut states, mut damaged) = (Vec::new(), Vec::new());
        for file in self.states()? {
            let path = file.path.clone();
            match self.summary(file, encryption) {
                // A backup may have removed it meanwhile.
                _ if !path.exists() => {}
                Err(failure) if failure.exit() == Exit::Corrupt => damaged.push(failure.message().to_owned()),
                summary => states.push(summary?),
            }
        }
        Ok((states, damaged))
    }

    fn summary(&self, file: StateFile, encryption: &DecryptArgs) -> Result<StateSummary> {
        let header = header_of(&file.path, encryption)?;
        let damage = damage_in(check_end_of(&file.path, encryption))?;
        let (bytes, journal) = (len_of(&file.path)?, self.journal_up_to(file.number, i64::MAX)?);
        Ok(StateSummary { file, header, bytes, damage, journal })
    }

    /// The records up to a time of the journal of a state.
    pub(super) fn journal_up_to(&self, number: u32, until: i64) -> Result<JournalSummary> {
        summarize_journal(&self.journal(number), until)
    }

    /// The archives and changes that have the last moment at or before `at`, in microseconds since 1970, or the last one of all.
    pub(super) fn choose(&self, at: Option<i64>, encryption: &DecryptArgs) -> Result<RestoreInputs> {
        let until = at.unwrap_or(i64::MAX);
        // From the newest one back to the full archive that is needed: those before may be damaged.
        let (mut chain, mut oldest) = (Vec::<(StateFile, ArchiveHeader)>::new(), None);
        let states = self.states()?;
        let newest = states.last().map(|state| state.number);
        let mut unreadable = None;
        for file in states.into_iter().rev() {
            let header = match header_of(&file.path, encryption) {
                // An earlier moment may not need it.
                Err(failure) if at.is_some() && chain.is_empty() && failure.exit() == Exit::Corrupt => {
                    unreadable = Some(failure);
                    continue;
                }
                header => header?,
            };
            oldest = Some(header.id.time_us);
            let is_needed = match chain.last() {
                None => header.id.time_us <= until,
                Some((_, after)) => after.base == Some(header.id),
            };
            if is_needed {
                chain.push((file, header));
            }
            if is_needed && header.base.is_none() {
                break;
            }
        }
        let Some(oldest) = oldest else {
            if let Some(failure) = unreadable {
                return Err(failure);
            }
            return Err(Failure::not_found(format!("{} has no archive", self.dir.display())));
        };
        let Some((StateFile { number, .. }, header)) = chain.first().cloned() else {
            let first = Timestamp::from_micros(oldest);
            return Err(Failure::not_found(format!("the first moment in {} is {first}", self.dir.display())));
        };
        if let Some(base) = chain.last().and_then(|(_, last)| last.base) {
            let what = format!("{} lacks archive {base}, which later ones need", self.dir.display());
            return Err(Failure::corrupt(what).hint("Restore an earlier moment with --at; --list shows them."));
        }
        chain.reverse();
        let (begin_us, journal) = (header.id.time_us, self.journal_up_to(number, until)?);
        if let Some(damage) = journal.damage.filter(|_| until != begin_us) {
            return Err(Failure::corrupt(damage).hint(lost_moments_hint(journal.last_us.unwrap_or(begin_us))));
        }
        let mut bytes = journal.bytes;
        let (mut archives, position) = (Vec::new(), RestorePosition::default());
        let mut base: Option<Rc<Reading>> = None;
        for (file, header) in chain {
            bytes += len_of(&file.path)?;
            let mut input = open_input(&file.path, encryption)?;
            if let Some(reading) = base {
                let (bytes, position) = (input.bytes, position.clone());
                input.bytes = Box::new(IncrementBytes { bytes, reading, position });
            }
            archives.push(input);
            let (base_us, journal) = (header.id.time_us, self.journal(file.number));
            base = Some(Rc::new(Reading::Increment { base_us, journal }));
        }
        let changes: ChangesInput<'static> = match journal.last_us {
            Some(last_us) => {
                let times = (begin_us, last_us);
                Box::new(moments(&self.journal(number), times, encryption.clone(), position.clone())?)
            }
            None => Box::new(std::iter::empty()),
        };
        let moment_us = journal.last_us.unwrap_or(begin_us);
        if let Some(failure) = unreadable.filter(|_| until > moment_us) {
            let last = Timestamp::from_micros(moment_us);
            return Err(failure.hint(format!(
                "The moment that was asked for may need it. --at {last} restores the last one before it."
            )));
        }
        let is_last = newest == Some(number) && !journal.goes_on;
        let ends_before = is_last && at.is_some_and(|at| at > moment_us);
        Ok(RestoreInputs { archives, changes, bytes, moment_us: Some(moment_us), ends_before, position })
    }
}

/// The records of a journal up to a time.
fn summarize_journal(path: &Path, until: i64) -> Result<JournalSummary> {
    let mut journal = JournalSummary::default();
    if !path.exists() {
        journal.damage = Some(format!("{} is missing", path.display()));
        return Ok(journal);
    }
    let mut records = match JournalReader::open(path) {
        Ok(records) => records,
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            journal.damage = Some(error.to_string());
            return Ok(journal);
        }
        Err(error) => return Err(Failure::local(error)),
    };
    // With that moment nothing after it is needed.
    while journal.last_us != Some(until) {
        match records.next() {
            Ok(Some((record, _))) if record.time_us <= until => {
                journal.moments += 1;
                (journal.last_us, journal.bytes) = (Some(record.time_us), records.bytes());
            }
            Ok(next) => {
                journal.goes_on = next.is_some();
                break;
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                journal.damage = Some(error.to_string());
                break;
            }
            Err(error) => return Err(Failure::local(error)),
        }
    }
    Ok(journal)
}

/// Notes which archives cannot be restored because they need one that is missing or damaged.
pub(super) fn note_bases(states: &mut [StateSummary]) {
    for at in 0..states.len() {
        let Some(base) = states[at].header.base.filter(|_| states[at].damage.is_none()) else { continue };
        states[at].damage = match states[..at].iter().find(|state| state.header.id == base) {
            None => Some(format!("the archive {base}, which it needs, is missing")),
            Some(base) if base.damage.is_some() => {
                Some(format!("{}, which it needs, cannot be restored", base.file.path.display()))
            }
            Some(_) => None,
        };
    }
}

/// The archives of a journal from that of a state, whose time is `begin_us`, up to that of `last_us`. `position` follows what is read.
pub(super) fn moments(
    path: &Path,
    (begin_us, last_us): (i64, i64),
    encryption: DecryptArgs,
    position: RestorePosition,
) -> Result<impl Iterator<Item = model::Result<(i64, ArchiveInput<'static>)>> + 'static> {
    let mut journal = JournalReader::open(path).map_err(Failure::local)?;
    let file = path.display().to_string();
    let open = move |Record { time_us, .. }: Record, bytes: RecordBytes| {
        let name = format!("{file}, moment {}", Timestamp::from_micros(time_us));
        let opened = encryption.open(Box::new(io::BufReader::new(bytes))).map_err(|failure| {
            let kind = if failure.exit() == Exit::Denied { ErrorKind::Denied } else { ErrorKind::Corrupt };
            Error::new(kind, format!("{name}: {}", failure.message()))
        })?;
        Ok((time_us, ArchiveInput { name, bytes: opened.bytes }))
    };
    let mut before_us = begin_us;
    Ok(std::iter::from_fn(move || {
        let next = if before_us < last_us { journal.next().transpose() } else { None };
        position.set(next.as_ref().map(|_| Rc::new(Reading::Moment { before_us })));
        match next? {
            Ok((record, bytes)) => {
                before_us = record.time_us;
                Some(open(record, bytes))
            }
            Err(error) => Some(Err(error)),
        }
    }))
}

/// The name of an entry of a directory that does not belong to a backup that follows, if there is one: the first in the order of names.
fn foreign_name(dir: &Path) -> io::Result<Option<String>> {
    let mut first: Option<String> = None;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = [LOCK, LOST_AND_FOUND].contains(&&*name)
            || parse_name(&path).is_some()
            || is_incomplete(&path)
            || number_of(&name).is_some() && name[7..] == *JOURNAL;
        if !is_ours && first.as_deref().is_none_or(|first| *name < *first) {
            first = Some(name.into_owned());
        }
    }
    Ok(first)
}

/// Whether a file is an archive that was not completed: `000002-increment.mortar.01234567.part`.
fn is_incomplete(path: &Path) -> bool {
    let is_part = path.extension().is_some_and(|extension| extension == "part");
    is_part && parse_name(&path.with_extension("").with_extension("")).is_some()
}

/// The number of a file.
fn number_of(name: &str) -> Option<u32> {
    let (number, _) = name.split_once('-')?;
    let digits = number.len() == 6 && number.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| number.parse().ok()).flatten()
}

fn parse_name(path: &Path) -> Option<StateFile> {
    let name = path.file_name()?.to_str()?;
    let number = number_of(name)?;
    let kind = match name.get(7..)? {
        "full.mortar" => StateKind::Full,
        "increment.mortar" => StateKind::Increment,
        _ => return None,
    };
    Some(StateFile { number, kind, path: path.to_owned() })
}

/// The head of an archive.
pub(super) fn header_of(path: &Path, encryption: &DecryptArgs) -> Result<ArchiveHeader> {
    let ArchiveInput { name, bytes } = open_input(path, encryption)?;
    match ClusterArchiveReader::begin(bytes).map_err(|error| Failure::local(error).context(&name))? {
        ArchiveFormat::Cluster(_, header) => Ok(header),
        ArchiveFormat::Other(..) => Err(Failure::corrupt(format!("{name} is not an archive of a cluster"))),
    }
}

/// Checks that an archive whose head was read has its end.
pub(super) fn check_end_of(path: &Path, encryption: &DecryptArgs) -> Result {
    let file = File::open(path).map_err(|error| read_failure(format!("cannot read {}", path.display()), &error))?;
    let named = |failure: Failure| failure.context(&path.display().to_string());
    let mut archive = encryption.open_at_any_place(file).map_err(named)?;
    cluster_archive::check_end(&mut archive).map_err(|error| named(Failure::local(error)))
}

pub(super) fn len_of(path: &Path) -> Result<u64> {
    let about = fs::metadata(path);
    about.map(|about| about.len()).map_err(|error| read_failure(format!("cannot read {}", path.display()), &error))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use node::cluster_archive::{ArchiveId, ClusterArchiveWriter, PartName};

    use super::*;
    use crate::commands::backup::encryption::EncryptArgs;
    use crate::commands::backup::journal::JournalWriter;

    #[test]
    fn names_have_a_number_and_a_kind() {
        let parsed = parse_name(Path::new("/d/000012-increment.mortar")).unwrap();
        assert_eq!((parsed.number, parsed.kind), (12, StateKind::Increment));
        for name in
            ["000012-changes.mortar", "12-full.mortar", "000012-full.mortar.0a.part", "+00012-full.mortar", "LOCK"]
        {
            assert_eq!(parse_name(Path::new(name)), None, "{name}");
        }
    }

    /// A secret key that only tests use.
    const IDENTITY: &str = "AGE-SECRET-KEY-1V6TQGE6GMGSZZ64XEMLUKYFCFQP68GVNYXWY9QVESJW93E4RCD3QF5PQ8J";

    /// An archive of more than one chunk of its encryption.
    fn archive(encryptor: Option<age::Encryptor>) -> Vec<u8> {
        let mut archive = Vec::new();
        let mut plain = ClusterArchiveWriter::begin(Vec::new(), &ArchiveHeader::new(5, None)).unwrap();
        let part = plain.begin_part(PartName::Brick(1)).unwrap();
        plain.write(part, &[7; 100_000]).unwrap();
        plain.end_part(part).unwrap();
        let (_, plain) = plain.end().unwrap();
        match encryptor {
            None => archive = plain,
            Some(encryptor) => {
                let mut out = encryptor.wrap_output(&mut archive).unwrap();
                out.write_all(&plain).unwrap();
                out.finish().unwrap();
            }
        }
        archive
    }

    #[test]
    fn an_archive_that_is_cut_off_is_listed_as_damaged() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, key) = (parent.path().join("follow"), parent.path().join("key"));
        let directory = FollowDirectory::lock(&dir).unwrap();
        drop(JournalWriter::create(&directory.journal(1)).unwrap());
        fs::write(&key, IDENTITY).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let recipient = IDENTITY.parse::<age::x25519::Identity>().unwrap().to_public();
        let encryptor = age::Encryptor::with_recipients([&recipient as &dyn age::Recipient].into_iter()).unwrap();
        let encrypted = (archive(Some(encryptor)), DecryptArgs::of_base(Some(key), &EncryptArgs::default()));
        for (archive, encryption) in [(archive(None), DecryptArgs::default()), encrypted] {
            let path = directory.state(1, StateKind::Full).path;
            let damage = |len: usize| {
                fs::write(&path, &archive[..len]).unwrap();
                directory.list(&encryption).unwrap().0.remove(0).damage
            };
            assert_eq!(damage(archive.len()), None);
            for cut in [1, 13, 20_000, archive.len() - 70_000] {
                let damage = damage(archive.len() - cut).unwrap();
                assert!(damage.contains("000001-full.mortar") && damage.contains("it is cut off"), "{damage}");
            }
        }
    }

    /// The memory of a process cannot be read at its first address: the system answers as if a sector was bad.
    #[test]
    fn what_the_disk_cannot_read_is_damaged_and_hides_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let directory = FollowDirectory::lock(&parent.path().join("follow")).unwrap();
        let memory = Path::new("/proc/self/mem");
        for number in [1, 2] {
            fs::write(directory.state(number, StateKind::Full).path, archive(None)).unwrap();
        }
        let encryption = DecryptArgs::default();
        drop(JournalWriter::create(&directory.journal(2)).unwrap());
        std::os::unix::fs::symlink(memory, directory.journal(1)).unwrap();
        std::os::unix::fs::symlink(memory, directory.state(3, StateKind::Full).path).unwrap();
        let (states, damaged) = directory.list(&encryption).unwrap();
        assert_eq!((states.len(), damaged.len()), (2, 1));
        assert!(damaged[0].contains("000003-full.mortar") && damaged[0].contains("cannot read"), "{damaged:?}");
        let damage = states[0].journal.damage.as_deref().unwrap();
        assert!(damage.contains("000001-changes.mortar") && states[1].journal.damage.is_none(), "{damage}");
        directory.check_cluster(5, &encryption).unwrap();
    }

    fn id(number: u128) -> ArchiveId {
        ArchiveId { number, time_us: number as i64 }
    }

    /// The summary of an archive that needs another one.
    fn state(number: u32, base: Option<u128>) -> StateSummary {
        let header = ArchiveHeader { cluster: 5, id: id(number.into()), base: base.map(id), is_changes: false };
        let kind = if base.is_some() { StateKind::Increment } else { StateKind::Full };
        let file = FollowDirectory::open(Path::new("d")).state(number, kind);
        StateSummary { file, header, bytes: 0, damage: None, journal: JournalSummary::default() }
    }

    #[test]
    fn archive_whose_base_is_damaged_or_missing_is_damaged_too() {
        let mut states = [state(1, None), state(2, Some(1)), state(3, Some(2)), state(5, Some(4)), state(6, None)];
        states[0].damage = Some("a checksum does not match".to_owned());
        note_bases(&mut states);
        let damage = states.map(|state| state.damage.unwrap_or_default());
        assert!(damage[1].contains("000001-full.mortar, which it needs, cannot be restored"), "{}", damage[1]);
        assert!(damage[2].contains("000002-increment.mortar, which it needs, cannot be restored"), "{}", damage[2]);
        assert!(damage[3].contains("which it needs, is missing") && damage[4].is_empty(), "{damage:?}");
    }

    #[test]
    fn what_is_before_an_archive_is_removed_with_journals_that_have_none() {
        let parent = tempfile::tempdir().unwrap();
        let directory = FollowDirectory::lock(&parent.path().join("follow")).unwrap();
        let kept = ["000004-changes.mortar", "000004-full.mortar", "000001-notes", LOCK];
        for name in ["000001-full.mortar", "000001-changes.mortar", "000002-increment.mortar", "000003-changes.mortar"]
        {
            fs::write(directory.dir.join(name), "x").unwrap();
        }
        kept[..3].iter().for_each(|name| fs::write(directory.dir.join(name), "x").unwrap());
        directory.remove_before(4).unwrap();
        assert!(kept.iter().all(|name| directory.dir.join(name).exists()));
        assert_eq!(fs::read_dir(&directory.dir).unwrap().count(), kept.len());
    }

    #[test]
    fn one_backup_writes_to_a_directory_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("follow");
        let first = FollowDirectory::lock(&dir).unwrap();
        assert_eq!(FollowDirectory::lock(&dir).err().unwrap().exit(), Exit::Conflict);
        let number = first.follower().unwrap();
        drop(first);
        let directory = FollowDirectory::lock(&dir).unwrap();
        assert_eq!(directory.follower().unwrap(), number, "it stays the same");
        // So does the cluster, as soon as there is an archive; one that cannot be read leaves it to those before.
        let check = |cluster| directory.check_cluster(cluster, &DecryptArgs::default());
        (5..8).for_each(|cluster| check(cluster).unwrap());
        let of_state = |number| directory.state(number, StateKind::Full).path;
        fs::write(of_state(1), archive(None)).unwrap();
        fs::write(of_state(2), "damaged").unwrap();
        check(7).unwrap();
        let refused = check(5).unwrap_err();
        assert!(refused.exit() == Exit::Conflict && refused.message().contains("cluster 00000000"), "{refused:?}");
        fs::File::options().write(true).open(dir.join(LOCK)).unwrap().set_len(8).unwrap();
        assert!(check(7).is_err());
        check(5).unwrap();
        [1, 2].into_iter().for_each(|number| fs::remove_file(of_state(number)).unwrap());
        assert_eq!(directory.follower().unwrap(), number);
        // Files that others put there meanwhile are not touched.
        for name in ["000001-full.mortar.0a.part", "movie.part", "000001-full.mortar"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        directory.remove_incomplete().unwrap();
        assert!(dir.join("movie.part").exists() && !dir.join("000001-full.mortar.0a.part").exists());
        assert_eq!(directory.next_number().unwrap(), 2);
        fs::write(dir.join("STORE"), "x").unwrap();
        drop(directory);
        assert_eq!(FollowDirectory::lock(&dir).err().unwrap().exit(), Exit::Usage);
    }

    #[test]
    fn a_directory_with_files_of_others_is_refused_and_nothing_is_written_to_it() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("follow");
        fs::create_dir(&dir).unwrap();
        let names = [
            "000001-full.mortar",
            "000001-changes.mortar",
            "000002-increment.mortar.01234567.part",
            "000003-changes.mortar",
            LOST_AND_FOUND,
        ];
        names.iter().for_each(|name| fs::write(dir.join(name), "x").unwrap());
        drop(FollowDirectory::lock(&dir).unwrap());
        fs::remove_file(dir.join(LOCK)).unwrap();
        for other in
            ["notes.txt", "000001-notes", "000001-full.mortar.part", "1-changes.mortar", "movie.0a.part", ".hidden"]
        {
            fs::write(dir.join(other), "x").unwrap();
            let refused = FollowDirectory::lock(&dir).err().unwrap();
            assert!(refused.exit() == Exit::Usage && refused.message().ends_with(other), "{}", refused.message());
            fs::remove_file(dir.join(other)).unwrap();
        }
        assert!(!dir.join(LOCK).exists());
        let refused = FollowDirectory::lock(&dir.join("000001-full.mortar")).err().unwrap();
        assert!(refused.exit() == Exit::Usage && refused.message().ends_with("is no directory"), "{refused:?}");
    }
}
