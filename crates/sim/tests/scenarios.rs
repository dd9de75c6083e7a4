//! Every scenario comes out as it says, and notices every mistake that it says it catches.
//!
//! With `MORTAR_REWRITE=1` what is expected is written anew: look at the difference before it is committed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::fs;
use std::path::{Path, PathBuf};

use sim::run::run;
use sim::scenario::{Scenario, expectation};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|kind| kind == "txt")).collect();
    files.sort();
    files
}

#[test]
fn every_scenario_comes_out_as_it_says() {
    let rewrite = std::env::var("MORTAR_REWRITE").is_ok_and(|value| value == "1");
    let mut complaints = Vec::new();
    for path in files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let mut scenario = Scenario::read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if rewrite {
            let lines = expectation(&scenario.plan, &run(scenario.plan.clone(), None, false));
            fs::write(&path, Scenario::rewrite(&text, &lines)).unwrap();
            scenario.expected = Some(lines);
        }
        complaints.extend(scenario.mismatches().into_iter().map(|complaint| format!("{name}: {complaint}")));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_scenario_is_the_same_each_time() {
    for path in files() {
        let scenario = Scenario::read(&fs::read_to_string(&path).unwrap()).unwrap();
        let digest = || run(scenario.plan.clone(), None, false).digest();
        assert_eq!(digest(), digest(), "{}", path.display());
    }
}

#[test]
fn every_scenario_tells_its_story_and_says_what_is_right() {
    for path in files() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} begins with what it is about", path.display());
        let expected = Scenario::read(&text).unwrap().expected.unwrap_or_default();
        assert_eq!(expected.last().map(String::as_str), Some("right"), "{}", path.display());
    }
}
