//! A backup that follows a cluster: `mortar backup --follow`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::{CommandOutput, TEST_TIMEOUT, json_lines, mortar, run, send, spawn, wait};

/// A backup that runs until it is stopped or dropped.
pub struct FollowingBackup {
    child: Child,
    dir: PathBuf,
    /// Options of `mortar restore` that read the archives.
    read_options: Vec<String>,
}

impl FollowingBackup {
    /// Begins to follow the cluster of a server with this URL, with a moment each 50 ms. The archives go to `dir`, the output and the log
    /// beside it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(url: &str, dir: &Path, options: &[&str]) -> Self {
        Self::start_by_default(url, dir, &[&["--every", "50ms"], options].concat())
    }

    /// The same with the default interval.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_by_default(url: &str, dir: &Path, options: &[&str]) -> Self {
        let mut command = mortar(&["--server", url, "--json", "--timeout", "3", "backup", "--follow"]);
        command.arg(dir).args(options);
        let beside = |extension| {
            let path = dir.with_extension(extension);
            File::options().create(true).append(true).open(path).expect("a file for the output")
        };
        command.stdout(beside("out")).stderr(beside("log"));
        Self { child: spawn(command).expect("mortar starts"), dir: dir.to_owned(), read_options: Vec::new() }
    }

    /// Reads the archives with these options of `mortar restore`.
    #[must_use]
    pub fn read_with(mut self, options: &[&str]) -> Self {
        self.read_options = options.iter().map(ToString::to_string).collect();
        self
    }

    /// What the backup has said of failures.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default()
    }

    /// What the backup has reported: each archive, and a summary when it has been stopped.
    ///
    /// # Panics
    /// If that is not JSON.
    #[must_use]
    pub fn reports(&self) -> Vec<serde_json::Value> {
        json_lines(&fs::read_to_string(self.dir.with_extension("out")).unwrap_or_default())
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// How many moments there are, and the time of the last one.
    fn moments(&self) -> Option<(u64, String)> {
        let listed = run(mortar(&["--json", "restore", "--list"]).arg(&self.dir).args(&self.read_options));
        if listed.code != 0 {
            return None;
        }
        let states = json_lines(listed.text());
        // That of an archive counts, too.
        let count = states.iter().map(|state| state["moments"].as_u64().unwrap_or(0) + 1).sum();
        Some((count, states.last()?["last"].as_str()?.to_owned()))
    }

    /// Waits for a moment that begins and ends between the call and its return; returns its time. `None` if there is none in time.
    #[must_use]
    pub fn next_moment(&self, patience: Duration) -> Option<String> {
        let until = Instant::now() + patience;
        let before = self.moments().map_or(0, |(count, _)| count);
        while Instant::now() < until {
            if let Some((count, time)) = self.moments()
                && count >= before + 2
            {
                return Some(time);
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// As [`FollowingBackup::next_moment`], where nothing fails.
    ///
    /// # Panics
    /// If there is none within a minute.
    #[must_use]
    pub fn moment(&self) -> String {
        self.next_moment(TEST_TIMEOUT).unwrap_or_else(|| panic!("no moment comes: {}", self.log()))
    }

    /// Restores the last moment into a directory.
    #[must_use]
    pub fn restore_last(&self, target: &Path) -> CommandOutput {
        run(mortar(&["restore", "--json", "--data"]).arg(target).arg(&self.dir).args(&self.read_options))
    }

    /// Restores a moment into a directory.
    #[must_use]
    pub fn restore(&self, moment: &str, target: &Path) -> CommandOutput {
        let mut command = mortar(&["restore", "--json", "--at", moment, "--data"]);
        run(command.arg(target).arg(&self.dir).args(&self.read_options))
    }

    /// Stops it, and returns its exit status.
    ///
    /// # Panics
    /// If it does not end within a minute.
    pub fn stop(&mut self) -> ExitStatus {
        send(&self.child, Signal::INT);
        wait(&mut self.child, TEST_TIMEOUT).unwrap_or_else(|| panic!("the backup does not end: {}", self.log()))
    }

    /// Whether it has ended by itself.
    ///
    /// # Panics
    /// If the process cannot be waited for.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }
}

impl Drop for FollowingBackup {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
