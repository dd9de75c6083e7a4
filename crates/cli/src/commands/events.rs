//! `mortar events`: the events of a space of a cluster.

use std::io::{self, Write};

use clap::Args;
use client::{BrickStatus, Error, ErrorKind, Event, SpaceStatus};
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, Report};
use crate::time;

const EXAMPLES: &str = "\
Examples:
  mortar events                                  until Ctrl-C
  mortar --space photos events
  mortar events --json | jq 'select(.event == \"brick_failed\")'
  mortar events --count 1                        how things are now, and no more

The first event is the current status. The command exits with 9 when no peer server accepts you any more. docs/operations.md lists the
events.";

/// Follow the events of a space: bricks fail and recover, the space stops and resumes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
    /// End after this number of events
    #[arg(long)]
    count: Option<u64>,
}

/// An event with the time of its arrival.
#[derive(Serialize)]
struct EventLine {
    at: String,
    #[serde(flatten)]
    event: Json,
    #[serde(skip)]
    text: String,
}

impl Report for EventLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  {}", time::to_seconds(&self.at), Printable(&self.text))
    }
}

pub(crate) async fn run(args: Events, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    let mut events = cluster.events()?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = events.next().await.ok_or_else(|| Failure::new("the client has ended"))?;
        let line = EventLine { at: time::now(), event: to_json(&event), text: event.to_string() };
        session.output.print(&line)?;
        session.output.flush()?;
        if let Event::Refused { why } = event {
            return Err(Error::new(ErrorKind::Denied, why).into());
        }
        left -= 1;
    }
    Ok(())
}

fn to_json(event: &Event) -> Json {
    match event {
        Event::Connected { peer, status: standing } => {
            let SpaceStatus { policy, bricks, .. } = standing;
            let bricks: Vec<Json> = bricks.iter().map(brick_to_json).collect();
            json!({ "event": "connected", "peer": peer, "policy": policy.name(), "stopped": standing.is_stopped(), "bricks": bricks })
        }
        Event::Disconnected { peer, why } => json!({ "event": "disconnected", "peer": peer, "why": why }),
        Event::Refused { why } => json!({ "event": "refused", "why": why }),
        Event::BrickFailed(failed) => with_event("brick_failed", brick_to_json(failed)),
        Event::BrickRecovered(recovered) => with_event("brick_recovered", brick_to_json(recovered)),
        Event::Stopped { why } => json!({ "event": "stopped", "why": why }),
        Event::Resumed => json!({ "event": "resumed" }),
        Event::PolicyChanged(policy) => json!({ "event": "policy_changed", "policy": policy.name() }),
        Event::NodeMoved { node, brick, epoch } => {
            json!({ "event": "node_moved", "node": node.to_string(), "brick": brick, "epoch": epoch })
        }
        Event::NodeDamaged { node, brick, damage } => {
            json!({ "event": "node_damaged", "node": node.to_string(), "brick": brick, "damage": damage })
        }
        Event::NodeRecovered { node, brick } => {
            json!({ "event": "node_recovered", "node": node.to_string(), "brick": brick })
        }
        Event::SchemaChanged => json!({ "event": "schema_changed" }),
        Event::Missed(count) => json!({ "event": "missed", "count": count }),
        // A newer library may have more events.
        other => json!({ "event": "other", "text": other.to_string() }),
    }
}

fn with_event(event: &str, mut of: Json) -> Json {
    of["event"] = event.into();
    of
}

/// The status of a brick.
pub(crate) fn brick_to_json(standing: &BrickStatus) -> Json {
    let nodes: Vec<String> = standing.nodes.iter().map(|(node, _)| node.to_string()).collect();
    let unreachable_since = standing.unreachable_since.map(|since| since.to_string());
    let damaged: Vec<Json> =
        standing.damaged.iter().map(|(node, damage)| json!({ "node": node.to_string(), "damage": **damage })).collect();
    json!({
        "brick": standing.brick,
        "address": standing.address,
        "unreachable_since": unreachable_since,
        "nodes": nodes,
        "damaged": damaged,
    })
}
