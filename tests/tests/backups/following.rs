//! Backups that follow a cluster: any of their moments is restored.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::following::FollowingBackup;
use mortar_tests::{Server, TEST_TIMEOUT, mortar, run, send, spawn, wait};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use super::{back_up_under_load, check};

/// A pair of keys that only tests use, made by `age-keygen`.
const RECIPIENT: &str = "age1fsxh452ka67kgt5aqe0pj6en8k32ncpqwf49xdxtnlcqy6ecevzq35kzh4";
const IDENTITY: &str = "AGE-SECRET-KEY-1V6TQGE6GMGSZZ64XEMLUKYFCFQP68GVNYXWY9QVESJW93E4RCD3QF5PQ8J";

fn restored_server(following: &FollowingBackup, moment: &str) -> Server {
    let mut server = Server::new(&[]);
    following.restore(moment, &server.data()).ok();
    server.launch();
    server.wait_ready();
    server
}

fn put(server: &Server, name: &str, text: &str) {
    server.run_with_input(&["put", "-", name], text).ok();
}

/// The files of a directory, without the lock.
fn files(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "FOLLOW").collect();
    names.sort();
    names
}

#[test]
fn each_moment_of_a_cluster_under_load_is_restored() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&["--bricks", "3", "--peers", "2"]);
    fs::write(dir.path().join("large"), vec![7; 3 << 20]).unwrap();
    let large = dir.path().join("large");
    cluster.run(&["put", large.to_str().unwrap(), "/large"]).ok();
    let mut following = FollowingBackup::start(cluster.url(), &dir.path().join("following"), &[]);
    let names: Vec<PathBuf> = (0..3).map(|number| dir.path().join(number.to_string())).collect();
    let taken = back_up_under_load(&runtime, cluster.url(), &names, |name| {
        if name.ends_with("1") {
            // Blobs and users come and go between two moments.
            cluster.run(&["put", large.to_str().unwrap(), "/larger"]).ok();
            cluster.run(&["rm", "/large"]).ok();
            cluster.run(&["space", "create", "other"]).ok();
        }
        fs::write(name, following.moment()).unwrap();
    });
    assert!(following.stop().success(), "{}", following.log());
    assert_eq!(files(&dir.path().join("following")), ["000001-changes.mortar", "000001-full.mortar"]);
    for (number, taken) in taken.iter().enumerate() {
        let server = restored_server(&following, &fs::read_to_string(&taken.archive).unwrap());
        check(&runtime, &server, taken);
        let (kept, gone) = if number < 1 { ("/large", "/larger") } else { ("/larger", "/large") };
        assert_eq!(server.run(&["get", kept]).stdout, vec![7; 3 << 20]);
        assert_eq!(server.run(&["get", gone]).code, 3);
        assert_eq!(server.run(&["space", "ls"]).text().contains("other"), number > 0);
        assert_eq!(server.run(&["scrub", "--json"]).json()[0]["damaged"].as_array().map(Vec::len), Some(0));
        assert!(!server.data().join("changes").exists());
    }
    cluster.stop(Signal::TERM);
}

#[test]
fn a_backup_goes_on_after_restarts_of_the_server_and_of_itself() {
    let mut server = Server::start(&["--bricks", "2"]);
    let dir = server.dir().join("following");
    put(&server, "/first", "x");
    let mut following = FollowingBackup::start(&server.url(), &dir, &[]);
    put(&server, "/second", "y");
    let second = following.moment();
    server.kill();
    server.restart();
    server.run(&["rm", "/first"]).ok();
    put(&server, "/third", "z");
    let third = following.moment();
    assert!(following.log().contains("an increment comes next"), "{}", following.log());
    let refused = run(mortar(&["--server", &server.url(), "backup", "--follow"]).arg(&dir));
    assert!(refused.code == 4 && refused.stderr.contains("another backup"), "{} {}", refused.code, refused.stderr);
    assert!(following.stop().success());
    // While nothing follows, changes are in the next increment.
    put(&server, "/fourth", "4");
    let mut following = FollowingBackup::start(&server.url(), &dir, &[]);
    let fourth = following.moment();
    put(&server, "/fifth", "5");
    let fifth = following.moment();
    assert!(following.stop().success());
    let names = files(&dir);
    assert_eq!(names.iter().filter(|name| name.contains("full")).count(), 1, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.contains("increment")).count(), 2, "{names:?}");
    let states: [(&str, &[&str]); 4] = [
        (&second, &["/first", "/second"]),
        (&third, &["/second", "/third"]),
        (&fourth, &["/fourth", "/second", "/third"]),
        (&fifth, &["/fifth", "/fourth", "/second", "/third"]),
    ];
    for (moment, expected) in states {
        let listed = restored_server(&following, moment).run(&["ls", "/"]);
        assert_eq!(listed.text().lines().collect::<Vec<_>>(), expected, "{moment}");
    }
    let early = following.restore("2001-01-01T00:00:00Z", &server.dir().join("early"));
    assert!(early.code == 3 && early.stderr.contains("the first moment"), "{} {}", early.code, early.stderr);
    let late = following.restore("2100-01-01T00:00:00Z", &server.dir().join("late"));
    late.ok();
    let last = late.json()[0]["moment"].as_str().unwrap().to_owned();
    assert!(late.stderr.contains("ends before 2100-01-01T00:00:00Z") && late.stderr.contains(&last), "{}", late.stderr);
    let exact = following.restore(&last, &server.dir().join("exact"));
    assert!(exact.ok().contains(&last) && !exact.stderr.contains("ends before"), "{}", exact.stderr);
    // The last moment is the default; one that is not complete does not count.
    let last = names.iter().rfind(|name| name.contains("changes")).unwrap();
    let journal = fs::File::options().write(true).open(dir.join(last)).unwrap();
    journal.set_len(journal.metadata().unwrap().len() + 20).unwrap();
    let mut newest = Server::new(&[]);
    run(mortar(&["restore", "--data"]).arg(newest.data()).arg(&dir)).ok();
    newest.launch();
    newest.wait_ready();
    assert_eq!(newest.run(&["get", "/fifth"]).text(), "5");
    // A moment that is missing in the middle is noticed.
    let bytes = fs::read(dir.join(last)).unwrap();
    let len = usize::try_from(u64::from_le_bytes(bytes[32..40].try_into().unwrap())).unwrap();
    let next = (32 + 20 + len).next_multiple_of(32);
    fs::write(dir.join(last), [&bytes[..32], &bytes[next..]].concat()).unwrap();
    let refused = following.restore(&fifth, &server.dir().join("none"));
    assert!(refused.code == 6 && refused.stderr.contains("missing"), "{} {}", refused.code, refused.stderr);
}

/// `mortar backup --follow … | head -1`: what it says is not read any more, and is not what it is for.
#[test]
fn a_backup_goes_on_when_the_reader_of_its_output_has_gone() {
    let server = Server::start(&[]);
    let dir = server.dir().join("following");
    let mut command = mortar(&["--server", &server.url(), "backup", "--every", "50ms", "--follow"]);
    command.arg(&dir).stdout(Stdio::piped());
    let mut backup = spawn(command).unwrap();
    drop(backup.stdout.take());
    let until = Instant::now() + TEST_TIMEOUT;
    let moments = || run(mortar(&["--json", "restore", "--list"]).arg(&dir)).json()[0]["moments"].as_u64();
    while !dir.join("000001-full.mortar").exists() || moments() < Some(2) {
        assert!(Instant::now() < until && backup.try_wait().unwrap().is_none(), "there are no moments");
        thread::sleep(Duration::from_millis(20));
    }
    send(&backup, Signal::INT);
    assert!(wait(&mut backup, TEST_TIMEOUT).unwrap().success());
}

#[test]
fn the_backup_of_a_cluster_is_not_continued_with_another() {
    let (own, other) = (Server::start(&[]), Server::start(&[]));
    put(&own, "/own", "x");
    let (dir, base, next) = (own.dir().join("following"), own.dir().join("base"), own.dir().join("next"));
    let mut following = FollowingBackup::start(&own.url(), &dir, &[]);
    let moment = following.moment();
    assert!(following.stop().success());
    own.run(&["backup", base.to_str().unwrap()]).ok();
    let mut restored = restored_server(&following, &moment);
    // Also a restored cluster: its objects go apart from those of the former one.
    for server in [&other, &restored] {
        let before = files(&dir);
        let in_directory = ["backup", "--follow", dir.to_str().unwrap()];
        let increment = ["backup", "--since", base.to_str().unwrap(), next.to_str().unwrap()];
        for (args, backup) in [(&in_directory[..], &dir), (&increment[..], &base)] {
            let refused = server.run(args);
            let expected = format!("{} is a backup of cluster ", backup.display());
            assert!(refused.code == 4 && refused.stderr.contains(&expected), "{} {}", refused.code, refused.stderr);
            assert!(!refused.stderr.contains("the last moment is"), "{}", refused.stderr);
        }
        assert!(files(&dir) == before && !next.exists());
    }
    // A copy without the file in which the directory names its cluster.
    fs::remove_file(dir.join("FOLLOW")).unwrap();
    let refused = other.run(&["backup", "--follow", dir.to_str().unwrap()]);
    assert!(refused.code == 4 && refused.stderr.contains("is a backup of cluster "), "{}", refused.stderr);
    let mut following = FollowingBackup::start(&own.url(), &dir, &[]);
    let _ = following.moment();
    assert!(following.stop().success());
    restored.stop();
}

#[test]
fn moments_are_encrypted_for_the_owner_of_a_key() {
    let server = Server::start(&[]);
    let (dir, key) = (server.dir().join("following"), server.dir().join("key"));
    fs::write(&key, IDENTITY).unwrap();
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let key = key.to_str().unwrap();
    let following = FollowingBackup::start(&server.url(), &dir, &["--encrypt-to", RECIPIENT]);
    let mut following = following.read_with(&["--identity", key]);
    put(&server, "/secret", "a text that others may not read");
    let moment = following.moment();
    assert!(following.stop().success(), "{}", following.log());
    for name in files(&dir) {
        let bytes = fs::read(dir.join(name)).unwrap();
        assert!(!bytes.windows(10).any(|part| part == b"a text tha"), "it is not encrypted");
    }
    let refused = run(mortar(&["restore", "--list"]).arg(&dir));
    assert!(refused.code == 9 && refused.stderr.contains("encrypted"), "{} {}", refused.code, refused.stderr);
    assert_eq!(restored_server(&following, &moment).run(&["get", "/secret"]).text(), "a text that others may not read");
}

#[test]
fn what_is_older_than_the_time_to_keep_is_removed() {
    let server = Server::start(&[]);
    let dir = server.dir().join("following");
    for round in 0..3 {
        put(&server, &format!("/{round}"), "x");
        let mut following = FollowingBackup::start(&server.url(), &dir, &["--keep", "1s"]);
        let moment = following.moment();
        assert!(following.stop().success(), "{}", following.log());
        assert_eq!(restored_server(&following, &moment).run(&["ls", "/"]).text().lines().count(), round + 1);
        thread::sleep(Duration::from_millis(1_100));
    }
    let left = files(&dir);
    assert!(!left.contains(&"000001-full.mortar".to_owned()), "{left:?}");
    // Of the state before the last one a moment within the time to keep may need the journal.
    assert!(left.iter().filter(|name| name.contains("full")).count() >= 2, "{left:?}");
}
