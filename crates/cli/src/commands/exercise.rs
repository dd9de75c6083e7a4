//! `mortar exercise`: transfers coins between accounts at all bricks, and checks their sum at the end.
//!
//! A transfer reads and writes objects at two logical nodes. It takes effect at both or at neither, whatever process or
//! connection fails meanwhile, so the sum stays the same.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use client::{Client, Event, PlacementHint, Transaction};
use model::{ClassId, Error, ErrorKind, Object, Oid};
use serde::Serialize;
use tokio::time;
use wire::tasks;

use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanCount, Report, warn};
use crate::progress::Progress;

/// The initial balance of each account.
const COINS_PER_ACCOUNT: u64 = 1_000;
/// The prefix of the accounts' names.
const ACCOUNTS_PREFIX: &str = "exercise/accounts";

/// Pause of a client after a failed transfer, and between attempts to count.
const PAUSE: Duration = Duration::from_millis(500);
/// How long counting waits for unreachable bricks.
const COUNT_TIMEOUT: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "\
Examples:
  mortar exercise                                  ten seconds, eight clients
  mortar exercise --seconds 60 --clients 32        kill -9 a brick meanwhile, and start it again
  mortar exercise --json

While a brick is unreachable, or the space is stopped, it reports that and waits. Exit code 0: transfers were made and the sum is right. 5: no \
transfer could be made. 6: the sum is wrong; please report it. 9: no permission to write.";

/// Transfer coins between accounts at all bricks, and check their sum
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Exercise {
    /// How long
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Clients at a time
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = value_parser!(u16).range(1..=1_024))]
    clients: u16,
    /// Accounts, spread over all logical nodes of the space
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = value_parser!(u16).range(2..=10_000))]
    accounts: u16,
}

/// The results of the clients.
#[derive(Default)]
struct Tally {
    transfers: AtomicU64,
    tries: AtomicU64,
    unknown: AtomicU64,
    failed: AtomicU64,
}

#[derive(Serialize)]
struct ExerciseReport {
    accounts: u64,
    clients: u64,
    seconds: f64,
    transfers: u64,
    /// Attempts that conflicted.
    conflicts: u64,
    /// Transfers whose outcome could not be determined in time.
    unknown: u64,
    /// Transfers that failed.
    failed: u64,
    p50_us: u64,
    p99_us: u64,
    longest_us: u64,
    coins: u64,
    expected: u64,
}

impl Report for ExerciseReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { accounts, clients, seconds, coins, expected, .. } = self;
        let rate = self.transfers as f64 / seconds;
        writeln!(out, "{} transfers in {seconds:.1} s, {rate:.0}/s, by {clients} clients", HumanCount(self.transfers))?;
        writeln!(out, "latency: median {} µs, p99 {} µs, maximum {} µs", self.p50_us, self.p99_us, self.longest_us)?;
        writeln!(out, "{} conflicts; {} failed, {} unknown", self.conflicts, self.failed, self.unknown)?;
        let verdict = if coins == expected { "all there" } else { "WRONG" };
        writeln!(out, "{coins} coins in {accounts} accounts, {expected} expected: {verdict}")
    }
}

pub(crate) async fn run(args: Exercise, session: &mut CommandContext) -> Result {
    let first = session.cluster().await?;
    let accounts: Arc<[Oid]> = open_accounts(&first, args.accounts).await?.into();
    let tally = Arc::new(Tally::default());
    let progress = Progress::start("transferring", &session.output);
    let reporter = tasks::spawn(report_events(first.clone(), progress.clone(), session.output.json()));
    let mut connected = Vec::new();
    for number in 0..args.clients {
        let cluster = session.cluster().await?;
        let (accounts, tally, progress) = (accounts.clone(), tally.clone(), progress.clone());
        connected.push(TransferClient { cluster, accounts, tally, progress, state: u64::from(number) * 7_919 + 1 });
    }
    // The time counts from when all clients are connected.
    let (begun, end) = (Instant::now(), Instant::now() + Duration::from_secs(args.seconds.into()));
    let clients: Vec<_> = connected.into_iter().map(|client| tasks::spawn(client.run(end))).collect();
    let (mut took, mut refused) = (Vec::new(), None);
    for client in clients {
        match client.await.map_err(|error| Failure::new(format!("a client ended early: {error}")))? {
            Ok(transfers) => took.extend(transfers),
            Err(failure) => drop(refused.get_or_insert(failure)),
        }
    }
    if let Some(failure) = refused {
        reporter.abort();
        progress.end();
        return Err(failure);
    }
    let seconds = begun.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |part: f64| took.get((took.len() as f64 * part) as usize).copied().unwrap_or_default();
    let coins = count_coins_with_retry(&first, &accounts).await;
    reporter.abort();
    progress.end();
    let coins = coins?;
    let transfers = tally.transfers.load(Ordering::Relaxed);
    let (unknown, failed) = (tally.unknown.load(Ordering::Relaxed), tally.failed.load(Ordering::Relaxed));
    let report = ExerciseReport {
        accounts: args.accounts.into(),
        clients: args.clients.into(),
        seconds,
        transfers,
        conflicts: tally.tries.load(Ordering::Relaxed).saturating_sub(transfers + unknown + failed),
        unknown,
        failed,
        p50_us: at(0.5),
        p99_us: at(0.99),
        longest_us: took.last().copied().unwrap_or_default(),
        coins,
        expected: COINS_PER_ACCOUNT * u64::from(args.accounts),
    };
    session.output.print(&report)?;
    if report.coins != report.expected {
        let (found, expected) = (report.coins, report.expected);
        return Err(Failure::corrupt(format!("there are {found} coins where there should be {expected}")));
    }
    if report.transfers == 0 {
        let what = format!("no transfer was made in {} s: {failed} have failed, {unknown} are unknown", args.seconds);
        return Err(Failure::with(Exit::Unavailable, "unavailable", what).hint("mortar cluster status"));
    }
    Ok(())
}

/// The accounts. Missing ones are created, each at the next logical node.
async fn open_accounts(cluster: &Client, accounts: u16) -> Result<Vec<Oid>> {
    let nodes = cluster.nodes();
    let mut opened = Vec::with_capacity(accounts.into());
    for account in 0..accounts {
        let path = &format!("{ACCOUNTS_PREFIX}/{account}");
        let node = *nodes.get(usize::from(account) % nodes.len().max(1)).ok_or_else(|| {
            Failure::new("the space has no logical nodes: it needs a brick").hint("mortar cluster status")
        })?;
        let (oid, transaction) = cluster
            .transact(|t| async move {
                if let Some(oid) = t.resolve(path).await? {
                    return Ok((oid, t));
                }
                let oid = t.create_object(ClassId::NONE, account_object(COINS_PER_ACCOUNT), PlacementHint::At(node))?;
                t.bind(path, oid).await?;
                Ok((oid, t))
            })
            .await?;
        opened.push(transaction.real_oid(oid).unwrap_or(oid));
    }
    Ok(opened)
}

fn account_object(count: u64) -> Object {
    Object::blob(count.to_le_bytes().to_vec().into())
}

/// The balance of an account.
async fn balance(t: &Transaction, oid: Oid) -> client::Result<u64> {
    let object = t.get(oid).await?;
    let bytes = object.as_ref().and_then(|object| object.data.as_ref().try_into().ok());
    let no_account = || {
        Error::new(
            ErrorKind::NotFound,
            format!("{oid} is not an account: the name prefix {ACCOUNTS_PREFIX} is used for other objects"),
        )
    };
    bytes.map(u64::from_le_bytes).ok_or_else(no_account)
}

/// The sum of all balances, in one transaction.
async fn count_coins(cluster: &Client, accounts: &[Oid]) -> Result<u64> {
    let counted = cluster.transact(|t| async move {
        let mut sum = 0;
        for oid in accounts {
            sum += balance(&t, *oid).await?;
        }
        Ok(sum)
    });
    Ok(counted.await?)
}

/// The sum of all balances; repeats the transaction while bricks are unreachable.
async fn count_coins_with_retry(cluster: &Client, accounts: &[Oid]) -> Result<u64> {
    let until = Instant::now() + COUNT_TIMEOUT;
    loop {
        match count_coins(cluster, accounts).await {
            Err(failure) if failure.exit() == Exit::Unavailable && Instant::now() < until => time::sleep(PAUSE).await,
            counted => {
                return counted.map_err(|failure| {
                    failure.hint("The coins could not be counted; this does not mean that any is lost. Try again.")
                });
            }
        }
    }
}

/// Reports events that make transfers wait.
async fn report_events(cluster: Client, progress: Progress, json: bool) {
    let Ok(mut events) = cluster.events() else { return };
    while let Some(event) = events.next().await {
        let message = match &event {
            Event::BrickFailed(_) => format!("{event}: transfers that need it wait"),
            Event::Stopped { .. } | Event::Resumed | Event::BrickRecovered(_) => event.to_string(),
            Event::Disconnected { .. } | Event::Refused { .. } => event.to_string(),
            _ => continue,
        };
        progress.suspend(|| warn(json, "exercise", &message));
    }
}

/// Whether the failure may end without intervention.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Stopped | ErrorKind::Conflict | ErrorKind::Full)
}

/// One client.
struct TransferClient {
    cluster: Client,
    accounts: Arc<[Oid]>,
    tally: Arc<Tally>,
    progress: Progress,
    state: u64,
}

impl TransferClient {
    /// Makes transfers until `end`. Returns the duration of each transfer, in microseconds.
    ///
    /// # Errors
    /// Permanent failures, such as a missing permission.
    async fn run(mut self, end: Instant) -> Result<Vec<u64>> {
        let mut took = Vec::new();
        while Instant::now() < end {
            let (from, to, amount) = (self.random_account(), self.random_account(), self.next_random() % 10 + 1);
            if from == to {
                continue;
            }
            let (begun, tries) = (Instant::now(), &self.tally.tries);
            let transferred = self.cluster.transact(|t| async move {
                tries.fetch_add(1, Ordering::Relaxed);
                let (have, other) = (balance(&t, from).await?, balance(&t, to).await?);
                let amount = amount.min(have);
                t.put(from, account_object(have - amount)).await?;
                t.put(to, account_object(other + amount)).await
            });
            let transferred = transferred.await;
            // A stopped space refuses at once.
            let rests = transferred.as_ref().is_err_and(|error| error.kind() != ErrorKind::Unknown);
            let counter = match transferred {
                Ok(()) => {
                    took.push(begun.elapsed().as_micros() as u64);
                    self.progress.advance(0, 1);
                    &self.tally.transfers
                }
                Err(error) if error.kind() == ErrorKind::Unknown => &self.tally.unknown,
                Err(error) if is_transient(error.kind()) => &self.tally.failed,
                Err(error) => return Err(error.into()),
            };
            counter.fetch_add(1, Ordering::Relaxed);
            if rests {
                time::sleep(PAUSE.min(end.saturating_duration_since(Instant::now()))).await;
            }
        }
        Ok(took)
    }

    fn random_account(&mut self) -> Oid {
        let at = self.next_random() as usize % self.accounts.len();
        self.accounts[at]
    }

    /// A pseudo-random number: xorshift.
    fn next_random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}
