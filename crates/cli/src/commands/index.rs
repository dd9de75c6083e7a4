//! `mortar index`: the indexes of a space of a cluster.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use client::AdminClient;
use meta::catalog::{Index, IndexState, JobRequest, SchemaAnswer, SchemaRequest};
use model::{Error, ErrorKind};
use serde::Serialize;
use tokio::time::{self, Instant};

use super::class::{ask, lineage};
use super::job;
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Printable, RemovalEnd, Report};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  mortar index create by_name --class Person --field name
  mortar index create by_place --class Person --field city --field age
  mortar index create by_email --class Person --field email --unique
  mortar index create by_age --class Person --field age --detach   `mortar job ls` shows how far it is
  mortar index list
  mortar index build by_name       waits where `create` was stopped
  mortar index remove by_name";

/// How long a peer server may take to report an index as ready after it has all objects: it searches a unique one.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// How long one request is repeated by the client library; this module repeats it and knows for which brick it waits.
const REQUEST_RETRY: Duration = Duration::from_millis(500);
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long peer servers take to check duplicates of an index that is not large again, and a second more.
const RECHECK_TIMEOUT: Duration = Duration::from_secs(4);

/// Make, list and remove the indexes of a cluster's space
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct IndexCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the indexes
    #[command(alias = "ls", after_help = EXAMPLES)]
    List,
    /// Make an index of the objects of a class and of those that extend it, and wait until it has all of them
    #[command(after_help = EXAMPLES)]
    Create {
        /// Its name
        name: String,
        /// The class
        #[arg(long)]
        class: String,
        /// A field that it is ordered by; several in their order
        #[arg(short, long = "field", value_name = "FIELD", required = true)]
        fields: Vec<String>,
        /// No two objects may have the same values; null is equal to nothing
        #[arg(long)]
        unique: bool,
        /// Do not wait for the end; `mortar job ls` shows it
        #[arg(long, conflicts_with = "unique")]
        detach: bool,
    },
    /// Wait until an index has all objects
    #[command(after_help = EXAMPLES)]
    Build {
        /// Its name
        name: String,
    },
    /// Remove an index; its objects stay
    #[command(after_help = EXAMPLES)]
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Serialize)]
struct IndexLine {
    id: u32,
    name: String,
    class: String,
    fields: Vec<String>,
    unique: bool,
    state: IndexState,
    #[serde(skip_serializing_if = "Option::is_none")]
    flaw: Option<String>,
    /// The job that builds it, or has built it.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
}

impl IndexLine {
    fn of(index: &Index, all: &SchemaAnswer) -> Self {
        let lineage = lineage(index.class, all);
        let class = lineage.first().map_or_else(|| format!("class {}", index.class.0), |class| class.name.clone());
        let fields = index.fields.iter().map(|number| {
            let found = lineage.iter().flat_map(|class| &class.fields).find(|field| field.number == *number);
            found.map_or_else(|| format!("field {number}"), |field| field.name.clone())
        });
        let fields = fields.collect();
        let (name, flaw) = (index.name.clone(), index.flaw.clone());
        let job = index.job.map(|job| job.0);
        Self { id: index.id.0, name, class, fields, unique: index.unique, state: index.state, flaw, job }
    }
}

impl Report for IndexLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let unique = if self.unique { ", unique" } else { "" };
        let state = match self.state {
            IndexState::Building => "building",
            IndexState::Ready => "ready",
        };
        let flaw = self.flaw.as_ref().map(|flaw| format!(": {flaw}")).unwrap_or_default();
        let of = format!("{}  {} by {}{unique}, {state}{flaw}", self.name, self.class, self.fields.join(", "));
        writeln!(out, "{}", Printable(&of))
    }
}

pub(crate) async fn run(args: IndexCommand, session: &mut CommandContext) -> Result {
    session.set_retry(REQUEST_RETRY);
    let client = session.connect().await?;
    match args.action {
        Action::List => {
            let all = ask(&client, &SchemaRequest::Show).await?;
            all.indexes.iter().try_for_each(|index| session.output.print(&IndexLine::of(index, &all)))
        }
        Action::Create { name, class, fields, unique, detach } => {
            let create = SchemaRequest::CreateIndex { name: name.clone(), class, fields, unique };
            let made = ask(&client, &create).await?;
            let index = find_index(made, &name)?;
            if detach {
                let all = ask(&client, &SchemaRequest::Show).await?;
                return session.output.print(&IndexLine::of(&index, &all));
            }
            build(client, session, index, Duration::ZERO).await
        }
        Action::Build { name } => {
            // The duplicates may have been removed and not compared since.
            let all = ask(&client, &SchemaRequest::Show).await?;
            let index = find_index(all, &name)?;
            build(client, session, index, RECHECK_TIMEOUT).await
        }
        Action::Remove { name } => {
            ask(&client, &SchemaRequest::RemoveIndex { name: name.clone() }).await?;
            session.output.print(&RemovalEnd::Removed(name))
        }
    }
}

/// The index with this name.
fn find_index(answer: SchemaAnswer, name: &str) -> Result<Index> {
    let known: Vec<String> = answer.indexes.iter().map(|index| index.name.clone()).collect();
    answer.indexes.into_iter().find(|index| index.name == name).ok_or_else(|| {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Failure::not_found(format!("there is no index {name:?} in this space; there are: {known}"))
    })
}

/// Waits until all logical nodes have entered their objects into an index, binds the values of a unique one, and waits until it is ready.
/// Duplicates count when they are still reported after `recheck`.
/// If the peer server ends, another one of the URL goes on.
async fn build(mut client: AdminClient, session: &mut CommandContext, index: Index, recheck: Duration) -> Result {
    let nodes = client.nodes().await.map_err(|error| {
        let hint =
            format!("The index was created. `mortar index build {}`, at a peer server, waits for it.", index.name);
        Failure::from(error).hint(hint)
    })?;
    let progress = Progress::start_with_unit("building", "pages", &session.output);
    // Since when the brick of a node has not answered.
    let mut away = BTreeMap::new();
    let mut left = nodes;
    while let Some(node) = left.pop() {
        let begun = Instant::now();
        match client.build_index(node, index.id.0).await {
            Ok(is_complete) => {
                show_progress(&client, &index, &progress).await?;
                away.remove(&node);
                if !is_complete {
                    // Other nodes continue meanwhile.
                    left.insert(0, node);
                }
            }
            // An unreachable brick returns; a brick that does not know the index will learn of it.
            Err(error) => {
                let failure = Failure::from(error);
                away.entry(node).or_insert(begun);
                // A brick has many nodes, which are asked in turn.
                let since = away.values().min().copied().unwrap_or(begun);
                let lasts = since.elapsed() < session.timeout();
                if !lasts || !matches!(failure.exit(), Exit::Unavailable | Exit::NotFound) {
                    progress.end();
                    return Err(failure.hint(format!("`mortar index build {}` continues.", index.name)));
                }
                left.insert(0, node);
                go_elsewhere_if_ended(&mut client, session).await;
                time::sleep(RETRY_DELAY).await;
            }
        }
    }
    if index.unique {
        session.cluster().await?.complete_unique_indexes([index.id.0]).await?;
    }
    let ready = wait_ready(&mut client, session, &index.name, Instant::now() + recheck).await;
    progress.end();
    let (index, all) = ready?;
    session.output.print(&IndexLine::of(&index, &all))
}

/// Connects to another server of the URL if this one does not answer.
async fn go_elsewhere_if_ended(client: &mut AdminClient, session: &CommandContext) {
    let is_silent = |error: Error| error.kind() == ErrorKind::Unavailable;
    if client.status().await.is_err_and(is_silent)
        && let Ok(other) = session.connect().await
    {
        *client = other;
    }
}

/// Shows the progress of the job that builds an index.
///
/// # Errors
/// If it was cancelled. The caller, which waits for the index, reports other failures.
async fn show_progress(client: &AdminClient, index: &Index, progress: &Progress) -> Result {
    let Some(job) = index.job else { return Ok(()) };
    if let Ok(view) = job::ask_one(client, &JobRequest::Show { job }).await {
        progress.set_total(0, view.total);
        progress.set_done(0, view.done);
        job::check_end(&view)?;
    }
    Ok(())
}

/// The failure for an index that cannot become ready because of duplicates.
fn not_unique(name: &str, flaw: &str) -> Failure {
    let what = format!("the index {name:?} was created but is not ready: {flaw}");
    let hint = format!(
        "Change or remove one of them, and run `mortar index build {name}`. Or give it up: `mortar index remove {name}`."
    );
    Failure::with(Exit::Failure, "not_unique", what).hint(hint)
}

/// Waits until a peer server reports an index as ready that has all objects.
async fn wait_ready(
    client: &mut AdminClient,
    session: &CommandContext,
    name: &str,
    looked_again: Instant,
) -> Result<(Index, SchemaAnswer)> {
    let until = Instant::now() + READY_TIMEOUT;
    let mut answered_at = Instant::now();
    loop {
        let all = match ask(client, &SchemaRequest::Show).await {
            Ok(all) => all,
            Err(failure) if failure.exit() == Exit::Unavailable && answered_at.elapsed() < session.timeout() => {
                go_elsewhere_if_ended(client, session).await;
                time::sleep(RETRY_DELAY).await;
                continue;
            }
            Err(failure) => return Err(failure.hint(format!("`mortar index build {name}` continues."))),
        };
        answered_at = Instant::now();
        let index = find_index(all.clone(), name)?;
        match (index.state, &index.flaw) {
            (IndexState::Ready, _) => return Ok((index, all)),
            (IndexState::Building, Some(flaw)) if Instant::now() >= looked_again => {
                return Err(not_unique(name, flaw));
            }
            (IndexState::Building, None) if Instant::now() > until => {
                let what = format!("no peer server reports the index {name:?} as ready, although it has all objects");
                let hint = format!("`mortar index build {name}` waits again.");
                return Err(Failure::from(Error::new(ErrorKind::Unavailable, what)).hint(hint));
            }
            (IndexState::Building, _) => time::sleep(RETRY_DELAY).await,
        }
    }
}
