//! What a loss of the whole cluster costs if a backup follows it: what was acknowledged in the last second, and no transaction by half.
//!
//! A moment has all that was acknowledged before it began. The next one begins half a second later, or when the one before is complete if that takes
//! longer, and is complete as soon as the bricks have forced their logs and the journal is forced. So the promise of a second leaves each moment half a
//! second for two steps that wait for this machine's processors and disk. Where these are busy with other tests that is not enough: the test
//! measures how long the machine lets a process wait that only sleeps and forces a small file, as each step of a moment does, and allows that much more.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Oid, Transaction};
use mortar_tests::cluster::Cluster;
use mortar_tests::following::FollowingBackup;
use mortar_tests::node_process::{NodeProcess, free_port};
use mortar_tests::{Server, TEST_TIMEOUT};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use super::{Bank, WORKERS, blob, number};

/// What a loss of the cluster costs at most.
const PROMISE: Duration = Duration::from_secs(1);
/// Steps of two moments that wait for processors and disks, one after the other: the bricks hold their logs, force them, send their parts, and the journal
/// is forced, twice.
const STEPS: u32 = 2 * 5;
/// How long the workers run until the cluster is lost.
const LOAD: Duration = Duration::from_secs(5);

/// When the transactions of a worker began and were acknowledged: the first makes 1 of its counters, and so on.
#[derive(Default)]
struct Times {
    begun: Vec<Instant>,
    acknowledged: Vec<Instant>,
}

/// Increments both counters of a worker, which are at different bricks, until the cluster is lost.
async fn count(client: Client, counters: [Oid; 2], lost: Arc<AtomicBool>) -> Times {
    let mut times = Times::default();
    loop {
        times.begun.push(Instant::now());
        let increment = |t: Transaction| async move {
            for counter in counters {
                let before = number(t.get(counter).await?)?;
                t.put(counter, blob(before + 1)).await?;
            }
            Ok(())
        };
        match client.transact(increment).await {
            Ok(_) => times.acknowledged.push(Instant::now()),
            Err(error) => {
                assert!(lost.load(Ordering::SeqCst), "the cluster serves: {error}");
                return times;
            }
        }
    }
}

/// The longest time that the machine let a thread wait which sleeps and forces a file, beyond the sleep.
fn longest_delay(dir: &Path, lost: &AtomicBool) -> Duration {
    let (mut longest, pause) = (Duration::ZERO, Duration::from_millis(10));
    let mut file = File::create(dir.join("probe")).unwrap();
    while !lost.load(Ordering::SeqCst) {
        let begun = Instant::now();
        thread::sleep(pause);
        file.write_all(&[1; 512]).unwrap();
        file.sync_data().unwrap();
        longest = longest.max(begun.elapsed().saturating_sub(pause));
    }
    longest
}

#[test]
fn loss_of_the_cluster_costs_at_most_the_last_second() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let bank = runtime.block_on(Bank::create(cluster.url()));
    let following = FollowingBackup::start_by_default(cluster.url(), &dir.path().join("following"), &[]);
    let _ = following.moment();
    let lost = Arc::new(AtomicBool::new(false));
    let probe = thread::spawn({
        let (dir, lost) = (dir.path().to_owned(), lost.clone());
        move || longest_delay(&dir, &lost)
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let client = runtime.block_on(Client::connect(cluster.url())).unwrap();
            runtime.spawn(count(client, bank.counters[worker], lost.clone()))
        })
        .collect();
    thread::sleep(LOAD);
    lost.store(true, Ordering::SeqCst);
    let lost_at = Instant::now();
    // The peer server first: later acknowledgements do not count, and the clients see an end.
    for name in ["peer-1", "brick-1", "brick-2", "meta"] {
        cluster.kill(name);
    }
    fs::remove_dir_all(cluster.data()).unwrap();
    let times: Vec<Times> = workers.into_iter().map(|worker| runtime.block_on(worker).unwrap()).collect();
    let allowance = probe.join().unwrap() * STEPS;
    drop(cluster);
    let mut server = Server::new(&[]);
    following.restore_last(&server.data()).ok();
    server.launch();
    server.wait_ready();
    let restored = runtime.block_on(async { Bank::open(&server.url()).await.read().await });
    check(&restored.1, &times, lost_at - PROMISE - allowance, allowance);
}

/// Checks that what was restored has all that was acknowledged before `due`, no transaction by half, and with each one all that was acknowledged before it
/// began.
fn check(counters: &[[i64; 2]], times: &[Times], due: Instant, allowance: Duration) {
    let mut newest = due;
    let mut counts = Vec::new();
    for ([one, other], times) in counters.iter().zip(times) {
        assert_eq!(one, other, "a transaction was restored by half");
        let count = usize::try_from(*one).unwrap();
        assert!(count <= times.begun.len(), "there are {count} transactions of {}", times.begun.len());
        counts.push(count);
        newest = count.checked_sub(1).map_or(newest, |last| newest.max(times.begun[last]));
    }
    for (worker, (count, times)) in counts.iter().zip(times).enumerate() {
        let acknowledged = |by: Instant| times.acknowledged.iter().filter(|time| **time <= by).count();
        let (due, seen) = (acknowledged(due), acknowledged(newest));
        assert!(due > 10, "worker {worker} has made too few transactions for a test: {due}");
        assert!(
            *count >= due,
            "{due} transactions of worker {worker} were acknowledged a second and {allowance:?} before the loss, {count} were restored"
        );
        assert!(
            *count >= seen,
            "a transaction was restored that began after {seen} of worker {worker} were acknowledged, {count} were restored"
        );
    }
}

/// What a following backup has said of its delay.
fn wait_for_warning(following: &FollowingBackup, expected: &str) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !following.log().contains(expected) {
        assert!(Instant::now() < until, "{expected:?} is not said: {}", following.log());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_backup_that_was_stopped_catches_up_and_says_how_far_behind_it_is() {
    let mut server = Server::start(&["--bricks", "2"]);
    let dir = server.dir().join("following");
    let put = |server: &Server, name: &str| server.run_with_input(&["put", "-", name], name).ok().to_owned();
    put(&server, "/first");
    let mut following = FollowingBackup::start(&server.url(), &dir, &[]);
    let _ = following.moment();
    assert!(following.stop().success(), "{}", following.log());
    assert!(!following.log().contains("the last moment is"), "{}", following.log());
    // It has ended, and begins again later.
    put(&server, "/second");
    let pause = Duration::from_millis(1_500);
    thread::sleep(pause);
    let mut following = FollowingBackup::start(&server.url(), &dir, &[]);
    let _ = following.moment();
    wait_for_warning(&following, "the last moment is");
    let increment = following.reports().into_iter().find(|report| report["archive"] == "000002-increment.mortar");
    let behind = increment.as_ref().and_then(|report| report["behind_s"].as_f64()).unwrap_or(0.0);
    assert!(behind >= pause.as_secs_f64(), "{increment:?}");
    // It stands still, as a machine does that sleeps.
    following.signal(Signal::STOP);
    put(&server, "/third");
    thread::sleep(Duration::from_secs(3));
    following.signal(Signal::CONT);
    let _ = following.moment();
    wait_for_warning(&following, "moments go on: there was none for");
    // The cluster stands still.
    server.kill();
    wait_for_warning(&following, "the backup tries again; the last moment is");
    server.restart();
    put(&server, "/fourth");
    let last = following.moment();
    assert!(following.stop().success(), "{}", following.log());
    let summary = following.reports().pop().unwrap();
    assert!(summary["most_behind_s"].as_f64().unwrap() >= 3.0, "{summary}");
    let mut restored = Server::new(&[]);
    following.restore(&last, &restored.data()).ok();
    restored.launch();
    restored.wait_ready();
    assert_eq!(
        restored.run(&["ls", "/"]).text().lines().collect::<Vec<_>>(),
        ["/first", "/fourth", "/second", "/third"]
    );
}

#[test]
fn servers_of_another_cluster_at_the_address_of_a_brick_are_not_backed_up() {
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let dir = cluster.data().join("following");
    let file = cluster.data().join("file");
    fs::write(&file, "1").unwrap();
    cluster.run(&["put", file.to_str().unwrap(), "/own"]).ok();
    let mut following = FollowingBackup::start(cluster.url(), &dir, &[]);
    let _ = following.moment();
    let address = cluster.address("brick-2").to_owned();
    cluster.kill("brick-2");
    // It has the number of the brick whose address it has, and it is healthy.
    let meta = format!("127.0.0.1:{}", free_port());
    let other = Server::start(&["--meta-listen", &meta]);
    let (data, secret) = (other.dir().join("second"), other.data().join("cluster.secret"));
    let (data, secret) = (data.to_str().unwrap(), secret.to_str().unwrap());
    let meta = format!("mortar://{meta}");
    let args = ["--role", "brick", "--listen", &address, "--join", &meta, "--data", data, "--cluster-secret", secret];
    let mut brick = NodeProcess::start(other.dir(), "brick", &args);
    wait_for_warning(&following, "is the address of another server now: brick 2 of cluster");
    brick.stop();
    let peer = Server::start(&["--listen", &address]);
    wait_for_warning(&following, "it does not run at its address: a server of cluster");
    drop(peer);
    // Nor is another cluster at the address of the peer server.
    let address = cluster.address("peer-1").to_owned();
    cluster.kill("peer-1");
    let peer = Server::start(&["--listen", &address]);
    peer.run_with_input(&["put", "-", "/foreign"], "2").ok();
    wait_for_warning(&following, "answers where a server of cluster");
    drop(peer);
    cluster.restart("peer-1");
    cluster.restart("brick-2");
    let last = following.moment();
    assert!(following.stop().success(), "{}", following.log());
    let mut restored = Server::new(&[]);
    following.restore(&last, &restored.data()).ok();
    restored.launch();
    restored.wait_ready();
    assert_eq!(restored.run(&["ls", "/"]).text(), "/own\n");
}
