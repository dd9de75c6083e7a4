//! The secret by which the processes of a cluster authenticate each other.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Error, ErrorKind, Result};
use tracing::{info, warn};
use wire::handshake::MAX_PASSWORD;

use crate::plant::{Bug, planted};

/// Bytes in the shortest secret.
const MIN_SECRET: usize = 16;
/// Bytes in the largest file.
const MAX_FILE: u64 = 64 << 10;

/// The secret of a cluster: the lines of a file. Any of them is accepted; the first is sent to other processes. So it can be
/// replaced while all processes run: add the new line below the old one in all files, then move it to the top, then remove the
/// old line. Clones share the secret. A changed file is read again.
#[derive(Clone)]
pub struct Secret(Arc<SecretInner>);

struct SecretInner {
    file: Option<PathBuf>,
    state: Mutex<SecretState>,
}

struct SecretState {
    lines: Vec<String>,
    stamp: Option<Stamp>,
}

/// Attributes of a file that change when it is written or replaced.
type Stamp = (u64, i64, i64, u64);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("file", &self.0.file).finish_non_exhaustive()
    }
}

impl Secret {
    /// A random secret for this process and for those that get a clone.
    #[must_use]
    pub fn generate() -> Self {
        Self::from_state(None, SecretState { lines: vec![generate_line()], stamp: None })
    }

    /// Reads a secret from a file that only its owner can read.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such file, [`ErrorKind::Denied`] if others may read it, [`ErrorKind::Invalid`]
    /// if it has no secret or one that is too short or too long.
    pub fn load(file: &Path) -> Result<Self> {
        let (lines, seen) = read(file)?;
        Ok(Self::from_state(Some(file.to_owned()), SecretState { lines, stamp: Some(seen) }))
    }

    /// Creates a file with a random secret, with mode 0600.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be created. An existing file is not changed.
    pub fn create(file: &Path) -> Result<()> {
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        made.and_then(|mut made| writeln!(made, "{}", generate_line())).map_err(|error| {
            Error::new(ErrorKind::Io, format!("a cluster secret cannot be written to {}", file.display()))
                .with_source(error)
        })
    }

    fn from_state(file: Option<PathBuf>, state: SecretState) -> Self {
        Self(Arc::new(SecretInner { file, state: Mutex::new(state) }))
    }

    /// Reads the file again. This also happens whenever the secret is used and the file has changed.
    ///
    /// # Errors
    /// As [`Secret::load`]; then the secret from before stays in use.
    pub fn reload(&self) -> Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        let (lines, seen) = read(file)?;
        *self.lock() = SecretState { lines, stamp: Some(seen) };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SecretState> {
        // The two fields are set together, so a panic elsewhere does no harm.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state by the current file, or by the last valid one.
    fn lock_current(&self) -> MutexGuard<'_, SecretState> {
        let mut state = self.lock();
        let Some(file) = &self.0.file else { return state };
        let now = fs::metadata(file).ok().map(|file| stamp(&file));
        if now != state.stamp {
            state.stamp = now;
            match read(file) {
                Ok((lines, _)) => {
                    state.lines = lines;
                    info!("read the changed cluster secret");
                }
                Err(error) => {
                    warn!(%error, "the changed cluster secret is not valid; the one before stays in use")
                }
            }
        }
        state
    }

    /// The line that is sent to other processes.
    #[must_use]
    pub fn primary(&self) -> String {
        self.lock_current().lines.first().cloned().unwrap_or_default()
    }

    /// Whether `given` is one of the lines. The time that this takes depends on lengths alone.
    pub(crate) fn matches(&self, given: &str) -> bool {
        self.lock_current()
            .lines
            .iter()
            .fold(false, |found, line| found | constant_time_eq(line.as_bytes(), given.as_bytes()))
    }
}

/// 256 random bits as hexadecimal digits.
fn generate_line() -> String {
    let (high, low): (u128, u128) = (rand::random(), rand::random());
    format!("{high:032x}{low:032x}")
}

fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    let one = if planted(Bug::SecretComparedPartly) { &one[..other.len().min(one.len())] } else { one };
    let differences = one.iter().zip(other).fold(0, |found, (a, b)| std::hint::black_box(found | (a ^ b)));
    one.len() == other.len() && differences == 0
}

fn stamp(file: &Metadata) -> Stamp {
    (file.ino(), file.mtime(), file.mtime_nsec(), file.len())
}

fn read(path: &Path) -> Result<(Vec<String>, Stamp)> {
    let failed = |error: std::io::Error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
        Error::new(kind, format!("the cluster secret in {} cannot be read", path.display())).with_source(error)
    };
    let refuse = |kind, why: &str| Err(Error::new(kind, format!("{} {why}", path.display())));
    let file = fs::metadata(path).map_err(failed)?;
    if file.mode() & 0o077 != 0 {
        return refuse(ErrorKind::Denied, "has the cluster secret, and others than its owner may read it: chmod 600");
    }
    if file.len() > MAX_FILE {
        return refuse(ErrorKind::TooLarge, "is too large for a cluster secret");
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    if lines.is_empty() || lines.iter().any(|line| !(MIN_SECRET..=MAX_PASSWORD).contains(&line.len())) {
        let why =
            format!("has no cluster secret: a line of {MIN_SECRET} to {MAX_PASSWORD} bytes, such as 64 random digits");
        return refuse(ErrorKind::Invalid, &why);
    }
    Ok((lines, stamp(&file)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_replaced_line_by_line_while_it_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        Secret::create(&file).unwrap();
        assert!(Secret::create(&file).is_err(), "one that is there stays");
        let secret = Secret::load(&file).unwrap();
        let old = secret.primary();
        assert!(
            secret.matches(&old)
                && !secret.matches(&old[1..])
                && !secret.matches("")
                && !secret.matches(&"x".repeat(old.len()))
        );
        fs::write(&file, format!("# new one first\n{}\n\n{old}\n", "n".repeat(20))).unwrap();
        assert_eq!(secret.primary(), "n".repeat(20));
        assert!(secret.matches(&old), "the old one is still believed");
        fs::write(&file, "short\n").unwrap();
        assert!(secret.matches(&old), "a file that is no good changes nothing");
        assert!(!format!("{secret:?}").contains(&old));
    }

    #[test]
    fn a_secret_that_others_may_read_or_guess_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        assert_eq!(Secret::load(&file).unwrap_err().kind(), ErrorKind::NotFound);
        Secret::create(&file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(Secret::load(&file).unwrap_err().kind(), ErrorKind::Denied);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "# nothing\n", "guess\n"] {
            fs::write(&file, text).unwrap();
            assert_eq!(Secret::load(&file).unwrap_err().kind(), ErrorKind::Invalid, "{text:?}");
        }
    }
}
