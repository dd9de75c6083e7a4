//! Processes of this machine: finds them by number, and ends them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time;

/// How long a process may take to end cleanly.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long it may take to end after it was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often that is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process and its start time, because numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// In ticks since the machine was booted.
    started: u64,
}

impl Process {
    /// The process with this number, if there is one.
    pub(super) fn find(pid: u32) -> Option<Self> {
        state_of(pid).map(|(_, started)| Self { pid, started })
    }

    /// Whether it is running. A zombie is not.
    pub(super) fn is_running(&self) -> bool {
        state_of(self.pid).is_some_and(|(state, started)| started == self.started && !matches!(state, 'Z' | 'X'))
    }

    /// Whether it has this file open, by whatever path.
    pub(super) fn has_open(&self, file: &Path) -> bool {
        let Ok(wanted) = fs::metadata(file) else { return false };
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let mut open = open.filter_map(|descriptor| fs::metadata(descriptor.path()).ok());
        open.any(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    }

    /// Whether its command line names this file as that of its settings.
    pub(super) fn is_configured_by(&self, file: &Path) -> bool {
        let Ok(wanted) = fs::canonicalize(file) else { return false };
        let current = Path::new("/proc").join(self.pid.to_string()).join("cwd");
        let words = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| {
            let path = word.strip_prefix(b"--config=").unwrap_or(word);
            fs::canonicalize(current.join(OsStr::from_bytes(path))).is_ok_and(|found| found == wanted)
        })
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_running()) {
            // It may have ended in this moment.
            let _ = kill_process(pid, signal);
        }
    }

    async fn wait_gone(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.is_running() {
            if Instant::now() > until {
                return false;
            }
            time::sleep(POLL_INTERVAL).await;
        }
        true
    }
}

/// Ends processes cleanly, or kills them if that takes too long. Returns those that were killed.
pub(super) async fn end(processes: &[Process]) -> Vec<Process> {
    end_within(processes, SHUTDOWN_TIMEOUT).await
}

/// As [`end`], with another time limit.
pub(super) async fn end_within(processes: &[Process], patience: Duration) -> Vec<Process> {
    for process in processes {
        process.signal(Signal::TERM);
        // A stopped process (SIGSTOP) handles no signal.
        process.signal(Signal::CONT);
    }
    let until = Instant::now() + patience;
    let mut killed = Vec::new();
    for process in processes {
        if !process.wait_gone(until.saturating_duration_since(Instant::now())).await {
            process.signal(Signal::KILL);
            killed.push(*process);
        }
    }
    for process in &killed {
        process.wait_gone(KILL_TIMEOUT).await;
    }
    killed
}

/// The state of a process, and its start time, from /proc.
fn state_of(pid: u32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // The twenty-second field in total.
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn process_is_known_by_its_open_files_and_by_its_settings() {
        let dir = tempfile::tempdir().unwrap();
        let [file, copy] = ["lock", "copy"].map(|name| dir.path().join(name));
        [&file, &copy].into_iter().for_each(|path| fs::write(path, "1").unwrap());
        let own = Process::find(std::process::id()).unwrap();
        assert!(!own.has_open(&file));
        let _open = fs::File::open(&file).unwrap();
        assert!(own.has_open(&file) && !own.has_open(&copy));
        // A path of the command line may be relative to the directory of the process.
        for word in ["./lock", "--config=lock", file.to_str().unwrap()] {
            let mut child = Command::new("sh");
            child.args(["-c", "echo begun; read line", "sh", word]).current_dir(dir.path());
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            // Its command line is there when it says so.
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
            let process = Process::find(child.id()).unwrap();
            assert!(process.is_configured_by(&file) && !process.is_configured_by(&copy), "{word}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[tokio::test]
    async fn process_is_found_and_ended() {
        let own = Process::find(std::process::id()).unwrap();
        assert!(own.is_running());
        assert!(!Process { started: own.started + 1, ..own }.is_running());
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::find(child.id()).unwrap();
        assert!(end(&[process]).await.is_empty());
        assert!(!process.is_running());
        assert!(!child.wait().unwrap().success());
    }
}
