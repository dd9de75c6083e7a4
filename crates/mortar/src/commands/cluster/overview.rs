//! `mortar cluster status` and `mortar cluster down`: a cluster as it is, seen from another process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use client::{Client, ConnectOptions, Credentials, Status};
use meta::catalog::{BrickEntry, MemberAnswer, MemberRequest, PeerEntry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::layout::{Layout, Part, url_of};
use super::process::{self, Process};
use crate::commands::member;
use crate::connection::Session;
use crate::failure::{Exit, Failure, Result};
use crate::output::Report;
use crate::settings::Role;

/// How long a process may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who runs: what `up` writes down.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Running {
    /// The process of `mortar cluster up`.
    pub(super) up: Option<Process>,
    /// The processes that it has started, by name.
    pub(super) processes: BTreeMap<String, Process>,
    /// How many of them had to be killed in the end.
    #[serde(default)]
    pub(super) killed: usize,
}

impl Running {
    /// What was written down; nothing if nobody runs.
    pub(super) fn read(layout: &Layout) -> Self {
        let text = fs::read_to_string(layout.running()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(super) fn write(&self, layout: &Layout) -> Result {
        let path = layout.running();
        let text = serde_json::to_string_pretty(self).map_err(|e| Failure::new(format!("cannot write JSON: {e}")))?;
        fs::write(&path, text + "\n").map_err(|e| Failure::file(format!("cannot write {}", path.display()), &e))
    }
}

/// How a process of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// It answers, and is well.
    Healthy,
    /// It answers, and something is wrong.
    Ailing,
    /// It is there, and does not answer.
    Silent,
    /// It is not there.
    Down,
    /// It is not there, and the cluster knows it no more: `mortar brick remove`.
    Removed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Ailing => "ailing",
            Self::Silent => "silent",
            Self::Down => "down",
            Self::Removed => "removed",
        }
    }
}

/// A process of a cluster, as it is.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    /// By its files, or `outside` of one that has none here.
    name: String,
    /// By the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    role: Role,
    pub(super) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ailment: Option<String>,
    /// The file with its settings, to start it again with.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// Counters and gauges by name, as in `/metrics`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    figures: Map<String, Value>,
}

impl Report for Shown {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let pid = self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let number = self.number.map(|number| format!("{} {number}", self.role.name())).unwrap_or_default();
        write!(out, "{:<10} {number:<9} {:<8} {pid:>8}  {:<22}", self.name, self.state.name(), self.address)?;
        let figure = |name: &str| self.figures.get(name).and_then(Value::as_u64);
        if let Some(epoch) = figure("placement_epoch") {
            write!(out, " epoch {epoch}")?;
        }
        if let Some(committed) = figure("transactions_committed_total") {
            let conflicts = figure("transactions_conflicts_total").unwrap_or_default();
            write!(out, ", {committed} committed, {conflicts} conflicts")?;
        }
        if let Some(nodes) = figure("nodes_served") {
            let (parts, conflicts) = (figure("parts_committed_total"), figure("parts_conflicts_total"));
            let (parts, conflicts) = (parts.unwrap_or_default(), conflicts.unwrap_or_default());
            write!(out, ", {nodes} nodes, {parts} parts committed, {conflicts} conflicts")?;
            if let Some(coming) = figure("nodes_coming").filter(|coming| *coming > 0) {
                write!(out, ", {coming} coming")?;
            }
        }
        if let Some(ailment) = &self.ailment {
            write!(out, "  {ailment}")?;
        }
        match (self.state, &self.config) {
            (State::Down, Some(config)) => writeln!(out, "  start it: mortar node --config {config}"),
            (State::Removed, Some(config)) => {
                writeln!(out, "  no brick of the cluster any more; without {config} it is not shown")
            }
            _ => writeln!(out),
        }
    }
}

#[derive(Serialize)]
struct Ended {
    /// How many processes were ended.
    ended: usize,
    /// How many of them had to be killed.
    killed: usize,
}

impl Report for Ended {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "ended {}", crate::output::counted(self.ended as u64, "process", "processes"))?;
        if self.killed > 0 {
            write!(out, ", {} of them killed", self.killed)?;
        }
        writeln!(out)
    }
}

/// Asks a process how it is.
async fn ask(url: &str, credentials: Option<Credentials>) -> client::Result<Status> {
    let asking = async { connect(url, credentials).await?.status().await };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .unwrap_or_else(|_| Err(client::Error::new(client::ErrorKind::Unavailable, "it does not answer")))
}

async fn connect(url: &str, credentials: Option<Credentials>) -> client::Result<Client> {
    let mut options = ConnectOptions::default();
    options.credentials = credentials;
    options.timeout = PATIENCE;
    options.retry = PATIENCE;
    options.agent = concat!("mortar ", env!("CARGO_PKG_VERSION")).to_owned();
    Client::connect_with(url, options).await
}

/// How all processes of a cluster are: those of its directory, then those that take part from elsewhere.
pub(super) async fn look(layout: &Layout) -> Vec<Shown> {
    let running = Running::read(layout);
    let mut asked = JoinSet::new();
    for (at, part) in layout.parts.iter().cloned().enumerate() {
        let known = running.processes.get(&part.name).copied();
        let credentials = layout.credentials();
        asked.spawn(async move { (at, show(&part, known, credentials).await) });
    }
    // If the meta-server does not say, those that are down have no numbers, and may come back.
    let (mut shown, members) = tokio::join!(asked.join_all(), Members::ask(layout));
    let members = members.unwrap_or_default();
    shown.sort_by_key(|(at, _)| *at);
    let mut shown: Vec<Shown> = shown.into_iter().map(|(_, shown)| shown).collect();
    for one in &mut shown {
        let said = one.figures.get("brick_number").and_then(Value::as_u64);
        let said = said.and_then(|number| u32::try_from(number).ok());
        one.number = said.or_else(|| members.numbers.get(&one.name).copied());
        if one.state == State::Down && members.removed.contains(&one.name) {
            one.state = State::Removed;
        }
    }
    shown.extend(show_all(members.outside, layout).await);
    shown
}

/// How processes are that have no files here, in their order.
async fn show_all(outside: impl IntoIterator<Item = Member>, layout: &Layout) -> Vec<Shown> {
    let mut asked = JoinSet::new();
    for member in outside {
        asked.spawn(member.show(layout.credentials()));
    }
    let mut shown = asked.join_all().await;
    shown.sort_by_key(|one| (one.role == Role::Peer, one.number));
    shown
}

/// What the catalogue has of the processes of a directory, and of others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// The numbers of bricks and peer servers, by name.
    numbers: BTreeMap<String, u32>,
    /// The names of those bricks that have been started before, and that the cluster does not know any more.
    pub(super) removed: BTreeSet<String>,
    /// Who takes part and has no file here.
    outside: Vec<Member>,
}

/// A brick or a peer server by the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    role: Role,
    number: u32,
    addresses: Vec<String>,
    alive: bool,
}

impl Members {
    pub(super) async fn ask(layout: &Layout) -> Result<Self> {
        let Some(meta) = layout.with(Role::Meta).next() else { return Ok(Self::default()) };
        let client = connect(&meta.url(), layout.credentials()).await?;
        let mut members = Self::of(&layout.parts, member::ask(&client, &MemberRequest::List).await?);
        if !members.removed.is_empty() && !members.are_elsewhere(layout).await {
            members.removed.clear();
        }
        Ok(members)
    }

    /// Whether the bricks that have no file here say so themselves: what the catalogue knows may be some seconds old, and one that is
    /// away might be one of here that was at another address.
    async fn are_elsewhere(&self, layout: &Layout) -> bool {
        let bricks = self.outside.iter().filter(|member| member.role == Role::Brick).cloned();
        let says_so =
            |one: &Shown| one.figures.get("brick_number").and_then(Value::as_u64) == one.number.map(u64::from);
        show_all(bricks, layout).await.iter().all(says_so)
    }

    /// Processes are known by where they are reached.
    fn of(parts: &[Part], known: MemberAnswer) -> Self {
        let bricks = known.bricks.into_iter().map(|brick| {
            let BrickEntry { brick, addresses, alive, .. } = brick;
            Member { role: Role::Brick, number: brick.0, addresses, alive }
        });
        let peers = known.peers.into_iter().map(|peer| {
            let PeerEntry { peer, addresses, alive } = peer;
            Member { role: Role::Peer, number: peer.0, addresses, alive }
        });
        let mut members: Vec<Member> = bricks.chain(peers).collect();
        // A brick in memory is a new one each time: of several at one address the one is meant that lives, else the last.
        members.sort_by_key(|member| (member.alive, member.number));
        let is_at = |member: &Member, part: &Part| {
            member.role == part.role && member.addresses.iter().any(|address| part.reached_at.contains(address))
        };
        let numbers = parts.iter().filter_map(|part| {
            let member = members.iter().rev().find(|member| is_at(member, part))?;
            Some((part.name.clone(), member.number))
        });
        let numbers: BTreeMap<String, u32> = numbers.collect();
        let mut outside = members.clone();
        outside.retain(|member| !parts.iter().any(|part| is_at(member, part)));
        // A brick that is away might be one of here, if its address was another one. A catalogue that knows nobody has been
        // lost, and so says nothing of them.
        let is_sure = members.iter().any(|member| member.role == Role::Brick)
            && outside.iter().all(|member| member.role != Role::Brick || member.alive);
        let is_removed = |part: &&Part| {
            part.role == Role::Brick && part.has_run() && !part.runs_elsewhere() && !numbers.contains_key(&part.name)
        };
        let removed = parts.iter().filter(|part| is_sure && is_removed(part)).map(|part| part.name.clone());
        let removed = removed.collect();
        // A peer server that is gone has left nothing.
        outside.retain(|member| member.role == Role::Brick || member.alive);
        outside.sort_by_key(|member| (member.role == Role::Peer, member.number));
        Self { numbers, removed, outside }
    }
}

impl Member {
    /// How it is, though it has no files here.
    async fn show(self, credentials: Option<Credentials>) -> Shown {
        let Self { role, number, addresses, alive } = self;
        let address = addresses.into_iter().next().unwrap_or_default();
        let asked = match address.parse() {
            Ok(address) => ask(&url_of(address), credentials).await,
            Err(error) => Err(error),
        };
        let mut how = How::of(asked, None);
        if alive && how.state == State::Down {
            how.state = State::Silent;
        }
        Shown { number: Some(number), ..how.shown("outside".to_owned(), role, address) }
    }
}

/// What a process has said, or has not.
struct How {
    state: State,
    pid: Option<u32>,
    ailment: Option<String>,
    figures: Map<String, Value>,
}

impl How {
    /// `there`: its number, if it is known to be there.
    fn of(asked: client::Result<Status>, there: Option<u32>) -> Self {
        let (state, pid, ailment, figures) = match asked {
            Ok(status) => {
                let state = if status.ailment.is_some() { State::Ailing } else { State::Healthy };
                let figures = status.figures.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
                (state, Some(status.process), status.ailment, figures)
            }
            // It answers, if only that it cannot serve this.
            Err(error) if error.kind() != client::ErrorKind::Unavailable => {
                (State::Ailing, there, Some(error.to_string()), Map::new())
            }
            Err(_) if there.is_some() => (State::Silent, there, None, Map::new()),
            Err(_) => (State::Down, None, None, Map::new()),
        };
        Self { state, pid, ailment, figures }
    }

    fn shown(self, name: String, role: Role, address: String) -> Shown {
        let Self { state, pid, ailment, figures } = self;
        let (number, http, config, log) = (None, None, None, None);
        Shown { name, number, role, state, pid, address, http, ailment, config, log, figures }
    }
}

async fn show(part: &Part, known: Option<Process>, credentials: Option<Credentials>) -> Shown {
    let there = known.filter(Process::is_there).map(|process| process.pid);
    let how = How::of(ask(&part.url(), credentials).await, there);
    Shown {
        http: part.http.clone(),
        config: Some(part.config.display().to_string()),
        log: Some(part.log.display().to_string()),
        ..how.shown(part.name.clone(), part.role, part.address.to_string())
    }
}

pub(super) async fn status(dir: &Path, session: &mut Session) -> Result {
    let layout = Layout::read(dir)?;
    let shown = look(&layout).await;
    for one in &shown {
        session.output.print(one)?;
    }
    if !session.output.json() && !session.output.is_quiet() {
        session.output.raw(format!("\n{}\n", layout.url()).as_bytes())?;
    }
    let members: Vec<&Shown> = shown.iter().filter(|one| one.state != State::Removed).collect();
    match members.iter().filter(|one| one.state != State::Healthy).count() {
        0 => Ok(()),
        all if all == members.len() && members.iter().all(|one| one.state == State::Down) => Err(nobody()),
        some => Err(Failure::new(format!("{some} of {} processes are not healthy", members.len()))),
    }
}

pub(super) async fn down(dir: &Path, session: &mut Session) -> Result {
    let layout = Layout::read(dir)?;
    let running = Running::read(&layout);
    let up = running.up.filter(Process::is_there);
    // All that there are, whoever has started them.
    let there = processes(&layout, &running, [Role::Meta, Role::Brick, Role::Peer]).await;
    if let Some(up) = up {
        // It ends them, in order.
        process::end_within(&[up], process::PATIENCE * 4).await;
    }
    let by_up = if up.is_some() { Running::read(&layout).killed } else { 0 };
    let killed = by_up + end_all(&layout).await;
    let ended = there.iter().filter(|process| !process.is_there()).count();
    if ended == there.len() {
        forget(&layout);
    }
    match session.output.print(&Ended { ended, killed }) {
        Ok(()) if ended == 0 && up.is_none() => Err(nobody()),
        printed => printed,
    }
}

/// The processes of a cluster that are there, with these roles.
async fn processes(layout: &Layout, running: &Running, roles: impl IntoIterator<Item = Role>) -> Vec<Process> {
    let mut found = Vec::new();
    for part in roles.into_iter().flat_map(|role| layout.with(role)) {
        let known = running.processes.get(&part.name).copied();
        found.extend(match known.filter(Process::is_there) {
            Some(process) => Some(process),
            // Somebody may have started it again.
            None => ask(&part.url(), layout.credentials()).await.ok().and_then(|status| Process::find(status.process)),
        });
    }
    found
}

/// Ends whatever runs of a cluster, whoever has started it: peer servers first, the meta-server last. Says how many had to be
/// killed.
pub(super) async fn end_all(layout: &Layout) -> usize {
    let mut running = Running::read(layout);
    let mut killed = 0;
    for role in [Role::Peer, Role::Brick, Role::Meta] {
        let there = processes(layout, &running, [role]).await;
        killed += process::end(&there).await.len();
    }
    if running.processes.values().all(|process| !process.is_there()) {
        forget(layout);
    }
    if killed > 0 {
        // Whoever has asked for the end may want to know it. If it cannot be written, it is not told.
        running.killed += killed;
        let _ = running.write(layout);
    }
    killed
}

/// Nobody runs any more.
fn forget(layout: &Layout) {
    // It may be gone already.
    let _ = fs::remove_file(layout.running());
}

fn nobody() -> Failure {
    Failure::with(Exit::Unavailable, "unavailable", "the cluster does not run")
}
