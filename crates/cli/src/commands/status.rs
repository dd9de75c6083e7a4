//! `mortar status`: the health and the metrics of servers.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanBytes, HumanCount, Report};

const EXAMPLES: &str = "\
Examples:
  mortar status
  mortar status --json | jq .metrics
  mortar --server mortar://127.0.0.1:6678,127.0.0.1:6688 status    each peer server of a cluster
  mortar status --quiet && echo well

Exit code 1: a server reports a problem, which is shown. 5: no server answers.";

/// Show the health and the metrics of a server
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status {}

#[derive(Serialize)]
struct ServerStatus {
    /// The server; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// "brick", "peer server" or "meta-server".
    role: String,
    healthy: bool,
    /// The reported problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    health_problem: Option<String>,
    agent: String,
    pid: u32,
    /// The clocks of the cluster's processes.
    clocks: Vec<Clock>,
    /// Counters and gauges by name, as in `/metrics`.
    metrics: Map<String, Value>,
}

/// The clock of a process beside the time of the cluster.
#[derive(Serialize)]
struct Clock {
    /// The process, such as "brick 2".
    process: String,
    /// How far its clock is ahead; negative if it is behind.
    offset_ms: i64,
    /// Whether that is more than allowed: the process serves nothing that needs time.
    refused: bool,
}

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if self.offset_ms < 0 { "behind" } else { "ahead" };
        write!(f, "{:.3} s {side}", self.offset_ms.unsigned_abs() as f64 / 1_000.0)?;
        f.write_str(if self.refused { ", refused: it serves nothing until its clock is right" } else { "" })
    }
}

impl Report for ServerStatus {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(server) = &self.server {
            writeln!(out, "{:<40} {server}", "server")?;
        }
        writeln!(out, "{:<40} {}, process {}", "agent", self.agent, self.pid)?;
        writeln!(out, "{:<40} {}", "role", self.role)?;
        writeln!(out, "{:<40} {}", "health", self.health_problem.as_deref().unwrap_or("ok"))?;
        if let (Some(hits), Some(misses)) = (self.metric("cache_hits_total"), self.metric("cache_misses_total"))
            && hits + misses > 0
        {
            let rate = 100.0 * hits as f64 / (hits + misses) as f64;
            writeln!(out, "{:<40} {rate:.1} %", "cache hit rate")?;
        }
        // The only clock of a store on its own says nothing.
        for clock in self.clocks.iter().filter(|clock| self.clocks.len() > 1 || clock.refused) {
            writeln!(out, "{:<40} {clock}", format!("clock of {}", clock.process))?;
        }
        for (name, value) in &self.metrics {
            let value = value.as_u64().unwrap_or_default();
            if name.ends_with("_bytes") || name.ends_with("_bytes_total") {
                writeln!(out, "{name:<40} {} ({})", HumanCount(value), HumanBytes(value))?;
            } else {
                writeln!(out, "{name:<40} {}", HumanCount(value))?;
            }
        }
        Ok(())
    }
}

impl ServerStatus {
    fn new(server: Option<String>, status: client::Status) -> Self {
        let client::Status { agent, role, health_problem, process: pid, clocks, metrics } = status;
        let clock = |client::ClockStatus { process, offset_ms, refused }| Clock { process, offset_ms, refused };
        let clocks = clocks.into_iter().map(clock).collect();
        let metrics = metrics.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        Self { server, role, healthy: health_problem.is_none(), health_problem, agent, pid, clocks, metrics }
    }

    fn metric(&self, name: &str) -> Option<u64> {
        self.metrics.get(name).and_then(Value::as_u64)
    }
}

pub(crate) async fn run(_: Status, session: &mut CommandContext) -> Result {
    let servers = session.servers();
    if servers.len() < 2 {
        let status = session.connect().await?.status().await?;
        return show(ServerStatus::new(None, status), session)?.map_or(Ok(()), Err);
    }
    // The status of all servers that answer is shown; the first failure is reported after that.
    let (mut unresponsive, mut unhealthy) = (None, None);
    for server in servers {
        let asked = async { Ok::<_, Failure>(session.connect_to(&server).await?.status().await?) };
        match asked.await {
            Ok(status) => {
                let failure = show(ServerStatus::new(Some(server), status), session)?;
                unhealthy = unhealthy.or(failure);
            }
            Err(failure) => drop(unresponsive.get_or_insert(failure)),
        }
    }
    unresponsive.or(unhealthy).map_or(Ok(()), Err)
}

/// Prints the status of a server. Returns a failure if it reports a problem.
fn show(shown: ServerStatus, session: &mut CommandContext) -> Result<Option<Failure>> {
    if !session.output.is_quiet() {
        session.output.print(&shown)?;
    }
    let ServerStatus { server, role, health_problem, .. } = shown;
    let name = server.map_or_else(|| format!("the {role}"), |server| format!("the {role} at {server}"));
    Ok(health_problem.map(|health_problem| {
        Failure::with(Exit::Failure, "unhealthy", format!("{name} is unhealthy: {health_problem}"))
    }))
}
