//! The Java program: where it is, and one run of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;

use super::store::{RunningStore, StoreKind};
use crate::Result;
use crate::process::{Server, find_program};
use crate::run::Run;

/// How long the program may take besides the time that it measures: loading, checking, queries that are slow on one side.
const OVERHEAD: Duration = Duration::from_secs(20 * 60);
/// The time between two looks at the memory of a server.
const MEMORY_PERIOD: Duration = Duration::from_millis(500);

/// The program, and the Java virtual machine that runs it.
pub(super) struct Program {
    java: PathBuf,
    directory: PathBuf,
}

/// What a run does.
pub(super) struct Task {
    /// What progress lines and messages call it.
    pub(super) title: String,
    pub(super) workload: &'static str,
    pub(super) threads: usize,
    /// How long each point is measured.
    pub(super) duration: Duration,
    /// Other options of the program.
    pub(super) options: Vec<String>,
}

/// What a run has measured.
#[derive(Debug, Deserialize)]
pub(super) struct Measured {
    numbers: BTreeMap<String, f64>,
    /// Versions and settings.
    pub(super) notes: Vec<String>,
    /// Where the time of operations goes.
    pub(super) profile: Vec<String>,
}

impl Measured {
    /// A value by its name.
    pub(super) fn value(&self, name: &str) -> Result<f64> {
        self.numbers.get(name).copied().ok_or_else(|| format!("the Java program does not print {name}").into())
    }
}

impl Program {
    /// Finds the program beside this one.
    pub(super) fn find() -> Result<Self> {
        let target = std::env::current_exe()?;
        let directory = target.ancestors().nth(2).unwrap_or(Path::new("/")).join("java/mortar-bench");
        if !directory.join("sides").is_dir() {
            return Err(format!("{} is missing: script/bench java builds it", directory.display()).into());
        }
        let java = match std::env::var_os("JAVA_HOME") {
            Some(home) => PathBuf::from(home).join("bin/java"),
            None => find_program("java")?,
        };
        Ok(Self { java, directory })
    }

    /// Starts a store and applies a workload to it.
    pub(super) fn run(&self, run: &Run, store: StoreKind, task: &Task) -> Result<Measured> {
        let running = store.start(run)?;
        let empty = running.bytes_on_disk()?;
        let log = running.directory().join("java.log");
        let mut child = self.spawn(store, &running, task, &log)?;
        let ended = wait(&mut child, running.server(), task.duration * 20 + OVERHEAD);
        let failed = |why: String| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("{why}\n{}", lines[lines.len().saturating_sub(40)..].join("\n"))
        };
        let server_kib = match ended {
            Ok(server_kib) => server_kib,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(error.to_string()).into());
            }
        };
        let mut line = String::new();
        if let Some(mut output) = child.stdout.take() {
            output.read_to_string(&mut line)?;
        }
        let status = child.wait()?;
        if !status.success() {
            return Err(failed(format!("the Java program ended with {status}")).into());
        }
        let mut measured: Measured = serde_json::from_str(&line)
            .map_err(|error| failed(format!("the Java program printed {line:?}: {error}")))?;
        let disk = running.bytes_on_disk()?.saturating_sub(empty) as f64;
        measured.numbers.insert("server_mib".to_owned(), server_kib as f64 / 1024.0);
        measured.numbers.insert("disk_mib".to_owned(), disk / f64::from(1 << 20));
        if let Ok(objects) = measured.value("stored_objects") {
            measured.numbers.insert("disk_bytes_per_object".to_owned(), disk / objects);
        }
        Ok(measured)
    }

    fn spawn(&self, store: StoreKind, running: &RunningStore, task: &Task, log: &Path) -> Result<Child> {
        let class_path: Vec<String> =
            store.class_path().iter().map(|part| self.directory.join(part).display().to_string()).collect();
        let mut command = Command::new(&self.java);
        command.args(store.virtual_machine()).args(["-cp", &class_path.join(":"), "io.mortar.bench.Main"]);
        command.args(["--side", store.side(), "--url", &store.url(running)?, "--workload", task.workload]);
        command.args(["--threads", &task.threads.to_string(), "--seconds", &task.duration.as_secs_f64().to_string()]);
        if let Some(server) = running.server() {
            command.args(["--server-process", &server.process().to_string()]);
        }
        command.args(&task.options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(log)?);
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        unsafe {
            // The program ends even if the benchmark is killed.
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        Ok(command.spawn().map_err(|error| format!("{} does not start: {error}", self.java.display()))?)
    }
}

/// Waits until the program has ended. Returns the largest memory of the server meanwhile, in KiB.
fn wait(child: &mut Child, server: Option<&Server>, limit: Duration) -> Result<u64> {
    let (begun, mut most, mut looked) = (Instant::now(), 0, Instant::now());
    while child.try_wait()?.is_none() {
        if begun.elapsed() > limit {
            return Err(format!("the Java program has not ended after {} s", limit.as_secs()).into());
        }
        if let Some(server) = server.filter(|_| looked.elapsed() > MEMORY_PERIOD) {
            most = most.max(server.proportional_memory()?);
            looked = Instant::now();
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_value_is_an_error_with_its_name() {
        let line = r#"{"numbers":{"access_ns":1.5},"notes":["Java 17"],"profile":[]}"#;
        let measured: Measured = serde_json::from_str(line).unwrap();
        assert_eq!(measured.value("access_ns").unwrap(), 1.5);
        assert!(measured.value("lookups_per_s").unwrap_err().to_string().contains("lookups_per_s"));
    }
}
