//! Damaged archives and journals: they are named, what can still be restored is said, and nothing is left behind.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::following::FollowingBackup;
use mortar_tests::{CommandOutput, Server, TEST_TIMEOUT, mortar, run, send, spawn, wait};
use rustix::process::Signal;
use serde_json::Value;

/// Where the magic of the first archive in a journal is.
const FIRST_ARCHIVE: usize = 52;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn restore(archives: &[&Path], target: &Path) -> CommandOutput {
    run(mortar(&["restore", "--data"]).arg(target).args(archives))
}

fn list(dir: &Path, options: &[&str]) -> CommandOutput {
    run(mortar(&["--json", "restore", "--list"]).arg(dir).args(options))
}

fn flip(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[at] ^= 1;
    flipped
}

#[track_caller]
fn assert_refused(refused: &CommandOutput, code: i32, expected: &str) {
    assert!(refused.code == code && refused.stderr.contains(expected), "{} {}", refused.code, refused.stderr);
}

/// The directory of a backup with two moments of a server, and the times of these.
fn record_moments(server: &Server, dir: &Path) -> [String; 2] {
    let mut following = FollowingBackup::start(&server.url(), dir, &[]);
    let moments = ["/first", "/second"].map(|name| {
        server.run_with_input(&["put", "-", name], vec![7; 20_000]).ok();
        following.moment()
    });
    assert!(following.stop().success(), "{}", following.log());
    moments
}

/// The time that the hint of a failed restore names.
fn hinted_moment(refused: &CommandOutput) -> &str {
    let (_, hint) = refused.stderr.split_once("--at ").unwrap_or_else(|| panic!("{}", refused.stderr));
    hint.split_whitespace().next().unwrap()
}

#[test]
fn a_damaged_journal_is_found_and_its_moments_before_are_restored() {
    let server = Server::start(&[]);
    let (dir, target) = (server.dir().join("following"), server.dir().join("target"));
    let [first, _] = record_moments(&server, &dir);
    let journal = dir.join("000001-changes.mortar");
    let whole = fs::read(&journal).unwrap();
    list(&dir, &["--verify"]).ok();
    let late = whole.windows(1_000).rposition(|bytes| bytes == [7; 1_000]).unwrap();
    for at in [10, 40, FIRST_ARCHIVE, FIRST_ARCHIVE + 7, 100, late, whole.len() - 5] {
        fs::write(&journal, flip(&whole, at)).unwrap();
        let listed = list(&dir, &["--verify"]);
        assert!(listed.code == 6, "byte {at}: {} {}", listed.text(), listed.stderr);
        let state = &listed.json()[0];
        assert!(state["damage"].as_str().unwrap().contains(text(&journal)), "byte {at}: {state}");
        let refused = restore(&[&dir], &target);
        assert_refused(&refused, 6, text(&journal));
        assert!(!target.exists(), "byte {at}");
        assert_eq!(hinted_moment(&refused), state["last"], "byte {at}");
        run(mortar(&["restore", "--at", hinted_moment(&refused), "--data"]).arg(&target).arg(&dir)).ok();
        fs::remove_dir_all(&target).unwrap();
        // What the list names gives up the damaged end, and nothing before it.
        let listed = run(mortar(&["restore", "--list", "--verify"]).arg(&dir));
        let (_, command) = listed.stderr.split_once("truncate -s ").unwrap_or_else(|| panic!("{}", listed.stderr));
        let (len, rest) = command.split_once(' ').unwrap();
        assert!(rest.starts_with(text(&journal)), "{}", listed.stderr);
        fs::File::options().write(true).open(&journal).unwrap().set_len(len.parse().unwrap()).unwrap();
        let whole_list = list(&dir, &["--verify"]);
        whole_list.ok();
        assert_eq!(whole_list.json()[0]["last"], state["last"], "byte {at}");
        restore(&[&dir], &target).ok();
        fs::remove_dir_all(&target).unwrap();
        fs::write(&journal, flip(&whole, at)).unwrap();
        // The list alone reads the heads.
        assert_eq!(list(&dir, &[]).code, if at < FIRST_ARCHIVE { 6 } else { 0 }, "byte {at}");
    }
    // Moments before the damage are not lost.
    fs::write(&journal, flip(&whole, late)).unwrap();
    run(mortar(&["restore", "--at", &first, "--data"]).arg(&target).arg(&dir)).ok();
}

#[test]
fn a_list_with_verification_finds_a_damaged_archive_and_missing_files() {
    let server = Server::start(&[]);
    let dir = server.dir().join("following");
    record_moments(&server, &dir);
    record_moments(&server, &dir);
    let [full, increment, journal] =
        ["000001-full.mortar", "000002-increment.mortar", "000002-changes.mortar"].map(|name| dir.join(name));
    let damage_of = |listed: &CommandOutput| -> Vec<Value> {
        assert_refused(listed, 6, text(&dir));
        listed.json().into_iter().map(|state| state["damage"].clone()).collect()
    };
    let whole = fs::read(&full).unwrap();
    fs::write(&full, flip(&whole, whole.len() / 2)).unwrap();
    list(&dir, &[]).ok();
    let damage = damage_of(&list(&dir, &["--verify"]));
    assert!(damage.iter().all(|damage| damage.as_str().unwrap().contains(text(&full))), "{damage:?}");
    // The head of an archive keeps nothing else from being listed.
    fs::write(&full, flip(&whole, 20)).unwrap();
    let listed = list(&dir, &[]);
    assert_refused(&listed, 6, text(&full));
    assert_eq!(listed.json().len(), 1, "{}", listed.text());
    fs::write(&full, whole).unwrap();
    list(&dir, &["--verify"]).ok();
    fs::remove_file(&journal).unwrap();
    let damage = damage_of(&list(&dir, &[]));
    assert!(damage[0].is_null() && damage[1].as_str().unwrap().contains("missing"), "{damage:?}");
    fs::remove_file(&full).unwrap();
    let damage = damage_of(&list(&dir, &[]));
    assert!(damage.len() == 1 && damage[0].as_str().unwrap().contains("which it needs, is missing"), "{damage:?}");
    assert!(increment.exists());
}

/// The damaged archive is of a later time, which its name tells.
#[test]
fn moments_before_an_archive_with_a_damaged_head_are_restored() {
    let server = Server::start(&[]);
    let (dir, target) = (server.dir().join("following"), server.dir().join("target"));
    let [_, early] = record_moments(&server, &dir);
    let [late, _] = record_moments(&server, &dir);
    let increment = dir.join("000002-increment.mortar");
    let whole = fs::read(&increment).unwrap();
    fs::write(&increment, flip(&whole, 20)).unwrap();
    let at = |moment: &str| run(mortar(&["restore", "--at", moment, "--data"]).arg(&target).arg(&dir));
    at(&early).ok();
    fs::remove_dir_all(&target).unwrap();
    let refused = at(&late);
    assert_refused(&refused, 6, text(&increment));
    assert!(!target.exists());
    at(hinted_moment(&refused)).ok();
    fs::remove_dir_all(&target).unwrap();
    // Damage behind the head is found while the archive is restored.
    fs::write(&increment, flip(&whole, whole.len() / 2)).unwrap();
    let refused = at(&late);
    assert_refused(&refused, 6, text(&increment));
    let hinted = hinted_moment(&refused);
    assert!(hinted >= early.as_str(), "{hinted} is before {early}");
    at(hinted).ok();
}

#[test]
fn a_damaged_base_of_an_increment_is_no_damage_of_the_server() {
    let server = Server::start(&[]);
    let [base, increment] = ["base.mortar", "increment.mortar"].map(|name| server.dir().join(name));
    server.run_with_input(&["put", "-", "/a"], vec![7; 20_000]).ok();
    server.run(&["backup", text(&base)]).ok();
    let whole = fs::read(&base).unwrap();
    fs::write(&base, &whole[..whole.len() / 2]).unwrap();
    let refused = server.run(&["backup", "--since", text(&base), text(&increment)]);
    assert_refused(&refused, 6, text(&base));
    assert!(!refused.stderr.contains("scrub") && !increment.exists(), "{}", refused.stderr);
}

/// A supervisor that starts it again gets a backup again, also if what the next increment would need is damaged.
#[test]
fn a_backup_goes_on_with_a_full_archive_if_its_base_is_damaged() {
    let server = Server::start(&[]);
    let dir = server.dir().join("following");
    server.run_with_input(&["put", "-", "/first"], "x").ok();
    let mut following = FollowingBackup::start(&server.url(), &dir, &[]);
    let _ = following.moment();
    assert!(following.stop().success());
    let full = dir.join("000001-full.mortar");
    let whole = fs::read(&full).unwrap();
    for at in [3, 40, whole.len() / 2, whole.len() - 3] {
        fs::write(&full, flip(&whole, at)).unwrap();
        let mut following = FollowingBackup::start(&server.url(), &dir, &[]);
        let until = Instant::now() + TEST_TIMEOUT;
        while !dir.join("000002-full.mortar").exists() {
            assert!(Instant::now() < until, "byte {at}: {}", following.log());
            thread::sleep(Duration::from_millis(20));
        }
        assert!(following.stop().success(), "byte {at}: {}", following.log());
        assert!(following.log().contains("a full archive comes next"), "byte {at}: {}", following.log());
        following.restore_last(&server.dir().join(format!("restored-{at}"))).ok();
        // The next round begins as the first one.
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if !path.ends_with("FOLLOW") && !text(&path).contains("/000001-") {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

/// An increment of a chain that lacks an archive would cost all moments until the next full archive.
#[test]
fn a_backup_goes_on_with_a_full_archive_if_its_chain_is_broken() {
    let server = Server::start(&[]);
    let dir = server.dir().join("following");
    let follow = |until: &str| {
        let mut following = FollowingBackup::start(&server.url(), &dir, &[]);
        let begun = Instant::now();
        while !dir.join(until).exists() {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{}", following.log());
            thread::sleep(Duration::from_millis(20));
        }
        assert!(following.stop().success(), "{}", following.log());
        following
    };
    for archive in ["000001-full.mortar", "000002-increment.mortar", "000003-increment.mortar"] {
        let _ = follow(archive);
    }
    fs::remove_file(dir.join("000002-increment.mortar")).unwrap();
    let following = follow("000004-full.mortar");
    assert!(following.log().contains("is missing: a full archive comes next"), "{}", following.log());
    following.restore_last(&server.dir().join("restored")).ok();
}

#[test]
fn a_list_alone_finds_an_archive_that_was_cut_off() {
    let server = Server::start(&[]);
    let dir = server.dir().join("following");
    record_moments(&server, &dir);
    record_moments(&server, &dir);
    let full = dir.join("000001-full.mortar");
    let whole = fs::read(&full).unwrap();
    for cut in [1, whole.len() / 2] {
        fs::write(&full, &whole[..whole.len() - cut]).unwrap();
        let listed = list(&dir, &[]);
        assert_refused(&listed, 6, text(&dir));
        let damage: Vec<Value> = listed.json().into_iter().map(|state| state["damage"].clone()).collect();
        // The increment needs it.
        assert!(damage.len() == 2 && damage.iter().all(|damage| damage.as_str().unwrap().contains(text(&full))));
        assert!(damage[0].as_str().unwrap().contains("it is cut off"), "{damage:?}");
    }
    fs::write(&full, whole).unwrap();
    list(&dir, &[]).ok();
}

#[test]
fn a_damaged_archive_of_a_chain_is_named_and_nothing_is_left() {
    let server = Server::start(&[]);
    let [monday, tuesday, bad, target] = ["monday", "tuesday", "bad", "target"].map(|name| server.dir().join(name));
    server.run(&["backup", text(&monday)]).ok();
    server.run_with_input(&["put", "-", "/later"], "x").ok();
    server.run(&["backup", "--since", text(&monday), text(&tuesday)]).ok();
    let (first, second) = (fs::read(&monday).unwrap(), fs::read(&tuesday).unwrap());
    for (archives, bytes, expected) in [
        (&[&*bad, &*tuesday][..], flip(&first, 30), "a frame does not match"),
        (&[&bad, &tuesday], flip(&first, first.len() / 2), "a frame does not match"),
        (&[&bad], Vec::new(), "it is empty"),
        (&[&monday, &bad], flip(&second, 30), "a frame does not match"),
        (&[&monday, &bad], flip(&second, 200), "a frame does not match"),
        (&[&monday, &bad], Vec::new(), "it is empty"),
        (&[&monday, &bad], second[..5].to_vec(), "it ends in its header"),
        (&[&monday, &bad], second[..15].to_vec(), "it ends too early"),
    ] {
        fs::write(&bad, bytes).unwrap();
        let refused = restore(archives, &target);
        assert_refused(&refused, 6, expected);
        assert_refused(&refused, 6, text(&bad));
        assert!(!target.exists(), "{expected}");
    }
    // Nothing says of these bytes that they were an archive.
    fs::write(&bad, flip(&second, 3)).unwrap();
    assert_refused(&restore(&[&monday, &bad], &target), 2, "its first bytes are damaged");
    assert!(!target.exists());
}

/// Writes an archive whose first frame with bytes of a part comes again and again, until the reader has ended.
fn write_endless(archive: &[u8], out: &mut ChildStdin) {
    let mut at = 8;
    loop {
        let frame = &archive[at..at + 11 + u32::from_le_bytes(archive[at + 3..at + 7].try_into().unwrap()) as usize];
        if frame[0] == 2 {
            let begun = out.write_all(&archive[..at]);
            while begun.is_ok() && out.write_all(frame).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
            return;
        }
        at += frame.len();
    }
}

#[test]
fn a_stopped_restore_removes_its_directory_only_if_it_has_made_it() {
    let server = Server::start(&[]);
    let [monday, tuesday, new, empty] = ["monday", "tuesday", "new", "empty"].map(|name| server.dir().join(name));
    server.run(&["backup", text(&monday)]).ok();
    server.run(&["backup", "--since", text(&monday), text(&tuesday)]).ok();
    let increment = fs::read(&tuesday).unwrap();
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o755)).unwrap();
    for (target, expected) in [(&new, "new was removed again"), (&empty, "empty is empty")] {
        let mut command = mortar(&["restore", text(&monday), "-", "--data", text(target)]);
        let log = fs::File::create(server.dir().join("log")).unwrap();
        command.stdin(Stdio::piped()).stderr(log);
        let mut restore = spawn(command).unwrap();
        let mut stdin = restore.stdin.take().unwrap();
        let archive = increment.clone();
        let writing = thread::spawn(move || write_endless(&archive, &mut stdin));
        let until = Instant::now() + TEST_TIMEOUT;
        while !target.join("increments").exists() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        send(&restore, Signal::INT);
        let ended = wait(&mut restore, TEST_TIMEOUT).unwrap();
        writing.join().unwrap();
        let log = fs::read_to_string(server.dir().join("log")).unwrap();
        assert!(ended.code() == Some(130) && log.contains(expected), "{ended} {log}");
    }
    assert!(!new.exists());
    assert!(fs::read_dir(&empty).unwrap().next().is_none());
    assert_eq!(fs::metadata(&empty).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn files_in_place_of_directories_are_refused_and_so_are_options_that_do_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (file, tree) = (dir.path().join("file"), dir.path().join("tree"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&tree).unwrap();
    let refused = run(mortar(&["backup"]).arg(&tree));
    assert_refused(&refused, 2, "is a directory");
    assert!(!refused.stderr.contains("--overwrite"), "{}", refused.stderr);
    assert_refused(&run(mortar(&["backup", "--overwrite"]).arg(&tree)), 2, "is a directory");
    assert_refused(&list(&file, &[]), 2, "is no directory");
    assert_refused(&list(Path::new("-"), &[]), 2, "is no directory");
    assert_refused(&run(mortar(&["backup", "--follow"]).arg(&file)), 2, "is no directory");
    assert_refused(&restore(&[&file], &file), 2, "is not a directory");
    for option in [["--keep", "3d"], ["--every", "1s"]] {
        assert_refused(&run(mortar(&["backup"]).args(option).arg(dir.path().join("new"))), 2, option[0]);
    }
    assert_eq!(fs::read(&file).unwrap(), b"x");
    // A backup that follows writes nothing between the files of others.
    fs::write(tree.join("notes"), "x").unwrap();
    assert_refused(&run(mortar(&["backup", "--follow"]).arg(&tree)), 2, "notes");
    assert_eq!(fs::read_dir(&tree).unwrap().count(), 1);
}
