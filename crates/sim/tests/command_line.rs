//! `mortar-sim` as whoever calls it sees it: what it prints, what it writes, and how it exits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory of a test's own.
fn dir(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn call(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_mortar-sim")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn path(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn seeds_without_a_mistake_are_clean() {
    let (code, out, error) = call(&["run", "--seeds", "0..3", "--workload", "bank", "--topology", "peer"]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("3 seeds, 6 runs") && out.contains("nothing was found wrong"), "{out}");
}

#[test]
fn a_planted_mistake_is_shown_shrunk_and_can_be_run_again() {
    let dir = dir("planted");
    let seeds = ["run", "--seeds", "0..60", "--bug", "StaleReads", "--threads", "1", "--once", "--json"];
    let (code, out, error) = call(&[&seeds[..], &["--out", path(&dir)]].concat());
    assert_eq!(code, 1, "{error}");
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    let scenario = summary["failed"][0]["scenario"].as_str().unwrap().to_owned();
    assert!(summary["events"].as_u64().unwrap() > 0);
    assert!(fs::read_to_string(&scenario).unwrap().contains("catches StaleReads"));
    assert!(!fs::read_to_string(PathBuf::from(&scenario).with_extension("transcript")).unwrap().is_empty());
    // As a scenario it is right, and notices the mistake.
    let (code, out, _) = call(&["scenario", &scenario]);
    assert_eq!((code, out.contains("as expected")), (0, true), "{out}");
    let (code, out, _) = call(&["scenario", &scenario, "--trace", "--bug", "StaleReads"]);
    assert_eq!((code, out.contains("* Do(")), (1, true), "{out}");
    let (code, out, _) = call(&["scenario", &scenario, "--all-bugs"]);
    assert_eq!((code, out.contains("StaleReads")), (0, true), "{out}");
}

#[test]
fn a_scenario_that_comes_out_otherwise_is_wrong_until_it_is_rewritten() {
    let file = dir("rewritten").join("one.txt");
    fs::write(&file, "# one\nbricks 1\nc1 transact append 1.1.0\n----\nright\n").unwrap();
    let (code, out, _) = call(&["scenario", path(&file)]);
    assert_eq!(code, 1);
    assert!(out.contains("expected: right\n   found: c1 T1 ok"), "{out}");
    assert_eq!(call(&["scenario", "--rewrite", path(&file)]).0, 0);
    assert_eq!(call(&["scenario", path(&file)]).0, 0);
    assert!(fs::read_to_string(&file).unwrap().starts_with("# one\nbricks 1\n"));
}

#[test]
fn the_history_of_a_seed_can_be_judged() {
    let file = dir("history").join("seed.jsonl");
    assert_eq!(call(&["run", "--seeds", "2", "--once", "--history", path(&file)]).0, 0);
    let (code, out, _) = call(&["check", path(&file)]);
    assert_eq!((code, out.matches("right").count()), (0, 3), "{out}");
    let lost = concat!(
        r#"{"number":1,"client":1,"kind":"transaction","invoked":1,"returned":2,"outcome":"ok","steps":[["append","k",1]]}"#,
        "\n",
        r#"{"number":2,"client":2,"kind":"read_only","invoked":5,"returned":6,"outcome":"ok","steps":[["read","k",[]]]}"#,
    );
    fs::write(&file, lost).unwrap();
    let (code, out, _) = call(&["check", path(&file)]);
    assert_eq!((code, out.contains("strict serializability: ")), (1, true), "{out}");
}

#[test]
fn wrong_calls_and_files_are_told_from_wrong_runs() {
    let file = dir("usage").join("broken");
    fs::write(&file, "fly b1\n").unwrap();
    let calls: [&[&str]; 9] = [
        &[],
        &["run"],
        &["run", "--seeds", "5..5"],
        &["run", "--seeds", "0..2", "--history", "nowhere.jsonl"],
        &["run", "--seeds", "0..2", "--workload", "none"],
        &["run", "--seeds", "0..2", "--bug", "none"],
        &["scenario", path(&file)],
        &["check", path(&file)],
        &["bugs", "--rule", "X9"],
    ];
    for arguments in calls {
        let (code, _, error) = call(arguments);
        assert_eq!((code, error.is_empty()), (2, false), "{arguments:?}: {error}");
    }
    let (_, _, error) = call(&["scenario", path(&file)]);
    assert!(error.contains("line 1: `fly` is neither of"), "{error}");
}

#[test]
fn bugs_are_listed_with_their_rules() {
    let (code, out, _) = call(&["bugs"]);
    assert_eq!(code, 0);
    assert!(out.lines().count() >= 40 && out.contains("P3  NoDoom "), "{out}");
}

#[test]
fn the_nightly_run_has_scenarios_and_seeds() {
    let scenarios = "tests/scenarios";
    let (code, out, error) = call(&["nightly", "--seeds", "0..2", "--least-cuts", "1000", "--scenarios", scenarios]);
    assert!(code == 1 && out.contains("1000 cuts were wanted"), "{out}{error}");
    let (code, out, error) = call(&["nightly", "--seeds", "0..2", "--scenarios", scenarios]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.contains("scenarios, in which") && out.contains("2 seeds, 4 runs"), "{out}");
}
