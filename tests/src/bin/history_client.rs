//! A process that is one client of a cluster, and so, with `?group=NAME` in its URL, a member of a group: a test can kill and stop it.
//!
//! `history-client URL` executes the transactions that are requested on its standard input and replies on its standard output, in
//! the lines that the package documentation of java/histories describes. It has other options: `locks` and `snapshot` are levels,
//! `for-update` announces writes before reads, `resolve` asks for an outcome that has not arrived. A thread is a task here; all
//! of them use one client with one cache.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use client::{Client, CommitOutcome, ConflictReason, ConnectOptions, Error, ErrorKind, IsolationLevel};
use model::Oid;
use mortar_tests::acts::{Act, run_acts};
use mortar_tests::keyed_objects::{KeyedObject, ObjectForm};
use tokio::runtime::Runtime;
use tokio::time;

/// Timeout of a client while servers fail.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// A transaction to execute.
struct Request {
    number: u64,
    level: IsolationLevel,
    /// Whether to announce writes before reading the objects.
    ahead: bool,
    /// Whether to ask for an outcome that has not arrived.
    resolves: bool,
    acts: Vec<Act>,
}

fn main() -> Result<(), String> {
    let url = std::env::args().nth(1).ok_or("history-client URL")?;
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let client = Arc::new(runtime.block_on(connect(&url)).map_err(|error| error.to_string())?);
    reply(0, "ready");
    let mut objects = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if let Some(object) = line.strip_prefix("object ") {
            let object = parse_object(object).ok_or_else(|| format!("not an object: {line}"))?;
            objects.insert(object.key.clone(), object);
            continue;
        }
        let request = parse_request(&line, &objects).ok_or_else(|| format!("not a request: {line}"))?;
        let client = client.clone();
        runtime.spawn(async move {
            let ended = execute(&client, &request).await;
            reply(request.number, &ended);
        });
    }
    Ok(())
}

/// Connects, and waits while no server answers.
async fn connect(url: &str) -> client::Result<Client> {
    let mut options = ConnectOptions::default();
    options.timeout = TIMEOUT;
    options.connect_timeout = TIMEOUT;
    options.snapshots = true;
    loop {
        match Client::connect_with(url, options.clone()).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => time::sleep(CONNECT_INTERVAL).await,
            connected => return connected,
        }
    }
}

/// Writes a line in one piece.
fn reply(number: u64, what: &str) {
    // Without a reader nobody needs the reply.
    let _ = io::stdout().lock().write_all(format!("{number} {what}\n").as_bytes());
}

/// Parses `KEY OID`.
fn parse_object(text: &str) -> Option<KeyedObject> {
    let (key, oid) = text.split_once(' ')?;
    let oid: Oid = oid.parse().ok()?;
    Some(KeyedObject { key: key.to_owned(), oid, form: ObjectForm::of_class(oid.class()) })
}

/// Parses `run NUMBER THREAD OPTIONS ACT…`.
fn parse_request(line: &str, objects: &HashMap<String, KeyedObject>) -> Option<Request> {
    let mut words = line.strip_prefix("run ")?.split(' ');
    let number = words.next()?.parse().ok()?;
    let (_thread, options) = (words.next()?, words.next()?);
    let mut request =
        Request { number, level: IsolationLevel::Optimistic, ahead: false, resolves: false, acts: Vec::new() };
    for option in options.split(',') {
        match option {
            "-" => {}
            "locks" => request.level = IsolationLevel::Locks,
            "snapshot" => request.level = IsolationLevel::Snapshot,
            "for-update" => request.ahead = true,
            "resolve" => request.resolves = true,
            _ => return None,
        }
    }
    let acts: Option<Vec<Act>> = words.map(|word| Act::parse(word, |key| objects.get(key).cloned())).collect();
    request.acts = acts?;
    Some(request)
}

/// Executes a transaction and returns the last reply.
async fn execute(client: &Client, request: &Request) -> String {
    let t = client.begin(request.level);
    let mut steps = Vec::new();
    if let Err(error) = run_acts(&t, &request.acts, request.ahead, &mut steps).await {
        t.abort();
        return failure(&error);
    }
    match serde_json::to_string(&steps) {
        Ok(steps) => reply(request.number, &format!("steps {steps}")),
        Err(error) => return format!("error {error}"),
    }
    let mut ended = t.commit().await;
    if let Ok(CommitOutcome::Unknown(txn)) = ended
        && request.resolves
    {
        ended = Ok(client.outcome(txn).await.unwrap_or(CommitOutcome::Unknown(txn)));
    }
    match ended {
        Ok(CommitOutcome::Committed(_)) => "committed".to_owned(),
        Ok(CommitOutcome::Conflict(why @ ConflictReason::Object(oid, _))) => format!("conflict {oid} {why}"),
        Ok(CommitOutcome::Conflict(why)) => format!("conflict - {why}"),
        Ok(CommitOutcome::Unknown(txn)) => format!("unknown {txn:?}"),
        Err(error) => failure(&error),
    }
}

fn failure(error: &Error) -> String {
    let message = error.to_string().replace('\n', " ");
    match error.kind() {
        ErrorKind::Conflict => match error.object() {
            Some(oid) => format!("conflict {oid} {message}"),
            None => format!("conflict - {message}"),
        },
        ErrorKind::Unavailable | ErrorKind::Full => format!("retryable {message}"),
        ErrorKind::Unknown => format!("unknown {message}"),
        kind => format!("error {kind:?}: {message}"),
    }
}
