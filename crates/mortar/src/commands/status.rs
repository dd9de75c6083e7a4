//! `mortar status`: what a server says of itself.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::connection::Session;
use crate::failure::Result;
use crate::output::{Bytes, Count, Report};

const EXAMPLES: &str = "\
Examples:
  mortar status
  mortar status --json | jq .figures
  mortar status --quiet && echo up      exit code 5 means that no server answers";

/// Show what a server holds and does
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status {}

#[derive(Serialize)]
struct Shown {
    agent: String,
    /// Counters and gauges by name, as in `/metrics`.
    figures: Map<String, Value>,
}

impl Report for Shown {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{:<40} {}", "server", self.agent)?;
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

pub(crate) async fn run(_: Status, session: &mut Session) -> Result {
    let status = session.connect().await?.status().await?;
    if session.output.is_quiet() {
        return Ok(());
    }
    let figures = status.figures.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
    session.output.print(&Shown { agent: status.agent, figures })
}
