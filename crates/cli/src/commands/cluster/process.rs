//! Processes of this machine: finds them by number, and ends them.

use std::fs;
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
    use std::process::Command;

    use super::*;

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
