//! `mortar brick accept-loss` and `mortar cluster accept-loss`: go on with a directory that went back in time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use meta::Embedded;
use meta::catalog::{BrickId, CatalogEditor};
use model::{Error, NodeId};
use node::auth::{ClusterCredentials, Secret};
use node::cluster_view::ClusterView;
use node::local_cluster::{SECRET_FILE, brick_directories, data_directory_of};
use node::member;
use node::meta::RemoteMetaStore;
use node::openings::{BrickLoss, Partners, WitnessTable};
use node::process_clock::ProcessClock;
use node::purpose::Purpose;
use protocol::commit::Outcome;
use protocol::commit::reconcile::{Discrepancy, Finding};
use protocol::ident::{HlcTimestamp, TxnId};
use serde::Serialize;
use store::{DirectoryContents, Options, Store};
use wire::handshake;

use super::dev::open_for;
use super::node::{open, open_catalogue};
use crate::failure::{Failure, Result};
use crate::output::{Output, Report, pluralize};
use crate::settings::{PartialSettings, ProcessRole, Settings};
use crate::time::{from_microseconds, to_seconds};

pub(crate) const LOSS_EXAMPLES: &str = "\
Examples:
  mortar brick accept-loss --config brick-1.toml          what would be lost; changes nothing
  mortar brick accept-loss --config brick-1.toml --yes    lose it
  mortar brick accept-loss --data mortar-data/brick-2     the same for a brick of `mortar dev`, which must not run

The command compares the transactions of this brick with those of the other bricks. It lists the transactions that this brick has lost, the transactions
that it completes when it starts, and the transactions of which no brick has the outcome. Keep the list: the command cannot make it again after the loss
is accepted. The other bricks forget a transaction two minutes after this brick has acknowledged its outcome, so run the command at once.

It is needed too after `mortar repair --accept-loss` gave up transactions or rows of a brick with a process of its own.

First look for the newer directory: if it is put back, nothing is lost. Otherwise every transaction that the brick forced after its
directory was copied is gone at this brick, while its parts at other bricks remain. Names, references and index entries at other
bricks may name objects that do not exist any more. Then `mortar node --config brick-1.toml` serves what is left.

The brick must not run. With --config the meta-server must (`mortar node --config meta.toml`), and the other bricks should: only processes
that run are asked what they saw. Repeat the command if it was interrupted.";

pub(crate) const CATALOGUE_LOSS_EXAMPLES: &str = "\
Examples:
  mortar cluster accept-loss --config meta.toml           what it would do; changes nothing
  mortar cluster accept-loss --config meta.toml --yes     do it

First look for the newer directory: if it is put back, nothing is lost. Otherwise every change of the catalogue after its directory
was copied is gone: spaces, classes, users, and moves of logical nodes. A brick that was added after that is unknown. Bricks that
served logical nodes which moved meanwhile refuse them. Counters rise to what the bricks saw when they start or reconnect, so that
no number is given twice. Start the bricks before you create anything.

The meta-server must not run.";

/// Which process, and whether to do it.
#[derive(Args)]
pub(crate) struct AcceptLoss {
    /// The file with the settings of the process
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Do it; without this, only say what it costs
    #[arg(long)]
    yes: bool,
}

impl AcceptLoss {
    fn settings(&self, role: ProcessRole) -> Result<Settings> {
        let settings = Settings::resolve(PartialSettings::read(&self.config)?)?;
        if settings.role != role || settings.data.is_none() && settings.etcd.is_none() {
            let what = format!("{} is no file of a {} that keeps its data", self.config.display(), role.title());
            return Err(Failure::usage(what));
        }
        Ok(settings)
    }
}

/// Which brick, and whether to do it.
#[derive(Args)]
pub(crate) struct AcceptBrickLoss {
    /// The file with the settings of the process
    #[arg(long, value_name = "FILE", required_unless_present = "data", conflicts_with = "data")]
    config: Option<PathBuf>,
    /// The directory of a brick of `mortar dev`, such as mortar-data or mortar-data/brick-2
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Do it; without this, only say what it costs
    #[arg(long)]
    yes: bool,
}

/// What is lost, and whether it was accepted.
#[derive(Serialize)]
pub(super) struct BrickLossReport {
    brick: BrickId,
    accepted: bool,
    /// The last position of the directory.
    position: u64,
    /// The highest position that is known.
    known_position: u64,
    /// The last opening of the directory, and the last one that is known.
    opening: u64,
    known_opening: u64,
    /// Logical nodes that lose changes.
    nodes: u64,
    /// Logical nodes that move from or to the brick, and stay where they are.
    moving: u64,
    /// Processes that saw more.
    witnesses: Vec<String>,
    /// The last transaction that a repair kept, if it gave up those behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<u64>,
    /// Ranges of rows that a repair gave up.
    lost_row_ranges: u64,
    /// Transactions that the brick and others know differently.
    transactions: Vec<TransactionLine>,
    /// Bricks that were not asked for transactions, because they do not run.
    unasked: Vec<BrickId>,
    /// Logical nodes of the brick of which it cannot be read what they know of transactions.
    unreadable_nodes: Vec<String>,
    /// Whether others know of more transactions than are listed.
    more_transactions: bool,
}

/// A transaction that a brick and others know differently.
#[derive(Serialize)]
struct TransactionLine {
    transaction: String,
    /// When it began.
    begun: String,
    /// Logical nodes of the brick, and of other bricks.
    nodes: Vec<String>,
    partners: Vec<String>,
    partner_bricks: BTreeSet<BrickId>,
    /// `part_lost`, `vote_lost`, `completed`, `outcome_lost` or `mixed_outcome`.
    finding: &'static str,
    /// The outcome at the partners: `committed` or `aborted`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    /// When it was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
}

impl TransactionLine {
    /// One for each transaction and finding, in the order in which they began.
    fn all(partners: &Partners) -> Vec<Self> {
        let mut found = BTreeMap::<(TxnId, Finding), (BTreeSet<NodeId>, BTreeSet<NodeId>)>::new();
        for Discrepancy { txn, node, partner, finding } in partners.discrepancies() {
            let (nodes, others) = found.entry((txn, finding)).or_default();
            nodes.insert(node);
            others.insert(partner);
        }
        let line = |((txn, finding), (nodes, others))| Self::new(partners, txn, finding, (nodes, others));
        found.into_iter().map(line).collect()
    }

    fn new(
        partners: &Partners,
        txn: TxnId,
        finding: Finding,
        (nodes, others): (BTreeSet<NodeId>, BTreeSet<NodeId>),
    ) -> Self {
        let (name, outcome) = match finding {
            Finding::PartLost(at) => ("part_lost", Some(Outcome::Committed(at))),
            Finding::VoteLost => ("vote_lost", None),
            Finding::Completes(outcome) => ("completed", Some(outcome)),
            Finding::OutcomeLost => ("outcome_lost", None),
            Finding::Mixed(outcome) => ("mixed_outcome", Some(outcome)),
        };
        let time = |at: HlcTimestamp| to_seconds(&from_microseconds(i64::try_from(at.ms() * 1000).unwrap_or(i64::MAX)));
        let hex = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|node| format!("{:x}", node.0)).collect();
        Self {
            transaction: format!("{txn:?}"),
            begun: time(txn.start),
            nodes: hex(&nodes),
            partners: hex(&others),
            partner_bricks: others.iter().filter_map(|node| partners.brick_of(*node)).collect(),
            finding: name,
            outcome: outcome.map(|outcome| if outcome == Outcome::Aborted { "aborted" } else { "committed" }),
            committed: outcome.and_then(|outcome| match outcome {
                Outcome::Committed(at) => Some(time(at)),
                Outcome::Aborted => None,
            }),
        }
    }

    /// What has become of it, or becomes of it when the loss is accepted.
    fn explanation(&self) -> &'static str {
        match (self.finding, self.outcome) {
            ("part_lost", _) => "is committed there and not known here: its part here may be lost",
            ("vote_lost", _) => {
                "is prepared there and not known here: its part here is lost. There it is aborted, unless it was committed meanwhile: its client may have heard so"
            }
            ("completed", Some("committed")) => {
                "is prepared here and committed there: it is completed when the brick starts"
            }
            ("completed", _) => "is prepared here and aborted there: it is aborted when the brick starts",
            ("outcome_lost", _) => {
                "is prepared here, and its outcome is forgotten there: it is aborted here when the brick starts, and may be committed there"
            }
            (_, Some("committed")) => "is aborted here and committed there: its part here is lost",
            _ => "is committed here and aborted there: its part there is lost",
        }
    }
}

impl Display for TransactionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transaction, begun, nodes, partners, partner_bricks, .. } = self;
        let bricks: Vec<String> = partner_bricks.iter().map(ToString::to_string).collect();
        write!(
            f,
            "transaction {transaction} of {begun}, at logical node {} here and {} of brick {}: {}",
            nodes.join(", "),
            partners.join(", "),
            bricks.join(", "),
            self.explanation()
        )
    }
}

impl BrickLossReport {
    fn new(loss: &BrickLoss, accepted: bool) -> Self {
        let known = loss.known.and_then(|known| known.latest()).into_iter();
        let known = known.chain(loss.witnesses.iter().map(|one| one.seen.forced.opening)).map(|opening| opening.number);
        Self {
            brick: loss.brick,
            accepted,
            position: loss.position,
            known_position: loss.highest_position(),
            opening: loss.last.map_or(0, |last| last.number),
            known_opening: known.max().unwrap_or(0),
            nodes: loss.nodes.len() as u64,
            moving: loss.moving.len() as u64,
            witnesses: witness_names(loss),
            kept: loss.given_up.as_ref().and_then(|given_up| given_up.kept),
            lost_row_ranges: loss.given_up.as_ref().map_or(0, |given_up| given_up.rows.len() as u64),
            transactions: TransactionLine::all(&loss.partners),
            unasked: loss.partners.silent().iter().copied().collect(),
            unreadable_nodes: loss.partners.unreadable().iter().map(|node| format!("{:x}", node.0)).collect(),
            more_transactions: loss.partners.is_incomplete(),
        }
    }

    /// What other bricks know of transactions that this one has lost.
    fn write_transactions(&self, out: &mut dyn Write) -> io::Result<()> {
        self.transactions.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        if self.more_transactions {
            writeln!(out, "  and other bricks know of more transactions than they have told")?;
        }
        for brick in &self.unasked {
            let (what, hint) = ("knows of transactions is not compared", "start it before you accept anything");
            writeln!(out, "  what brick {brick} {what}, because it does not answer: {hint}")?;
        }
        for node in &self.unreadable_nodes {
            writeln!(out, "  what logical node {node} knew of transactions cannot be read, and is not compared")?;
        }
        Ok(())
    }
}

/// The processes that saw more, each once, however many openings it saw. Shorter names come first, so numbers are in order.
fn witness_names(loss: &BrickLoss) -> Vec<String> {
    let names: BTreeSet<(usize, &String)> =
        loss.witnesses.iter().map(|one| (one.witness.len(), &one.witness)).collect();
    names.into_iter().map(|(_, name)| name.clone()).collect()
}

impl Report for BrickLossReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { brick, position, known_position, opening, known_opening, .. } = self;
        let nodes = pluralize(self.nodes, "logical node", "logical nodes");
        writeln!(out, "brick {brick}: the directory ends at position {position} of opening {opening}")?;
        writeln!(out, "  known elsewhere: position {known_position}, opening {known_opening}")?;
        self.witnesses.iter().try_for_each(|witness| writeln!(out, "  seen by {witness}"))?;
        if let Some(kept) = self.kept {
            writeln!(out, "  a repair gave up all transactions after {kept}")?;
        }
        if self.lost_row_ranges > 0 {
            let ranges = pluralize(self.lost_row_ranges, "range", "ranges");
            writeln!(out, "  a repair gave up the rows of {ranges} of keys")?;
        }
        self.write_transactions(out)?;
        if self.moving > 0 {
            let moves = pluralize(self.moving, "move", "moves");
            let what = if self.accepted { "were cancelled" } else { "would be cancelled" };
            writeln!(out, "  {moves} of logical nodes from or to the brick {what}: repeat `mortar remap` later")?;
        }
        if self.accepted {
            writeln!(out, "Accepted. Start the brick; its {nodes} count one more move.")?;
            if self.lost_row_ranges > 0 {
                writeln!(
                    out,
                    "Then `mortar scrub --repair --yes --references` puts right what belonged or leads to lost rows."
                )?;
            }
            return Ok(());
        }
        if known_position > position {
            writeln!(
                out,
                "Accepting loses everything after that position in {nodes}: at least {} changes,",
                known_position - position
            )?;
            return writeln!(out, "more if the last position that is known was not the last one. Add --yes to do it.");
        }
        writeln!(out, "Accepting makes what is left the newest state of {nodes}. Add --yes to do it.")
    }
}

pub(super) async fn accept_brick_loss(args: AcceptBrickLoss, output: &mut Output) -> Result {
    match (args.config, args.data) {
        (Some(config), _) => accept_loss_of_process(AcceptLoss { config, yes: args.yes }, output).await,
        (None, Some(data)) => output.print(&accept_loss_below(&data, args.yes).await?),
        (None, None) => Err(Failure::usage("the brick is not named: give --config FILE or --data DIR")),
    }
}

/// Accepts the loss of a brick with a process of its own.
async fn accept_loss_of_process(args: AcceptLoss, output: &mut Output) -> Result {
    let settings = args.settings(ProcessRole::Brick)?;
    settings.data.as_deref().map_or(Ok(()), require_store)?;
    let store = open(&settings, Purpose::Brick)?;
    let membership = settings.membership()?;
    let remote = RemoteMetaStore::new_as(settings.meta.clone(), membership.clone(), handshake::Role::Brick)?;
    // The horizon of the brick rises to the time of the cluster, not to that of this machine.
    let clock = ProcessClock::of_member();
    clock.compare_until_known(&remote).await?;
    let view = ClusterView::follow_with(Arc::new(remote), WitnessTable::new(), clock).await?;
    let loss = BrickLoss::examine(&view, &store, brick_of(&store)?, &membership).await?;
    accept(&loss, &view, &store, args.yes).await?;
    store.close()?;
    output.print(&BrickLossReport::new(&loss, args.yes))
}

/// Accepts the loss of a brick of `mortar dev`. The catalogue is in the first brick's directory; other bricks do not run, but keep what they
/// saw.
pub(super) async fn accept_loss_below(data: &Path, yes: bool) -> Result<BrickLossReport> {
    let below = data_directory_of(data);
    let whole = below.as_deref().unwrap_or(data);
    require_store(whole)?;
    require_store(data)?;
    // Other users have entered the directory already, if they can.
    let options = || Options { allow_loose_permissions: true, ..Options::default() };
    let first = open_for(whole, Purpose::Whole, options())?;
    let further = match &below {
        Some(_) => Some(open_for(data, Purpose::Brick, options())?),
        None => None,
    };
    let store = further.as_ref().unwrap_or(&first);
    let catalogue = Arc::new(Embedded::open(&first)?);
    if yes && further.is_none() && first.loss()?.is_some_and(|loss| loss.kept.is_some()) {
        // Its own changes were among the lost transactions.
        CatalogEditor::new(catalogue.clone()).accept_own_loss().await.map_err(Error::from)?;
    }
    let view = ClusterView::follow(catalogue).await?;
    let secret = whole.join(SECRET_FILE);
    let secret = if secret.exists() { Some(Secret::load(&secret)?) } else { None };
    let credentials = ClusterCredentials { secret, ..ClusterCredentials::default() };
    let mut loss = BrickLoss::examine(&view, store, brick_of(store)?, &credentials).await?;
    match further {
        Some(_) => loss.add_kept(&first)?,
        None if loss.given_up.is_none() => {
            let what = format!("no repair gave up anything in {}, which has the catalogue, too", whole.display());
            return Err(Failure::usage(what)
                .hint("If it is older than the others, put the newer one back, or restore a backup."));
        }
        None => {}
    }
    for other in brick_directories(whole).iter().filter(|other| other.file_name() != data.file_name()) {
        let other = open_for(other, Purpose::Brick, options())?;
        loss.add_kept(&other)?;
        other.close()?;
    }
    accept(&loss, &view, store, yes).await?;
    drop(view);
    further.map_or(Ok(()), Store::close)?;
    first.close()?;
    Ok(BrickLossReport::new(&loss, yes))
}

/// Refuses a directory without a store, which opening it would make.
fn require_store(data: &Path) -> Result {
    let missing = match DirectoryContents::of(data)? {
        DirectoryContents::Missing => format!("there is no directory {}", data.display()),
        DirectoryContents::Empty => format!("there is no store in {}", data.display()),
        _ => return Ok(()),
    };
    Err(Failure::not_found(missing))
}

fn brick_of(store: &Store) -> Result<BrickId> {
    member::stored_brick(store)?.ok_or_else(|| Failure::usage("the directory belongs to no brick"))
}

/// Accepts a loss, if there is one and that is asked for.
async fn accept(loss: &BrickLoss, view: &ClusterView, store: &Store, yes: bool) -> Result {
    if !loss.is_any() {
        return Err(Failure::usage(format!("nothing shows that brick {} went back in time: start it", loss.brick)));
    }
    if yes {
        loss.accept(view.editor()?, store).await?;
    }
    Ok(())
}

/// The revision with which a catalogue goes on.
#[derive(Serialize)]
struct CatalogueLossReport {
    accepted: bool,
    revision: u64,
    opening: u64,
}

impl Report for CatalogueLossReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { revision, opening, .. } = self;
        writeln!(out, "the catalogue is at revision {revision}, opening {opening}")?;
        match self.accepted {
            true => writeln!(out, "Accepted. Start the meta-server, then the bricks, and only then change anything."),
            false => writeln!(out, "Accepting loses every later change of it. Add --yes to do it."),
        }
    }
}

pub(super) async fn accept_catalogue_loss(args: AcceptLoss, output: &mut Output) -> Result {
    let settings = args.settings(ProcessRole::Meta)?;
    settings.data.as_deref().map_or(Ok(()), require_store)?;
    let (store, catalogue) = open_catalogue(&settings)?;
    let editor = CatalogEditor::new(catalogue);
    let mut history = editor.own_openings().await.map_err(Error::from)?;
    if args.yes {
        history = editor.accept_own_loss().await.map_err(Error::from)?.value;
    }
    let revision = editor.store().get(Vec::new()).await?.revision.0;
    let opening = history.last().map_or(0, |last| last.number);
    drop(editor);
    store.map_or(Ok(()), Store::close)?;
    output.print(&CatalogueLossReport { accepted: args.yes, revision, opening })
}
