//! `mortar cluster status` and `mortar cluster down`: a cluster as it is, seen from another process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use client::{Client, ConnectOptions, Credentials, Status};
use meta::catalog::MemberRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::layout::{Layout, Part};
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
    name: String,
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
    config: String,
    log: String,
    /// Counters and gauges by name, as in `/metrics`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    figures: Map<String, Value>,
}

impl Report for Shown {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let pid = self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        write!(out, "{:<10} {:<8} {:>8}  {:<22}", self.name, self.state.name(), pid, self.address)?;
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
        if self.state == State::Down {
            write!(out, "  start it: mortar node --config {}", self.config)?;
        }
        if self.state == State::Removed {
            write!(out, "  no brick of the cluster any more; without {} it is not shown", self.config)?;
        }
        writeln!(out)
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
pub(super) async fn ask(part: &Part, credentials: Option<Credentials>) -> client::Result<Status> {
    let asking = async { connect(part, credentials).await?.status().await };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .unwrap_or_else(|_| Err(client::Error::new(client::ErrorKind::Unavailable, "it does not answer")))
}

async fn connect(part: &Part, credentials: Option<Credentials>) -> client::Result<Client> {
    let mut options = ConnectOptions::default();
    options.credentials = credentials;
    options.timeout = PATIENCE;
    options.retry = PATIENCE;
    options.agent = concat!("mortar ", env!("CARGO_PKG_VERSION")).to_owned();
    Client::connect_with(&part.url(), options).await
}

/// How all processes of a cluster are.
pub(super) async fn look(layout: &Layout) -> Vec<Shown> {
    let running = Running::read(layout);
    let mut asked = JoinSet::new();
    for (at, part) in layout.parts.iter().cloned().enumerate() {
        let known = running.processes.get(&part.name).copied();
        let credentials = layout.credentials();
        asked.spawn(async move { (at, show(&part, known, credentials).await) });
    }
    let mut shown = asked.join_all().await;
    shown.sort_by_key(|(at, _)| *at);
    let mut shown: Vec<Shown> = shown.into_iter().map(|(_, shown)| shown).collect();
    if shown.iter().any(|one| one.state == State::Down && one.role == Role::Brick) {
        // If the meta-server does not say, they are down.
        let removed = removed(layout).await.unwrap_or_default();
        for one in shown.iter_mut().filter(|one| one.state == State::Down && removed.contains(&one.name)) {
            one.state = State::Removed;
        }
    }
    shown
}

/// The names of those bricks that have been started before, and that the cluster does not know any more.
pub(super) async fn removed(layout: &Layout) -> Result<BTreeSet<String>> {
    let Some(meta) = layout.with(Role::Meta).next() else { return Ok(BTreeSet::new()) };
    let client = connect(meta, layout.credentials()).await?;
    let known = member::ask(&client, &MemberRequest::List).await?.bricks;
    let bricks: Vec<&Part> = layout.with(Role::Brick).filter(|part| part.has_run()).collect();
    // One that is known under another address is none of them.
    let surplus = bricks.len().saturating_sub(known.len());
    let is_known =
        |part: &Part| known.iter().any(|brick| brick.addresses.iter().any(|address| part.reached_at.contains(address)));
    let unknown = bricks.into_iter().filter(|part| !is_known(part)).map(|part| part.name.clone());
    let unknown: BTreeSet<String> = unknown.collect();
    // A catalogue that knows nobody has been lost, and so says nothing of them.
    Ok(if unknown.len() <= surplus && !known.is_empty() { unknown } else { BTreeSet::new() })
}

async fn show(part: &Part, known: Option<Process>, credentials: Option<Credentials>) -> Shown {
    let there = known.filter(Process::is_there).map(|process| process.pid);
    let (state, pid, ailment, figures) = match ask(part, credentials).await {
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
    Shown {
        name: part.name.clone(),
        role: part.role,
        state,
        pid,
        address: part.address.to_string(),
        http: part.http.clone(),
        ailment,
        config: part.config.display().to_string(),
        log: part.log.display().to_string(),
        figures,
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
            None => ask(part, layout.credentials()).await.ok().and_then(|status| Process::find(status.process)),
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
