//! The machine on which a benchmark runs.

use std::fs;
use std::path::Path;

/// Facts about the machine for reports.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    /// The file system of the benchmark's data.
    pub(crate) file_system: String,
}

impl Machine {
    /// Describes this machine; unreadable facts are "unknown".
    pub(crate) fn describe(data: &Path) -> Self {
        let first = |path: &str, key: &str| {
            let text = fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = first("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            cpu: first("/proc/cpuinfo", "model name").unwrap_or_else(unknown_text),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory.unwrap_or(0) / 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown_text(), |s| s.trim().into()),
            file_system: file_system(data).unwrap_or_else(unknown_text),
        }
    }

    /// All facts in one line.
    pub(crate) fn line(&self) -> String {
        format!(
            "{}, {} cores, {} MiB memory, Linux {}, {}",
            self.cpu, self.cores, self.memory_mib, self.kernel, self.file_system
        )
    }
}

fn unknown_text() -> String {
    "unknown".to_owned()
}

/// The type and device of the mount that holds `path`: the longest mount point that is a prefix of it.
fn file_system(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
            path.starts_with(point).then(|| (point.len(), format!("{kind} on {device}")))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, text)| text)
}
