//! `mortar cluster status` and `mortar cluster down`: the state of a cluster, and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use client::{AdminClient, AdminOptions, Credentials, Status};
use meta::catalog::{BrickEntry, MemberAnswer, MemberRequest, PeerEntry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use wire::tasks;
use wire::transport::Address;

use super::layout::{InvalidFile, Layout, ProcessFiles, url_of};
use super::process::{self, Process};
use crate::commands::member;
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::Report;
use crate::settings::ProcessRole;

/// Timeout of a status request.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a connection to a process that has not answered such a request.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The name of processes without files in the directory.
const OUTSIDE: &str = "outside";

/// The running processes, as `up` records them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RunningProcesses {
    /// The directory that the record is of, by its device and inode: the processes in a copied record are those of another directory.
    #[serde(default)]
    pub(super) directory: Option<(u64, u64)>,
    /// The process of `mortar cluster up`.
    pub(super) up: Option<Process>,
    /// The processes that it has started, by name.
    pub(super) processes: BTreeMap<String, Process>,
    /// Number of processes that were killed.
    #[serde(default)]
    pub(super) killed: usize,
}

impl RunningProcesses {
    /// The recorded processes; none if the cluster is not running, or if the record is that of another directory.
    pub(super) fn read(layout: &Layout) -> Self {
        let text = fs::read_to_string(layout.running_file()).unwrap_or_default();
        let recorded: Self = serde_json::from_str(&text).unwrap_or_default();
        let is_copied = recorded.directory.is_some() && recorded.directory != number_of_directory(&layout.dir);
        if is_copied { Self::default() } else { recorded }
    }

    pub(super) fn write(&self, layout: &Layout) -> Result {
        let path = layout.running_file();
        let recorded = Self { directory: number_of_directory(&layout.dir), ..self.clone() };
        let text =
            serde_json::to_string_pretty(&recorded).map_err(|e| Failure::new(format!("cannot write JSON: {e}")))?;
        super::layout::write_private(&path, &(text + "\n"))
            .map_err(|e| Failure::file(format!("cannot write {}", path.display()), &e))
    }
}

/// The device and the inode of a directory.
fn number_of_directory(dir: &Path) -> Option<(u64, u64)> {
    fs::metadata(dir).ok().map(|about| (about.dev(), about.ino()))
}

/// The state of a process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProcessState {
    /// It answers and reports no problem.
    Healthy,
    /// It answers and reports a problem.
    Unhealthy,
    /// It runs and does not answer.
    Unresponsive,
    /// It does not run.
    Down,
    /// It does not run, and was removed from the cluster: `mortar brick remove`.
    Removed,
}

impl ProcessState {
    fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Unresponsive => "unresponsive",
            Self::Down => "down",
            Self::Removed => "removed",
        }
    }
}

/// The status of a process of a cluster.
#[derive(Debug, Serialize)]
pub(super) struct ProcessStatus {
    /// Name of its files, or `outside` without files in the directory.
    name: String,
    /// Its number in the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    role: ProcessRole,
    pub(super) state: ProcessState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    /// The reported problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) health_problem: Option<String>,
    /// The settings file, with which it can be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// Counters and gauges by name, as in `/metrics`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    metrics: Map<String, Value>,
}

impl Report for ProcessStatus {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let pid = self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let number = self.number.map(|number| format!("{} {number}", self.role.name())).unwrap_or_default();
        write!(out, "{:<10} {number:<9} {:<8} {pid:>8}  {:<22}", self.name, self.state.name(), self.address)?;
        let metric = |name: &str| self.metrics.get(name).and_then(Value::as_u64);
        if let Some(epoch) = metric("placement_epoch") {
            write!(out, " epoch {epoch}")?;
        }
        if let Some(committed) = metric("transactions_committed_total") {
            let conflicts = metric("transactions_conflicts_total").unwrap_or_default();
            write!(out, ", {committed} committed, {conflicts} conflicts")?;
        }
        if let Some(nodes) = metric("nodes_served") {
            let (parts, conflicts) = (metric("parts_committed_total"), metric("parts_conflicts_total"));
            let (parts, conflicts) = (parts.unwrap_or_default(), conflicts.unwrap_or_default());
            write!(out, ", {nodes} nodes, {parts} parts committed, {conflicts} conflicts")?;
            if let Some(coming) = metric("nodes_moving_in").filter(|coming| *coming > 0) {
                write!(out, ", {coming} coming")?;
            }
        }
        if let Some(health_problem) = &self.health_problem {
            write!(out, "  {health_problem}")?;
        }
        match (self.state, &self.config) {
            (ProcessState::Down, Some(config)) => writeln!(out, "  start it: mortar node --config {config}"),
            (ProcessState::Removed, Some(config)) => {
                writeln!(out, "  removed from the cluster; delete {config} to hide it")
            }
            _ => writeln!(out),
        }
    }
}

#[derive(Serialize)]
struct ShutdownReport {
    /// How many processes were ended.
    ended: usize,
    /// How many of them had to be killed.
    killed: usize,
}

impl Report for ShutdownReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "ended {}", crate::output::pluralize(self.ended as u64, "process", "processes"))?;
        if self.killed > 0 {
            write!(out, ", {} of them killed", self.killed)?;
        }
        writeln!(out)
    }
}

/// Requests the status of a process.
async fn fetch_status(url: &str, credentials: Option<Credentials>) -> client::Result<Status> {
    let asking = async { connect(url, credentials).await?.status().await };
    tokio::time::timeout(STATUS_TIMEOUT, asking)
        .await
        .unwrap_or_else(|_| Err(client::Error::new(client::ErrorKind::Unavailable, "it does not answer")))
}

async fn connect(url: &str, credentials: Option<Credentials>) -> client::Result<AdminClient> {
    let mut options = AdminOptions::default();
    options.credentials = credentials;
    options.timeout = STATUS_TIMEOUT;
    options.retry = STATUS_TIMEOUT;
    options.agent = concat!("mortar ", env!("CARGO_PKG_VERSION")).to_owned();
    AdminClient::connect_with(url, options).await
}

/// Whether a process listens at an address. The system accepts connections for one that does not answer, because it is stopped, for example.
async fn listens(address: &Address) -> bool {
    let connect = async {
        match address {
            Address::Tcp(host) | Address::Tls(host) => TcpStream::connect(host).await.is_ok(),
            Address::Unix(path) => UnixStream::connect(path).await.is_ok(),
            Address::InProcess(_) => false,
        }
    };
    tokio::time::timeout(CONNECT_TIMEOUT, connect).await.unwrap_or(false)
}

/// The status of all processes of a cluster: those of its directory, then others.
pub(super) async fn cluster_status(layout: &Layout) -> Vec<ProcessStatus> {
    let running = RunningProcesses::read(layout);
    let mut asked = JoinSet::new();
    for (at, part) in layout.processes.iter().cloned().enumerate() {
        let known = running.processes.get(&part.name).copied();
        let credentials = layout.credentials();
        tasks::spawn_in(&mut asked, async move { (at, probe(&part, known, credentials).await) });
    }
    // If the meta-server does not answer, processes that are down have no numbers and may return.
    let (mut shown, members) = tokio::join!(asked.join_all(), CatalogMembers::fetch(layout));
    let members = members.unwrap_or_default();
    shown.sort_by_key(|(at, _)| *at);
    let mut shown: Vec<ProcessStatus> = shown.into_iter().map(|(_, shown)| shown).collect();
    for one in &mut shown {
        let reported = one.metrics.get("brick_number").and_then(Value::as_u64);
        let reported = reported.and_then(|number| u32::try_from(number).ok());
        one.number = reported.or_else(|| members.numbers.get(&one.name).copied());
        if one.state == ProcessState::Down && members.removed.contains(&one.name) {
            one.state = ProcessState::Removed;
        }
    }
    shown.extend(layout.invalid.iter().map(|invalid| ProcessStatus::of_invalid(invalid, &running)));
    for found in probe_all(members.outside, layout).await {
        let own = found.pid.and_then(|pid| name_of_pid(pid, layout, &running));
        match own.and_then(|name| shown.iter_mut().find(|one| one.name == name)) {
            Some(one) => one.merge_running_elsewhere(found),
            None => shown.push(found),
        }
    }
    shown
}

/// Bricks without files in the directory that cannot be reached, if nothing else keeps the cluster from being healthy: its own processes are
/// healthy, except for peer servers, which report such bricks.
pub(super) fn absent_outside_bricks(shown: &[ProcessStatus]) -> Option<Vec<String>> {
    let (outside, own): (Vec<_>, Vec<_>) = shown.iter().partition(|one| one.name == OUTSIDE);
    let is_fine = |one: &&ProcessStatus| match one.state {
        ProcessState::Healthy | ProcessState::Removed => true,
        ProcessState::Unhealthy => one.role == ProcessRole::Peer,
        ProcessState::Unresponsive | ProcessState::Down => false,
    };
    let absent = outside.iter().filter(|one| {
        one.role == ProcessRole::Brick && matches!(one.state, ProcessState::Down | ProcessState::Unresponsive)
    });
    let absent: Vec<String> =
        absent.map(|one| format!("brick {} at {}", one.number.unwrap_or_default(), one.address)).collect();
    (!absent.is_empty() && own.iter().all(is_fine)).then_some(absent)
}

/// The process of the directory with this number, by the record of `up` and by the lock of its data.
fn name_of_pid(pid: u32, layout: &Layout, running: &RunningProcesses) -> Option<String> {
    let mut started = running.processes.iter();
    let started = started.find(|(_, process)| process.pid == pid && process.is_running()).map(|(name, _)| name.clone());
    started
        .or_else(|| layout.processes.iter().find(|part| part.lock_owner() == Some(pid)).map(|part| part.name.clone()))
}

impl ProcessStatus {
    /// A process with a damaged file: its address is unknown, so it cannot be reached.
    fn of_invalid(invalid: &InvalidFile, running: &RunningProcesses) -> Self {
        let pid =
            running.processes.get(&invalid.name).filter(|process| process.is_running()).map(|process| process.pid);
        let state = if pid.is_some() { ProcessState::Unresponsive } else { ProcessState::Down };
        let health_problem = Some(invalid.failure.message().to_owned());
        let how = ProbeResult { state, pid, health_problem, metrics: Map::new() };
        Self {
            config: Some(invalid.config.display().to_string()),
            log: Some(invalid.log.display().to_string()),
            ..how.into_status(invalid.name.clone(), invalid.role, "-".to_owned())
        }
    }

    /// Handles a process that listens at another address than that in its file.
    fn merge_running_elsewhere(&mut self, found: Self) {
        let Self { number, state, pid, address, metrics, health_problem, .. } = found;
        let elsewhere = format!("it listens at {address}; its file has {}", self.address);
        let is_damaged = self.health_problem.is_some();
        let problem = self.health_problem.take().or(health_problem).unwrap_or(elsewhere);
        self.state = if is_damaged { ProcessState::Unhealthy } else { state };
        (self.number, self.pid, self.address, self.metrics) = (number, pid, address, metrics);
        self.health_problem = Some(problem);
    }
}

/// The status of processes without files here, in their order.
async fn probe_all(outside: impl IntoIterator<Item = CatalogMember>, layout: &Layout) -> Vec<ProcessStatus> {
    let mut asked = JoinSet::new();
    for member in outside {
        tasks::spawn_in(&mut asked, member.probe(layout.credentials()));
    }
    let mut shown = asked.join_all().await;
    shown.sort_by_key(|one| (one.role == ProcessRole::Peer, one.number));
    shown
}

/// The members in the catalogue: those of a directory, and others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CatalogMembers {
    /// The numbers of bricks and peer servers, by name.
    numbers: BTreeMap<String, u32>,
    /// The names of bricks that were started before and are not in the cluster any more.
    pub(super) removed: BTreeSet<String>,
    /// Members without a file in the directory.
    outside: Vec<CatalogMember>,
}

/// A brick or a peer server in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CatalogMember {
    role: ProcessRole,
    number: u32,
    addresses: Vec<String>,
    alive: bool,
}

impl CatalogMembers {
    pub(super) async fn fetch(layout: &Layout) -> Result<Self> {
        let Some(meta) = layout.with_role(ProcessRole::Meta).next() else { return Ok(Self::default()) };
        let client = connect(&meta.url(), layout.credentials()).await?;
        let mut members = Self::of(&layout.processes, member::ask(&client, &MemberRequest::List).await?);
        if !members.removed.is_empty() && !members.outside_bricks_confirmed(layout).await {
            members.removed.clear();
        }
        Ok(members)
    }

    /// Whether bricks without files here confirm their numbers: the catalogue's list may be some seconds old, and an
    /// unreachable brick may be one of this directory with another address.
    async fn outside_bricks_confirmed(&self, layout: &Layout) -> bool {
        let bricks = self.outside.iter().filter(|member| member.role == ProcessRole::Brick).cloned();
        let says_so =
            |one: &ProcessStatus| one.metrics.get("brick_number").and_then(Value::as_u64) == one.number.map(u64::from);
        probe_all(bricks, layout).await.iter().all(says_so)
    }

    /// Matches processes with members by their addresses.
    fn of(parts: &[ProcessFiles], known: MemberAnswer) -> Self {
        let bricks = known.bricks.into_iter().map(|brick| {
            let BrickEntry { brick, addresses, alive, .. } = brick;
            CatalogMember { role: ProcessRole::Brick, number: brick.0, addresses, alive }
        });
        let peers = known.peers.into_iter().map(|peer| {
            let PeerEntry { peer, addresses, alive } = peer;
            CatalogMember { role: ProcessRole::Peer, number: peer.0, addresses, alive }
        });
        let mut members: Vec<CatalogMember> = bricks.chain(peers).collect();
        // A brick in memory is a new one after each start: of several at one address, the one that is alive counts, or
        // else the last.
        members.sort_by_key(|member| (member.alive, member.number));
        let is_at = |member: &CatalogMember, part: &ProcessFiles| {
            member.role == part.role && member.addresses.iter().any(|address| part.advertised.contains(address))
        };
        let numbers = parts.iter().filter_map(|part| {
            let member = members.iter().rev().find(|member| is_at(member, part))?;
            Some((part.name.clone(), member.number))
        });
        let numbers: BTreeMap<String, u32> = numbers.collect();
        let mut outside = members.clone();
        outside.retain(|member| !parts.iter().any(|part| is_at(member, part)));
        // An unreachable brick might be one of this directory whose address has changed. A catalogue without members was
        // lost, and proves nothing.
        let is_sure = members.iter().any(|member| member.role == ProcessRole::Brick)
            && outside.iter().all(|member| member.role != ProcessRole::Brick || member.alive);
        let is_removed = |part: &&ProcessFiles| {
            part.role == ProcessRole::Brick
                && part.has_run()
                && !part.runs_elsewhere()
                && !numbers.contains_key(&part.name)
        };
        let removed = parts.iter().filter(|part| is_sure && is_removed(part)).map(|part| part.name.clone());
        let removed = removed.collect();
        // A peer server that is not alive has no data, so it is not shown.
        outside.retain(|member| member.role == ProcessRole::Brick || member.alive);
        outside.sort_by_key(|member| (member.role == ProcessRole::Peer, member.number));
        Self { numbers, removed, outside }
    }
}

impl CatalogMember {
    /// The status of a member without files here.
    async fn probe(self, credentials: Option<Credentials>) -> ProcessStatus {
        let Self { role, number, addresses, alive } = self;
        let address = addresses.into_iter().next().unwrap_or_default();
        let mut how = match address.parse() {
            Ok(address) => ProbeResult::fetch(address, credentials, None).await,
            Err(error) => ProbeResult::of(Err(error), None),
        };
        if alive && how.state == ProcessState::Down {
            how.state = ProcessState::Unresponsive;
        }
        ProcessStatus { number: Some(number), ..how.into_status(OUTSIDE.to_owned(), role, address) }
    }
}

/// The result of a status request.
struct ProbeResult {
    state: ProcessState,
    pid: Option<u32>,
    health_problem: Option<String>,
    metrics: Map<String, Value>,
}

impl ProbeResult {
    /// Requests the status of the process at an address. `there` is its number, if it is known to run.
    async fn fetch(address: Address, credentials: Option<Credentials>, there: Option<u32>) -> Self {
        let asked = fetch_status(&url_of(address.clone()), credentials).await;
        let mut found = Self::of(asked, there);
        if found.state == ProcessState::Down && listens(&address).await {
            found.state = ProcessState::Unresponsive;
        }
        found
    }

    /// The result of a request. `there` is the number of the process, if it is known to run.
    fn of(asked: client::Result<Status>, there: Option<u32>) -> Self {
        let (state, pid, health_problem, metrics) = match asked {
            Ok(status) => {
                let state =
                    if status.health_problem.is_some() { ProcessState::Unhealthy } else { ProcessState::Healthy };
                let metrics = status.metrics.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
                (state, Some(status.process), status.health_problem, metrics)
            }
            // The process answers, even if with an error.
            Err(error) if error.kind() != client::ErrorKind::Unavailable => {
                (ProcessState::Unhealthy, there, Some(error.to_string()), Map::new())
            }
            Err(_) if there.is_some() => (ProcessState::Unresponsive, there, None, Map::new()),
            Err(_) => (ProcessState::Down, None, None, Map::new()),
        };
        Self { state, pid, health_problem, metrics }
    }

    fn into_status(self, name: String, role: ProcessRole, address: String) -> ProcessStatus {
        let Self { state, pid, health_problem, metrics } = self;
        let (number, http, config, log) = (None, None, None, None);
        ProcessStatus { name, number, role, state, pid, address, http, health_problem, config, log, metrics }
    }
}

async fn probe(part: &ProcessFiles, known: Option<Process>, credentials: Option<Credentials>) -> ProcessStatus {
    let there = known.filter(Process::is_running).map(|process| process.pid);
    let mut how = ProbeResult::fetch(part.address.clone(), credentials, there).await;
    if how.state == ProcessState::Unresponsive {
        // One that was started by hand has the lock of its data.
        how.pid = how.pid.or_else(|| part.lock_owner());
    }
    ProcessStatus {
        http: part.http.clone(),
        config: Some(part.config.display().to_string()),
        log: Some(part.log.display().to_string()),
        ..how.into_status(part.name.clone(), part.role, part.address.to_string())
    }
}

pub(super) async fn status(dir: &Path, session: &mut CommandContext) -> Result {
    let layout = Layout::read(dir)?;
    let shown = cluster_status(&layout).await;
    if !session.output.is_quiet() {
        for one in &shown {
            session.output.print(one)?;
        }
        if !session.output.json() {
            session.output.write_raw(format!("\n{}\n", layout.url()).as_bytes())?;
        }
    }
    let members: Vec<&ProcessStatus> = shown.iter().filter(|one| one.state != ProcessState::Removed).collect();
    match members.iter().filter(|one| one.state != ProcessState::Healthy).count() {
        0 => Ok(()),
        all if all == members.len() && members.iter().all(|one| one.state == ProcessState::Down) => Err(not_running()),
        some => Err(Failure::new(format!("{some} of {} processes are not healthy", members.len()))),
    }
}

pub(super) async fn down(dir: &Path, session: &mut CommandContext) -> Result {
    let layout = Layout::read(dir)?;
    let running = RunningProcesses::read(&layout);
    let up = running.up.filter(Process::is_running);
    // All running processes, also those that were started by hand.
    let there = processes(&layout, &running, [ProcessRole::Meta, ProcessRole::Brick, ProcessRole::Peer]).await;
    if let Some(up) = up {
        // `up` ends them in order.
        process::end_within(&[up], process::SHUTDOWN_TIMEOUT * 4).await;
    }
    let by_up = if up.is_some() { RunningProcesses::read(&layout).killed } else { 0 };
    let killed = by_up + end_all(&layout).await;
    let ended = there.iter().filter(|process| !process.is_running()).count();
    if ended == there.len() {
        remove_running_file(&layout);
    }
    match session.output.print(&ShutdownReport { ended, killed }) {
        Ok(()) if ended == 0 && up.is_none() => Err(not_running()),
        printed => printed,
    }
}

/// The running processes of a cluster with these roles. A process of another directory that listens at an address of this one is none of them.
async fn processes(
    layout: &Layout,
    running: &RunningProcesses,
    roles: impl IntoIterator<Item = ProcessRole>,
) -> Vec<Process> {
    let mut found = Vec::new();
    let roles: Vec<ProcessRole> = roles.into_iter().collect();
    // Their addresses are unknown.
    let invalid = layout.invalid.iter().filter(|invalid| roles.contains(&invalid.role));
    found.extend(
        invalid.filter_map(|invalid| running.processes.get(&invalid.name)).filter(|process| process.is_running()),
    );
    for part in roles.into_iter().flat_map(|role| layout.with_role(role)) {
        let known = running.processes.get(&part.name).copied();
        found.extend(match known.filter(Process::is_running) {
            Some(process) => Some(process),
            // It may have been started by hand.
            None => {
                let answered = fetch_status(&part.url(), layout.credentials()).await.ok();
                answered.and_then(|status| Process::find(status.process)).filter(|process| part.is_of(process))
            }
        });
    }
    found
}

/// Ends all processes of a cluster, also those that were started by hand: peer servers first, the meta-server last.
/// Returns how many were killed.
pub(super) async fn end_all(layout: &Layout) -> usize {
    let mut running = RunningProcesses::read(layout);
    let mut killed = 0;
    for role in [ProcessRole::Peer, ProcessRole::Brick, ProcessRole::Meta] {
        let there = processes(layout, &running, [role]).await;
        killed += process::end(&there).await.len();
    }
    if running.processes.values().all(|process| !process.is_running()) {
        remove_running_file(layout);
    }
    if killed > 0 {
        // `down` reports the number. An error of writing it is ignored.
        running.killed += killed;
        let _ = running.write(layout);
    }
    killed
}

/// Removes the record of running processes.
fn remove_running_file(layout: &Layout) {
    // It may have been removed already.
    let _ = fs::remove_file(layout.running_file());
}

fn not_running() -> Failure {
    Failure::with(Exit::Unavailable, "unavailable", "the cluster is not running")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str, role: ProcessRole, state: ProcessState) -> ProcessStatus {
        let found = ProbeResult { state, pid: None, health_problem: None, metrics: Map::new() };
        ProcessStatus { number: Some(3), ..found.into_status(name.to_owned(), role, "host:1".to_owned()) }
    }

    #[test]
    fn only_a_brick_of_another_directory_may_be_missing() {
        use ProcessState::{Down, Healthy, Unhealthy, Unresponsive};
        let cluster = |brick, peer, outside| {
            let processes = [("brick-1", ProcessRole::Brick, brick), ("peer-1", ProcessRole::Peer, peer)];
            let shown = processes.map(|(name, role, state)| status(name, role, state));
            let mut shown = Vec::from(shown);
            shown.push(status(OUTSIDE, ProcessRole::Brick, outside));
            absent_outside_bricks(&shown)
        };
        let absent = Some(vec!["brick 3 at host:1".to_owned()]);
        assert_eq!(cluster(Healthy, Unhealthy, Down), absent);
        assert_eq!(cluster(Healthy, Unhealthy, Unresponsive), absent);
        for (brick, peer, outside) in [
            (Healthy, Healthy, Healthy),
            (Healthy, Unhealthy, Healthy),
            (Unhealthy, Unhealthy, Down),
            (Down, Unhealthy, Down),
            (Healthy, Unresponsive, Down),
        ] {
            assert_eq!(cluster(brick, peer, outside), None, "{brick:?} {peer:?} {outside:?}");
        }
    }

    #[test]
    fn record_of_running_processes_counts_only_in_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let layout = |name: &str| Layout { dir: dir.path().join(name), processes: Vec::new(), invalid: Vec::new() };
        let [own, copy] = ["own", "copy"].map(layout);
        [&own, &copy].into_iter().for_each(|layout| fs::create_dir(&layout.dir).unwrap());
        let up = Process::find(std::process::id());
        RunningProcesses { up, ..RunningProcesses::default() }.write(&own).unwrap();
        fs::copy(own.running_file(), copy.running_file()).unwrap();
        assert_eq!((RunningProcesses::read(&own).up, RunningProcesses::read(&copy).up), (up, None));
    }

    #[tokio::test]
    async fn a_process_listens_until_it_ends() {
        // Another test may get a TCP port that is free again.
        let dir = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let address = Address::Unix(dir.path().join("socket"));
        assert!(listens(&address).await, "although it does not answer");
        drop(listener);
        assert!(!listens(&address).await);
    }
}
