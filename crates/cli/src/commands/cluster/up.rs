//! `mortar cluster up`: starts the processes of a cluster, and ends them with itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use client::{AdminClient, AdminOptions, ErrorKind};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time;
use wire::tasks;

use super::Up;
use super::layout::{ClusterSize, Layout, ProcessFiles};
use super::overview::{self, ProcessState, RunningProcesses};
use super::process::Process;
use crate::commands::node;
use crate::failure::{Failure, Result};
use crate::output::{self, Output, Report};
use crate::serving::Signals;
use crate::settings::ProcessRole;

/// Time limit until all processes are healthy.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// After this time without all of them healthy, the command says what it waits for.
const SILENCE: Duration = Duration::from_secs(3);
/// How long bricks of other directories are waited for.
const OUTSIDE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The space of a new cluster.
const MAIN_SPACE: &str = "main";
/// Bytes of the end of a log that are shown when its process has failed.
const LOG_TAIL_BYTES: usize = 2000;

/// The report of a cluster whose processes are all healthy.
#[derive(Serialize)]
struct Ready {
    /// The URL for clients, with all peer servers.
    url: String,
    data: String,
    /// The process that runs the cluster.
    pid: u32,
    processes: Vec<StartedProcess>,
}

#[derive(Clone, Serialize)]
struct StartedProcess {
    name: String,
    role: ProcessRole,
    pid: u32,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    config: String,
    log: String,
}

impl Report for Ready {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "A cluster runs in {}. Ctrl-C ends it.\n", self.data)?;
        for StartedProcess { name, pid, address, .. } in &self.processes {
            writeln!(out, "  {name:<10} {pid:>8}  {address}")?;
        }
        writeln!(out, "\n  {}\n", self.url)?;
        writeln!(out, "In another terminal:\n")?;
        writeln!(out, "  export MORTAR_URL={}", self.url)?;
        writeln!(out, "  echo hello | mortar object put /greeting -")?;
        writeln!(out, "  mortar object get /greeting")?;
        writeln!(out, "  mortar cluster status --data {}", self.data)
    }
}

pub(super) async fn run(args: &Up, output: &mut Output) -> Result {
    let mut signals = Signals::listen()?;
    let wanted = ClusterSize { bricks: args.bricks, peers: args.peers, memory: args.memory };
    refuse_second(&args.at.data)?;
    let layout = Layout::prepare(&args.at.data, wanted)?;
    let mut cluster = RunningCluster {
        running: RunningProcesses { up: Process::find(std::process::id()), ..RunningProcesses::default() },
        layout,
        io_threads: args.io_threads,
    };
    let mut children = JoinSet::new();
    let ran = tokio::select! {
        ran = cluster.run(&mut children, output) => ran,
        () = signals.next() => Ok(()),
    };
    // A second signal ends without waiting.
    let killed = tokio::select! {
        ended = overview::end_all(&cluster.layout) => ended,
        () = signals.next() => {
            children.abort_all();
            return Err(Failure::interrupted("stopped by a second signal; `mortar cluster down` ends what still runs"));
        }
    };
    ran?;
    match killed {
        0 => Ok(()),
        killed => Err(Failure::new(format!("{killed} processes were killed; they recover at their next start"))),
    }
}

/// Refuses to run a cluster that another process runs.
fn refuse_second(dir: &Path) -> Result {
    let Ok(layout) = Layout::read(dir) else { return Ok(()) };
    match RunningProcesses::read(&layout).up.filter(Process::is_running) {
        Some(up) => {
            Err(Failure::conflict(format!("the cluster in {} is already run by process {}", dir.display(), up.pid))
                .hint("`mortar cluster status` shows it, `mortar cluster down` ends it."))
        }
        None => Ok(()),
    }
}

/// A cluster that this process runs.
struct RunningCluster {
    layout: Layout,
    running: RunningProcesses,
    /// The I/O threads of each process, if not what its settings say.
    io_threads: Option<u16>,
}

impl RunningCluster {
    /// Starts all processes, and reports when one ends. Returns only if the cluster cannot be started.
    async fn run(&mut self, children: &mut JoinSet<(ProcessFiles, String)>, output: &mut Output) -> Result {
        let until = Instant::now() + START_TIMEOUT;
        let mut started = Vec::new();
        for role in [ProcessRole::Meta, ProcessRole::Brick, ProcessRole::Peer] {
            if role == ProcessRole::Brick {
                self.skip_removed(output.json()).await;
            }
            let mut starting = JoinSet::new();
            for part in self.layout.with_role(role).cloned().collect::<Vec<_>>() {
                let (child, ready) = self.start(&part)?;
                tasks::spawn_in(children, wait_exit(part.clone(), child));
                // New processes start one after another, so that `brick-1` becomes brick 1 of the cluster.
                let is_new = !part.has_run();
                tasks::spawn_in(&mut starting, async move { (ready.await, part) });
                if is_new {
                    self.wait_ready(&mut starting, &mut started, until).await?;
                }
            }
            self.wait_ready(&mut starting, &mut started, until).await?;
            if role == ProcessRole::Brick {
                self.make_space().await?;
            }
        }
        self.wait_healthy(until, output.json()).await?;
        let place = |name: &str| self.layout.processes.iter().position(|part| part.name == name);
        started.sort_by_key(|one| place(&one.name));
        let ready = Ready {
            url: self.layout.url(),
            data: self.layout.dir.display().to_string(),
            pid: std::process::id(),
            processes: started,
        };
        output.announce(&ready);
        while let Some(ended) = children.join_next().await {
            if let Ok((part, how)) = ended {
                let message = format!(
                    "{} ended ({how}); start it again with: mortar node --config {}",
                    part.name,
                    part.config.display()
                );
                output::warn(output.json(), "ended", &message);
            }
        }
        // All processes have ended, and others may have been started instead.
        std::future::pending().await
    }

    /// Waits until the processes that are starting are ready.
    async fn wait_ready(
        &mut self,
        starting: &mut JoinSet<(Option<node::Ready>, ProcessFiles)>,
        started: &mut Vec<StartedProcess>,
        until: Instant,
    ) -> Result {
        while let Some(one) = starting.join_next().await {
            match one {
                Ok((Some(ready), part)) if Instant::now() <= until => started.push(self.on_ready(&part.name, &ready)?),
                Ok((_, part)) => return Err(start_failure(&part)),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Skips bricks that were removed from the cluster, because they would be refused.
    async fn skip_removed(&mut self, json: bool) {
        // If the catalogue cannot be read, these bricks report the problem themselves.
        let removed = overview::CatalogMembers::fetch(&self.layout).await.unwrap_or_default().removed;
        for part in self.layout.processes.iter().filter(|part| removed.contains(&part.name)) {
            let message = format!(
                "{} was removed from the cluster and is not started; delete {} to end this warning",
                part.name,
                part.config.display()
            );
            output::warn(json, "removed", &message);
        }
        self.layout.processes.retain(|part| !removed.contains(&part.name));
    }

    /// Records the addresses that a process has chosen at its first start.
    fn on_ready(&mut self, name: &str, ready: &node::Ready) -> Result<StartedProcess> {
        let part = self.layout.processes.iter_mut().find(|part| part.name == name);
        let part = part.ok_or_else(|| Failure::new(format!("{name} is not a process of this cluster")))?;
        part.set_addresses(&ready.addresses, ready.http.as_deref())?;
        Ok(StartedProcess {
            name: part.name.clone(),
            role: part.role,
            pid: ready.pid,
            address: part.address.to_string(),
            http: part.http.clone(),
            config: part.config.display().to_string(),
            log: part.log.display().to_string(),
        })
    }

    /// Starts a process. The future returns its report when it is ready; `None` if it ends before.
    fn start(
        &mut self,
        part: &ProcessFiles,
    ) -> Result<(Child, impl Future<Output = Option<node::Ready>> + Send + use<>)> {
        if let Some(meta) = self.layout.with_role(ProcessRole::Meta).next().filter(|meta| meta.name != part.name) {
            part.set_meta(&meta.address)?;
        }
        let cannot = |what: &Path, error: io::Error| Failure::file(format!("cannot write {}", what.display()), &error);
        let log =
            File::options().create(true).append(true).mode(0o600).open(&part.log).map_err(|e| cannot(&part.log, e))?;
        let program = std::env::current_exe().map_err(|e| Failure::file("cannot find this program", &e))?;
        let mut command = Command::new(program);
        command.arg("node").arg("--config").arg(&part.config).arg("--json");
        if let Some(count) = self.io_threads {
            command.arg("--io-threads").arg(count.to_string());
        }
        // In its own process group, so that Ctrl-C does not end all processes at once and out of order.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn().map_err(|e| Failure::file(format!("cannot start {}", part.name), &e))?;
        if let Some(process) = child.id().and_then(Process::find) {
            self.running.processes.insert(part.name.clone(), process);
            self.running.write(&self.layout)?;
        }
        let stdout = child.stdout.take();
        let ready = async move {
            let mut line = String::new();
            let read = time::timeout(START_TIMEOUT, BufReader::new(stdout?).read_line(&mut line)).await;
            read.ok()?.ok()?;
            serde_json::from_str(&line).ok()
        };
        Ok((child, ready))
    }

    /// Creates the space of a new cluster.
    async fn make_space(&self) -> Result {
        let Some(meta) = self.layout.with_role(ProcessRole::Meta).next() else { return Ok(()) };
        let mut options = AdminOptions::default();
        options.credentials = self.layout.credentials();
        let client = AdminClient::connect_with(&meta.url(), options).await?;
        if client.spaces().await?.iter().any(|space| space.name == MAIN_SPACE) {
            return Ok(());
        }
        match client.create_space(MAIN_SPACE).await {
            Err(error) if error.kind() != ErrorKind::Exists => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Waits until all processes are healthy; for bricks of other directories only a short time.
    async fn wait_healthy(&self, until: Instant, json: bool) -> Result {
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            let shown = overview::cluster_status(&self.layout).await;
            let absent = overview::absent_outside_bricks(&shown);
            if let Some(absent) = absent.filter(|_| begun.elapsed() >= OUTSIDE_TIMEOUT) {
                let message = format!(
                    "{} cannot be reached, and has no files in {}: the other processes serve without it. What it keeps is unavailable, and \
                     spaces of it with the policy fail_stop are stopped, until it is started",
                    absent.join(" and "),
                    self.layout.dir.display()
                );
                output::warn(json, "unreachable", &message);
                return Ok(());
            }
            let Some(ill) =
                shown.iter().zip(&self.layout.processes).find(|(one, _)| one.state != ProcessState::Healthy)
            else {
                return Ok(());
            };
            let what = ill.0.health_problem.clone().unwrap_or_else(|| "it does not answer".to_owned());
            if !is_told && begun.elapsed() >= SILENCE {
                is_told = true;
                output::warn(json, "waits", &format!("waiting for {}: {what}", ill.1.name));
            }
            if Instant::now() > until || ill.0.state == ProcessState::Down {
                return Err(Failure::new(format!("{} is not healthy: {what}", ill.1.name))
                    .hint(format!("Its log is {}.", ill.1.log.display())));
            }
            time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits until a process has ended, and describes its end.
async fn wait_exit(part: ProcessFiles, mut child: Child) -> (ProcessFiles, String) {
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    (part, how)
}

/// The failure of a process that has ended before it was ready, with the end of its log.
fn start_failure(part: &ProcessFiles) -> Failure {
    let log = std::fs::read(&part.log).unwrap_or_default();
    let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned();
    let last: Vec<&str> = tail.trim_end().lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Failure::new(format!("{} did not start:\n{}", part.name, last.join("\n")))
        .hint(format!("Its log is {}.", part.log.display()))
}
