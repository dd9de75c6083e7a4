//! `mortar redirector`: the groups of clients at their sites, and what their redirectors do.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use client::{AdminClient, RedirectorInfo};
use serde::Serialize;
use tokio::time;

use crate::connection::CommandContext;
use crate::failure::Result;
use crate::output::{HumanBytes, HumanCount, Printable, Report, pluralize};

const EXAMPLES: &str = "\
Examples:
  mortar redirector                          the redirectors of all groups
  mortar redirector shed --watch             those of one group, again each second until Ctrl-C
  mortar redirector --json | jq '.redirectors[].helped'
  mortar node --role redirector --group shed --listen 10.0.0.5:6676 --upstream mortar://db1:6678
  mortar --server 'mortar://db1:6678/main?group=shed' get /photos/cat.jpg -o cat.jpg

A redirector serves the clients of one site: they get pages from each other, and what one commits is sent to all. --server names a
peer server, at which redirectors register; docs/operations.md says how to set them up.";

/// Show the groups of clients at their sites, and what their redirectors do
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Redirector {
    /// Only this group
    group: Option<String>,
    /// Show it again each second, with what happened in that second
    #[arg(long)]
    watch: bool,
}

/// How often `--watch` asks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Clears a terminal, and goes to its first line.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

#[derive(Serialize)]
struct RedirectorList {
    redirectors: Vec<RedirectorLine>,
}

#[derive(Clone, Serialize)]
struct RedirectorLine {
    group: String,
    addresses: Vec<String>,
    agent: String,
    /// Clients that are connected to it.
    members: u64,
    /// Pages that members asked for.
    fetches: u64,
    /// Pages of these that crossed the link to the server above.
    fetched_above: u64,
    /// Pages that another member had, and the bytes of their objects: these did not cross the link.
    helped: u64,
    helped_bytes: u64,
    /// Pages that members have given others and that were not what had passed.
    forged: u64,
    /// Messages to members with new states of objects, and without.
    updates: u64,
    invalidations: u64,
    /// Ranges of contents that members asked for; those of them that the redirector had kept, and their bytes: these did not cross the link.
    content_reads: u64,
    contents_kept: u64,
    contents_kept_bytes: u64,
    /// How far group snapshots are behind; absent if no member reads any.
    #[serde(skip_serializing_if = "Option::is_none")]
    staleness_ms: Option<u64>,
}

impl From<RedirectorInfo> for RedirectorLine {
    fn from(info: RedirectorInfo) -> Self {
        let RedirectorInfo { group, addresses, agent, counts } = info;
        Self {
            group,
            addresses,
            agent,
            members: counts.members,
            fetches: counts.fetches,
            fetched_above: counts.fetched_above,
            helped: counts.helped,
            helped_bytes: counts.helped_bytes,
            forged: counts.forged,
            updates: counts.updates,
            invalidations: counts.invalidations,
            content_reads: counts.content_reads,
            contents_kept: counts.contents_kept,
            contents_kept_bytes: counts.contents_kept_bytes,
            staleness_ms: counts.staleness_ms,
        }
    }
}

impl RedirectorLine {
    /// What it has done since an earlier line.
    fn since(&self, before: &Self) -> Self {
        Self {
            fetches: self.fetches.saturating_sub(before.fetches),
            fetched_above: self.fetched_above.saturating_sub(before.fetched_above),
            helped: self.helped.saturating_sub(before.helped),
            helped_bytes: self.helped_bytes.saturating_sub(before.helped_bytes),
            forged: self.forged.saturating_sub(before.forged),
            updates: self.updates.saturating_sub(before.updates),
            invalidations: self.invalidations.saturating_sub(before.invalidations),
            content_reads: self.content_reads.saturating_sub(before.content_reads),
            contents_kept: self.contents_kept.saturating_sub(before.contents_kept),
            contents_kept_bytes: self.contents_kept_bytes.saturating_sub(before.contents_kept_bytes),
            ..self.clone()
        }
    }
}

impl Report for RedirectorList {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.redirectors.is_empty() {
            return writeln!(out, "no redirector is registered");
        }
        for redirector in &self.redirectors {
            let RedirectorLine { group, addresses, members, .. } = redirector;
            let addresses = addresses.join(", ");
            let members = pluralize(*members, "member", "members");
            writeln!(out, "{} at {}: {members}", Printable(group), Printable(&addresses))?;
            let RedirectorLine { fetches, fetched_above, helped, helped_bytes, updates, invalidations, .. } =
                redirector;
            writeln!(
                out,
                "  pages        {:>12} asked for, {} over the link, {} ({}) from another member",
                HumanCount(*fetches),
                HumanCount(*fetched_above),
                HumanCount(*helped),
                HumanBytes(*helped_bytes)
            )?;
            writeln!(
                out,
                "  changes      {:>12} sent with their new state, {} without",
                HumanCount(*updates),
                HumanCount(*invalidations)
            )?;
            let RedirectorLine { content_reads, contents_kept, contents_kept_bytes, .. } = redirector;
            writeln!(
                out,
                "  blobs        {:>12} ranges asked for, {} ({}) kept here",
                HumanCount(*content_reads),
                HumanCount(*contents_kept),
                HumanBytes(*contents_kept_bytes)
            )?;
            if redirector.forged > 0 {
                let forged = HumanCount(redirector.forged);
                writeln!(
                    out,
                    "  wrong data   {forged:>12} given by members and not used: one of them lies, or is damaged"
                )?;
            }
            if let Some(staleness) = redirector.staleness_ms {
                writeln!(out, "  snapshots    {staleness:>12} ms behind")?;
            }
        }
        Ok(())
    }
}

pub(crate) async fn run(args: Redirector, session: &mut CommandContext) -> Result {
    let client = session.connect_to_cluster().await?;
    let group = args.group.unwrap_or_default();
    let mut shown = fetch(&client, &group).await?;
    session.output.print(&RedirectorList { redirectors: shown.clone() })?;
    let is_screen = io::stdout().is_terminal() && !session.output.json();
    if !args.watch {
        return Ok(());
    }
    loop {
        session.output.flush()?;
        time::sleep(INTERVAL).await;
        let now = fetch(&client, &group).await?;
        let before: BTreeMap<_, _> = shown.iter().map(|line| (line.addresses.clone(), line)).collect();
        let since =
            |line: &RedirectorLine| before.get(&line.addresses).map_or_else(|| line.clone(), |it| line.since(it));
        let redirectors = now.iter().map(since).collect();
        if is_screen {
            session.output.write_raw(CLEAR)?;
        }
        session.output.print(&RedirectorList { redirectors })?;
        shown = now;
    }
}

async fn fetch(client: &AdminClient, group: &str) -> Result<Vec<RedirectorLine>> {
    Ok(client.redirectors(group).await?.into_iter().map(RedirectorLine::from).collect())
}
