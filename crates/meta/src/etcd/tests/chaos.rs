//! Leaders are killed and stopped while clients write and watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;

use super::*;
use crate::{WatchBatch, WatchEvent};

const WRITERS: usize = 4;
const COUNTERS: usize = 2;
/// Acknowledged writes between two faults.
const WRITES_BETWEEN_FAULTS: usize = 25;

/// The writes of one writer, each with a unique name.
#[derive(Default)]
struct WriterLog {
    /// Writes that took effect, with their revisions.
    done: BTreeMap<String, Revision>,
    /// Writes with an unknown outcome.
    unknown: BTreeSet<String>,
    /// Writes that did not take effect.
    failed: BTreeSet<String>,
}

struct ChaosRun {
    store: Etcd,
    acknowledged: AtomicUsize,
    stop: AtomicBool,
}

/// Makes writes that each increment a counter, put a key of their own, and put their name into a shared key.
async fn write(run: Arc<ChaosRun>, writer: usize) -> WriterLog {
    let mut known = WriterLog::default();
    let mut number = 0;
    while !run.stop.load(Ordering::SeqCst) {
        let counter = key(&format!("count/{}", number % COUNTERS));
        let Ok(state) = run.store.get(vec![counter.clone()]).await else { continue };
        let entry = state.entry(&counter);
        let count: u64 = entry.map_or(0, |entry| str::from_utf8(&entry.value).unwrap().parse().unwrap());
        let name = format!("w{writer}.{number}");
        number += 1;
        let expect = Expect { key: counter.clone(), revision: entry.map(|entry| entry.revision) };
        let changes = vec![
            KeyChange::put(counter, (count + 1).to_string()),
            KeyChange::put(key(&format!("own/{name}")), name.clone()),
            KeyChange::put(key("last"), name.clone()),
        ];
        match run.store.write(vec![expect], changes).await {
            Ok(WriteOutcome::Done(revision)) => {
                run.acknowledged.fetch_add(1, Ordering::SeqCst);
                known.done.insert(name, revision);
            }
            Ok(WriteOutcome::Conflict) => drop(known.failed.insert(name)),
            Err(error) if error.kind() == ErrorKind::Unknown => drop(known.unknown.insert(name)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                known.failed.insert(name);
            }
        }
    }
    known
}

/// Watches up to the key `end`.
async fn watch(store: Etcd, after: Revision) -> Vec<WatchBatch> {
    let mut watch = store.watch(Prefix::all(), after).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let WatchEvent::Changed(batch) = watch.next().await.unwrap() else { panic!("nothing was compacted") };
        let is_end = batch.changes.iter().any(|one| one.key == key("end"));
        seen.push(batch);
        if is_end {
            return seen;
        }
    }
}

/// Waits for this many more acknowledged writes.
async fn wait_for_progress(run: &ChaosRun) {
    let goal = run.acknowledged.load(Ordering::SeqCst) + WRITES_BETWEEN_FAULTS;
    while run.acknowledged.load(Ordering::SeqCst) < goal {
        time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_is_lost_or_repeated_when_leaders_fail() {
    let mut servers = Servers::start(3).await;
    let config = EtcdConfig { attempt_timeout: Duration::from_millis(700), ..servers.config() };
    let store = Etcd::new(&config).unwrap();
    let start = store.read(Prefix::all()).await.unwrap().revision;
    let run = Arc::new(ChaosRun { store, acknowledged: AtomicUsize::new(0), stop: AtomicBool::new(false) });
    let watchers: Vec<_> = (0..2).map(|_| tokio::spawn(watch(Etcd::new(&config).unwrap(), start))).collect();
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(run.clone(), writer))).collect();

    let misfortunes = async {
        for round in 0..4 {
            wait_for_progress(&run).await;
            let leader = servers.leader().await;
            if round % 2 == 0 {
                servers.kill(leader);
                wait_for_progress(&run).await;
                servers.run(leader);
            } else {
                servers.signal(leader, Signal::STOP);
                wait_for_progress(&run).await;
                servers.signal(leader, Signal::CONT);
            }
        }
        wait_for_progress(&run).await;
    };
    time::timeout(Duration::from_secs(120), misfortunes).await.expect("no write was acknowledged for 120 s");

    run.stop.store(true, Ordering::SeqCst);
    let mut known = WriterLog::default();
    for writer in writers {
        let WriterLog { done, unknown, failed } = writer.await.unwrap();
        known.done.extend(done);
        known.unknown.extend(unknown);
        known.failed.extend(failed);
    }
    assert!(is_done(run.store.write(vec![], vec![KeyChange::put(key("end"), "")]).await));
    let mut histories = Vec::new();
    for watcher in watchers {
        histories.push(watcher.await.unwrap());
    }
    let state = run.store.read(Prefix::all()).await.unwrap();
    check(&known, &histories, &state);
}

fn check(known: &WriterLog, histories: &[Vec<WatchBatch>], state: &MetaSnapshot) {
    assert_eq!(histories[0], histories[1]);
    let history = &histories[0];
    assert!(history.is_sorted_by(|a, b| a.revision < b.revision), "a revision was reported twice, or out of order");

    // The revision of each write, by name.
    let mut seen = BTreeMap::new();
    let mut replayed = BTreeMap::new();
    for batch in history {
        for changed in &batch.changes {
            replayed.insert(changed.key.clone(), changed.entry.clone().unwrap());
            if changed.key == key("last") {
                let name = String::from_utf8(changed.entry.as_ref().unwrap().value.to_vec()).unwrap();
                assert_eq!(batch.changes.len(), 3, "{name} was reported in part");
                assert_eq!(seen.insert(name.clone(), batch.revision), None, "{name} took effect twice");
            }
        }
    }
    for (name, revision) in &known.done {
        assert_eq!(seen.get(name), Some(revision), "{name} was acknowledged");
        let own = state.entry(&key(&format!("own/{name}"))).unwrap();
        assert_eq!(own.revision, *revision);
    }
    for name in &known.failed {
        assert!(!seen.contains_key(name), "{name} took effect although it failed");
    }
    let maybe = seen.keys().filter(|name| !known.done.contains_key(*name)).count();
    assert!(seen.keys().all(|name| known.done.contains_key(name) || known.unknown.contains(name)));
    let counted: usize = (0..COUNTERS)
        .map(|number| state.entry(&key(&format!("count/{number}"))).unwrap())
        .map(|entry| str::from_utf8(&entry.value).unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(counted, known.done.len() + maybe);
    assert_eq!(replayed.into_iter().collect::<Vec<_>>(), state.entries);
    let (done, failed, unknown) = (known.done.len(), known.failed.len(), known.unknown.len());
    println!("{done} writes done, {failed} failed, {unknown} unknown, {maybe} of these took effect");
}
