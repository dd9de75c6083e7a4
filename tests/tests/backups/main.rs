//! Backups of clusters with several bricks, taken while clients work, and restored elsewhere: each is one consistent moment (K1, K2).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clones;
mod damage;
mod following;
mod losses;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use client::{Client, Error, ErrorKind, Object, Oid, PlacementHint, Transaction};
use model::ClassId;
use mortar_tests::cluster::Cluster;
use mortar_tests::{Server, mortar, run};
use rustix::process::Signal;
use tokio::runtime::Runtime;

const ACCOUNTS: usize = 9;
const BALANCE: i64 = 1_000;
const WORKERS: usize = 4;

fn blob(number: i64) -> Object {
    Object::blob(number.to_string().into())
}

fn number(object: Option<Object>) -> client::Result<i64> {
    let missing = || Error::new(ErrorKind::NotFound, "there is no such object");
    let text = object.ok_or_else(missing)?;
    str::from_utf8(&text.data).ok().and_then(|text| text.parse().ok()).ok_or_else(missing)
}

/// The objects of the test: accounts at all bricks, and two counters of each worker, at different bricks.
struct Bank {
    client: Client,
    accounts: Vec<Oid>,
    counters: Vec<[Oid; 2]>,
}

fn names() -> (Vec<String>, Vec<[String; 2]>) {
    let accounts = (0..ACCOUNTS).map(|number| format!("/accounts/{number}")).collect();
    (accounts, (0..WORKERS).map(|worker| ["one", "other"].map(|side| format!("/counters/{worker}/{side}"))).collect())
}

async fn create(client: &Client, name: &str, value: i64, place: usize) {
    let nodes = client.nodes();
    let node = nodes[place * 7 % nodes.len()];
    let made = |t: Transaction| async move {
        let oid = t.create_object(ClassId::NONE, blob(value), PlacementHint::At(node))?;
        t.bind(name, oid).await
    };
    client.transact(made).await.unwrap();
}

impl Bank {
    async fn create(url: &str) -> Self {
        let client = Client::connect(url).await.unwrap();
        let (accounts, counters) = names();
        for (place, name) in accounts.iter().enumerate() {
            create(&client, name, BALANCE, place).await;
        }
        for (place, [one, other]) in counters.iter().enumerate() {
            create(&client, one, 0, place).await;
            create(&client, other, 0, place + 1).await;
        }
        Self::open(url).await
    }

    /// The bank that a cluster has.
    async fn open(url: &str) -> Self {
        let client = Client::connect(url).await.unwrap();
        let (account_names, counter_names) = names();
        let (mut accounts, mut counters) = (Vec::new(), Vec::new());
        for name in &account_names {
            accounts.push(client.resolve(name).await.unwrap().unwrap());
        }
        for [one, other] in &counter_names {
            counters.push([client.resolve(one).await.unwrap().unwrap(), client.resolve(other).await.unwrap().unwrap()]);
        }
        Self { client, accounts, counters }
    }

    /// The sum of all accounts, and both counters of each worker, as one transaction sees them.
    async fn read(&self) -> (i64, Vec<[i64; 2]>) {
        let read = |t: Transaction| async move {
            let mut sum = 0;
            for account in &self.accounts {
                sum += number(t.get(*account).await?)?;
            }
            let mut counters = Vec::new();
            for [one, other] in &self.counters {
                counters.push([number(t.get(*one).await?)?, number(t.get(*other).await?)?]);
            }
            Ok((sum, counters))
        };
        self.client.transact(read).await.unwrap()
    }
}

/// Moves money between accounts and counts, until it is stopped. `begun` and `done` are the counts of its transactions.
async fn work(
    client: Client,
    (accounts, counters): (Vec<Oid>, [Oid; 2]),
    worker: usize,
    (begun, done): (Arc<AtomicU64>, Arc<AtomicU64>),
    stop: Arc<AtomicBool>,
) {
    let mut step = worker;
    while !stop.load(Ordering::Relaxed) {
        step += 1;
        let (from, to) = (accounts[step % ACCOUNTS], accounts[(step * 5 + worker + 1) % ACCOUNTS]);
        begun.fetch_add(1, Ordering::SeqCst);
        let transfer = |t: Transaction| async move {
            if from != to {
                let (a, b) = (number(t.get(from).await?)?, number(t.get(to).await?)?);
                t.put(from, blob(a - 3)).await?;
                t.put(to, blob(b + 3)).await?;
            }
            for counter in counters {
                let before = number(t.get(counter).await?)?;
                t.put(counter, blob(before + 1)).await?;
            }
            Ok(())
        };
        client.transact(transfer).await.unwrap();
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// A backup, and how many transactions of each worker it must have at least and may have at most.
struct Taken {
    archive: PathBuf,
    least: Vec<u64>,
    most: Vec<u64>,
}

/// Lets workers run against a cluster, and takes backups meanwhile.
fn back_up_under_load(runtime: &Runtime, url: &str, backups: &[PathBuf], take: impl Fn(&Path)) -> Vec<Taken> {
    let bank = runtime.block_on(Bank::create(url));
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Vec<_> = (0..WORKERS).map(|_| (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)))).collect();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let objects = (bank.accounts.clone(), bank.counters[worker]);
            let (counts, stop) = (counts[worker].clone(), stop.clone());
            let client = runtime.block_on(Client::connect(url)).unwrap();
            runtime.spawn(work(client, objects, worker, counts, stop))
        })
        .collect();
    let taken = backups.iter().map(|archive| {
        // Some transactions of each worker are in each backup.
        let before: Vec<u64> = counts.iter().map(|(_, done)| done.load(Ordering::SeqCst)).collect();
        while counts.iter().zip(&before).any(|((_, done), before)| done.load(Ordering::SeqCst) < before + 5) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let least = counts.iter().map(|(_, done)| done.load(Ordering::SeqCst)).collect();
        take(archive);
        let most = counts.iter().map(|(begun, _)| begun.load(Ordering::SeqCst)).collect();
        Taken { archive: archive.clone(), least, most }
    });
    let taken = taken.collect();
    stop.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| runtime.block_on(worker).unwrap());
    taken
}

/// A server of a restored archive.
fn restored_server(archive: &Path) -> Server {
    restored_chain(&[archive.to_owned()])
}

/// A server of a restored chain: a full archive, and increments.
fn restored_chain(archives: &[PathBuf]) -> Server {
    let mut server = Server::new(&[]);
    let mut restore = mortar(&["restore", "--json", "--data"]);
    run(restore.arg(server.data()).args(archives)).ok();
    server.launch();
    server.wait_ready();
    server
}

fn check(runtime: &Runtime, server: &Server, Taken { least, most, .. }: &Taken) {
    let (sum, counters) = runtime.block_on(async { Bank::open(&server.url()).await.read().await });
    assert_eq!(sum, BALANCE * ACCOUNTS as i64, "a transfer is in the backup by half");
    for (worker, [one, other]) in counters.into_iter().enumerate() {
        assert_eq!(one, other, "a transaction of worker {worker} is in the backup by half");
        let (least, most, one) = (least[worker], most[worker], u64::try_from(one).unwrap());
        assert!((least..=most).contains(&one), "worker {worker} is at {one}, not between {least} and {most}");
    }
}

#[test]
fn a_cluster_is_backed_up_at_one_moment_while_it_serves_and_restored_elsewhere() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&["--bricks", "3", "--peers", "2"]);
    // Contents, attributes, classes, users of the catalogue.
    fs::write(dir.path().join("large"), vec![7; 3 << 20]).unwrap();
    cluster.run(&["put", dir.path().join("large").to_str().unwrap(), "/large", "--attr", "colour=red"]).ok();
    cluster.run(&["class", "define", "Person", "--field", "name:string", "--field", "age:int64"]).ok();
    cluster.run(&["object", "put", "/ann", "--class", "Person", "{\"name\": \"Ann\", \"age\": 31}"]).ok();
    let archives: Vec<PathBuf> = (0..3).map(|number| dir.path().join(number.to_string())).collect();
    let taken = back_up_under_load(&runtime, cluster.url(), &archives, |archive| {
        cluster.run(&["backup", "--json", archive.to_str().unwrap()]).ok();
    });
    assert_eq!(
        cluster.run(&["backup", archives[0].to_str().unwrap()]).code,
        4,
        "an existing archive is not overwritten"
    );
    for taken in &taken {
        let server = restored_server(&taken.archive);
        check(&runtime, &server, taken);
        assert_eq!(server.run(&["get", "/large"]).stdout, vec![7; 3 << 20]);
        assert!(server.run(&["object", "get", "/ann"]).text().contains("Ann"));
        assert_eq!(server.run(&["scrub", "--json"]).json()[0]["damaged"].as_array().map(Vec::len), Some(0));
        // The new cluster works: it takes changes, and its own backup has one part for each brick.
        server.run_with_input(&["put", "-", "/later"], "x").ok();
        let again = server.dir().join("again");
        assert_eq!(server.run(&["backup", "--json", again.to_str().unwrap()]).json()[0]["bricks"], 3);
    }
    assert!(cluster.stop(Signal::TERM).success());
}

#[test]
fn a_backup_needs_all_bricks_and_leaves_nothing_behind_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&["--bricks", "2"]);
    let archive = dir.path().join("archive");
    cluster.kill("brick-2");
    let refused = cluster.run(&["--timeout", "2", "backup", archive.to_str().unwrap()]);
    assert!(refused.code == 5 && refused.stderr.contains("brick 2"), "{} {}", refused.code, refused.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    cluster.restart("brick-2");
    cluster.run(&["backup", archive.to_str().unwrap()]).ok();
    // A part that is cut off is noticed.
    let whole = fs::read(&archive).unwrap();
    fs::write(dir.path().join("cut"), &whole[..whole.len() - 100]).unwrap();
    let target = dir.path().join("target");
    let mut restore = mortar(&["restore", "--data"]);
    let refused = run(restore.arg(&target).arg(dir.path().join("cut")));
    assert!(refused.code == 6 && refused.stderr.contains("ends too early"), "{} {}", refused.code, refused.stderr);
    assert!(!target.exists(), "the restore has made it");
    let mut restore = mortar(&["restore", "--data"]);
    run(restore.arg(&target).arg(&archive)).ok();
    assert!(target.join("STORE").is_file() && target.join("brick-2/STORE").is_file());
    cluster.stop(Signal::TERM);
}

/// What is restored is another cluster: processes and clients of the former one have no part in it.
#[test]
fn a_restored_cluster_is_another_lineage() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&["--bricks", "2"]);
    server.run_with_input(&["put", "-", "/before"], "x").ok();
    let archive = dir.path().join("archive");
    server.run(&["backup", archive.to_str().unwrap()]).ok();
    let mut copy = restored_server(&archive);
    assert_eq!(copy.run(&["get", "/before"]).text(), "x");
    // The original goes on beside it.
    server.run_with_input(&["put", "-", "/later"], "y").ok();
    assert_eq!(copy.run(&["get", "/later"]).code, 3);
    // It does not look for its bricks at the addresses of the original's.
    assert!(!copy.log().contains("a brick cannot be connected to"), "{}", copy.log());
    // A brick of the original does not serve in the copy.
    server.stop();
    copy.stop();
    fs::remove_dir_all(copy.data().join("brick-2")).unwrap();
    fs::rename(server.data().join("brick-2"), copy.data().join("brick-2")).unwrap();
    copy.launch();
    assert_eq!(copy.wait_exit().code(), Some(9), "{}", copy.log());
    assert!(copy.log().contains("cluster"), "{}", copy.log());
}

/// The directory of a brick that is lost before the first start is missed as it is after it.
#[test]
fn a_restored_cluster_that_lacks_the_directory_of_a_brick_is_refused_at_its_first_start() {
    let mut server = Server::start(&["--bricks", "3"]);
    server.run_with_input(&["put", "-", "/file"], "x").ok();
    let archive = server.dir().join("archive");
    server.run(&["backup", archive.to_str().unwrap()]).ok();
    server.stop();
    // Without --bricks and with it: neither serves without the brick, and neither makes an empty one.
    for options in [&[][..], &["--bricks", "3"]] {
        let mut copy = Server::new(options);
        let mut restore = mortar(&["restore", "--data"]);
        run(restore.arg(copy.data()).arg(&archive)).ok();
        let (brick, aside) = (copy.data().join("brick-2"), copy.dir().join("aside"));
        fs::rename(&brick, &aside).unwrap();
        copy.launch();
        assert_eq!(copy.wait_exit().code(), Some(6), "{}", copy.log());
        let log = copy.log();
        assert!(log.contains(&format!("the directory {} of brick 2 is missing", brick.display())), "{log}");
        assert!(log.contains("mortar restore FILE --data NEW"), "{log}");
        assert!(!brick.exists());
        fs::rename(&aside, &brick).unwrap();
        copy.restart();
        assert_eq!(copy.run(&["get", "/file"]).text(), "x");
    }
}

/// A client of the original that stays connected to its address finds another cluster there, and says so.
#[test]
fn a_client_does_not_go_on_in_a_restored_cluster_at_the_same_address() {
    let mut server = Server::start(&[]);
    server.run_with_input(&["put", "-", "/file"], "x").ok();
    let archive = server.dir().join("archive");
    server.run(&["backup", archive.to_str().unwrap()]).ok();
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(Client::connect(&server.url())).unwrap();
    let resolve = || runtime.block_on(client.resolve("/file"));
    assert!(resolve().unwrap().is_some());
    // The same cluster is found again.
    server.stop();
    server.restart();
    assert!(resolve().unwrap().is_some());
    server.stop();
    fs::rename(server.data(), server.dir().join("original")).unwrap();
    let mut restore = mortar(&["restore", "--data"]);
    run(restore.arg(server.data()).arg(&archive)).ok();
    server.restart();
    let refused = resolve().unwrap_err();
    assert!(refused.kind() == ErrorKind::NotFound && refused.to_string().contains("another cluster"), "{refused}");
    let again = runtime.block_on(Client::connect(&server.url())).unwrap();
    assert!(runtime.block_on(again.resolve("/file")).unwrap().is_some());
}

/// A full archive and three increments, taken under load; each chain is one consistent moment.
#[test]
fn increments_are_taken_under_load_and_each_chain_is_one_moment() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&["--bricks", "3"]);
    fs::write(dir.path().join("large"), vec![7; 3 << 20]).unwrap();
    cluster.run(&["put", dir.path().join("large").to_str().unwrap(), "/large"]).ok();
    let archives: Vec<PathBuf> = (0..4).map(|number| dir.path().join(number.to_string())).collect();
    let taken = back_up_under_load(&runtime, cluster.url(), &archives, |archive| {
        let number: usize = archive.file_name().unwrap().to_str().unwrap().parse().unwrap();
        if number == 2 {
            // Blobs come and go between two increments.
            cluster.run(&["put", dir.path().join("large").to_str().unwrap(), "/larger"]).ok();
            cluster.run(&["rm", "/large"]).ok();
        }
        let done = match number.checked_sub(1) {
            None => cluster.run(&["backup", "--json", archive.to_str().unwrap()]),
            Some(base) => {
                let base = archives[base].to_str().unwrap();
                cluster.run(&["backup", "--json", "--since", base, archive.to_str().unwrap()])
            }
        };
        done.ok();
    });
    let bytes = |number: usize| fs::metadata(&archives[number]).unwrap().len();
    assert!(bytes(1) < bytes(0) / 4 && bytes(3) < bytes(0) / 4, "{:?}", (0..4).map(bytes).collect::<Vec<_>>());
    for (last, taken) in taken.iter().enumerate() {
        let server = restored_chain(&archives[..=last]);
        check(&runtime, &server, taken);
        let (kept, gone) = if last < 2 { ("/large", "/larger") } else { ("/larger", "/large") };
        assert_eq!(server.run(&["get", kept]).stdout, vec![7; 3 << 20]);
        assert_eq!(server.run(&["get", gone]).code, 3);
        assert_eq!(server.run(&["scrub", "--json"]).json()[0]["damaged"].as_array().map(Vec::len), Some(0));
    }
    cluster.stop(Signal::TERM);
}

#[test]
fn a_chain_that_is_not_complete_or_not_in_order_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&["--bricks", "2"]);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    server.run_with_input(&["put", "-", "/first"], "x").ok();
    server.run(&["backup", &path("monday")]).ok();
    server.run_with_input(&["put", "-", "/second"], "y").ok();
    server.run(&["backup", "--since", &path("monday"), &path("tuesday")]).ok();
    // The bricks are restarted between two increments.
    server.stop();
    server.restart();
    server.run_with_input(&["put", "-", "/third"], "z").ok();
    server.run(&["backup", "--since", &path("tuesday"), &path("wednesday")]).ok();
    let restore = |names: &[&str]| {
        let mut restore = mortar(&["restore", "--data"]);
        run(restore.arg(path("target")).args(names.iter().map(|name| path(name))))
    };
    for (names, expected) in [
        (&["tuesday"][..], "tuesday is an increment"),
        (&["monday", "wednesday"], "wednesday is an increment of archive"),
        (&["monday", "wednesday", "tuesday"], "wednesday is an increment of archive"),
        (&["monday", "monday"], "monday is a full archive"),
    ] {
        let refused = restore(names);
        assert!(
            refused.code == 2 && refused.stderr.contains(expected),
            "{names:?}: {} {}",
            refused.code,
            refused.stderr
        );
        assert!(!dir.path().join("target").exists(), "{names:?}");
    }
    // An increment that was cut is noticed, and so is a base.
    let whole = fs::read(path("tuesday")).unwrap();
    fs::write(path("cut"), &whole[..whole.len() - 50]).unwrap();
    assert_eq!(restore(&["monday", "cut"]).code, 6);
    assert_eq!(server.run(&["backup", "--since", &path("cut"), &path("none")]).code, 6);
    assert!(
        !dir.path().join("none").exists()
            && fs::read_dir(dir.path()).unwrap().all(|entry| !entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .ends_with(".part"))
    );
    restore(&["monday", "tuesday", "wednesday"]).ok();
    let mut restored = Server::new(&[]);
    fs::rename(path("target"), restored.data()).unwrap();
    restored.launch();
    restored.wait_ready();
    for (name, text) in [("/first", "x"), ("/second", "y"), ("/third", "z")] {
        assert_eq!(restored.run(&["get", name]).text(), text);
    }
    assert!(!restored.data().join("increments").exists());
}

/// Two backups to one name do not write into each other's file, and nothing else is replaced.
#[test]
fn an_archive_replaces_nothing_that_is_needed() {
    let server = Server::start(&[]);
    server.run_with_input(&["put", "-", "/large"], vec![7; 8 << 20]).ok();
    let path = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    let (first, next) = (path("first"), path("next"));
    std::thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| server.run(&["backup", &first]).code));
        let mut codes = both.map(|one| one.join().unwrap());
        codes.sort_unstable();
        assert!(matches!(codes, [0, 4 | 5]), "{codes:?}");
    });
    drop(restored_server(Path::new(&first)));
    let refused = server.run(&["backup", "--overwrite", "--since", &first, &first]);
    assert!(refused.code == 2 && refused.stderr.contains("its base"), "{} {}", refused.code, refused.stderr);
    let refused = server.run(&["backup", "--overwrite", "/dev/null"]);
    assert!(refused.code == 2 && refused.stderr.contains("no file"), "{} {}", refused.code, refused.stderr);
    // What a damaged base says comes before an increment is complete, on a pipe too.
    let whole = fs::read(&first).unwrap();
    fs::write(&next, &whole[..whole.len() - 5]).unwrap();
    let refused = server.run(&["backup", "--since", &next, "-"]);
    assert!(refused.code == 6 && refused.stderr.contains(&next), "{} {}", refused.code, refused.stderr);
    fs::write(path("piped"), &refused.stdout).unwrap();
    let mut restore = mortar(&["restore", "--data"]);
    let refused = run(restore.arg(path("target")).args([&first, &path("piped")]));
    assert!(refused.code == 6 && refused.stderr.contains("piped"), "{} {}", refused.code, refused.stderr);
    for entry in fs::read_dir(server.dir()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".part"), "{name} is left behind");
    }
}
