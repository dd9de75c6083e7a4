//! `mortar status`: what a server says of itself.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::connection::Session;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Bytes, Count, Report};

const EXAMPLES: &str = "\
Examples:
  mortar status
  mortar status --json | jq .figures
  mortar --server mortar://127.0.0.1:6678,127.0.0.1:6679 status    each peer server of a cluster
  mortar status --quiet && echo well

Exit code 1: something is wrong, and it says what. 5: no server answers.";

/// Show what a server holds and does
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status {}

#[derive(Serialize)]
struct Shown {
    /// Which server; absent if only one was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// "brick", "peer server" or "meta-server".
    role: String,
    healthy: bool,
    /// What is wrong, if anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    ailment: Option<String>,
    agent: String,
    pid: u32,
    /// Counters and gauges by name, as in `/metrics`.
    figures: Map<String, Value>,
}

impl Report for Shown {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(server) = &self.server {
            writeln!(out, "{:<40} {server}", "server")?;
        }
        writeln!(out, "{:<40} {}, process {}", "agent", self.agent, self.pid)?;
        writeln!(out, "{:<40} {}", "role", self.role)?;
        writeln!(out, "{:<40} {}", "health", self.ailment.as_deref().unwrap_or("ok"))?;
        if let (Some(hits), Some(misses)) = (self.figure("cache_hits_total"), self.figure("cache_misses_total"))
            && hits + misses > 0
        {
            let rate = 100.0 * hits as f64 / (hits + misses) as f64;
            writeln!(out, "{:<40} {rate:.1} %", "cache hit rate")?;
        }
        for (name, value) in &self.figures {
            let value = value.as_u64().unwrap_or_default();
            if name.ends_with("_bytes") || name.ends_with("_bytes_total") {
                writeln!(out, "{name:<40} {} ({})", Count(value), Bytes(value))?;
            } else {
                writeln!(out, "{name:<40} {}", Count(value))?;
            }
        }
        Ok(())
    }
}

impl Shown {
    fn new(server: Option<String>, status: client::Status) -> Self {
        let client::Status { agent, role, ailment, process: pid, figures } = status;
        let figures = figures.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        Self { server, role, healthy: ailment.is_none(), ailment, agent, pid, figures }
    }

    fn figure(&self, name: &str) -> Option<u64> {
        self.figures.get(name).and_then(Value::as_u64)
    }
}

pub(crate) async fn run(_: Status, session: &mut Session) -> Result {
    let servers = session.servers();
    if servers.len() < 2 {
        let status = session.connect().await?.status().await?;
        return show(Shown::new(None, status), session)?.map_or(Ok(()), Err);
    }
    // All are shown that answer; the first that does not, or else that is not well, is told after them.
    let (mut silent, mut unwell) = (None, None);
    for server in servers {
        let asked = async { Ok::<_, Failure>(session.connect_to(&server).await?.status().await?) };
        match asked.await {
            Ok(status) => {
                let failure = show(Shown::new(Some(server), status), session)?;
                unwell = unwell.or(failure);
            }
            Err(failure) => drop(silent.get_or_insert(failure)),
        }
    }
    silent.or(unwell).map_or(Ok(()), Err)
}

/// Shows a server, and says what is wrong with it.
fn show(shown: Shown, session: &mut Session) -> Result<Option<Failure>> {
    if !session.output.is_quiet() {
        session.output.print(&shown)?;
    }
    let Shown { server, role, ailment, .. } = shown;
    let name = server.map_or_else(|| format!("the {role}"), |server| format!("the {role} at {server}"));
    Ok(ailment.map(|ailment| Failure::with(Exit::Failure, "unwell", format!("{name} is not well: {ailment}"))))
}
