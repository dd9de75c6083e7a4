//! Every scenario has its expected result, and detects every planted bug that it names.
//!
//! With `MORTAR_REWRITE=1` the expected results are written again: review the difference before a commit.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use sim::run::run;
use sim::scenario::{Scenario, expectation};

fn files() -> Vec<PathBuf> {
    let dir = Path::new("tests/scenarios");
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|kind| kind == "txt")).collect();
    files.sort();
    files
}

#[test]
fn every_scenario_has_its_expected_result() {
    let rewrite = std::env::var("MORTAR_REWRITE").is_ok_and(|value| value == "1");
    let mut mismatches = Vec::new();
    for path in files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let mut scenario = Scenario::read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if rewrite {
            let lines = expectation(&scenario.plan, &run(scenario.plan.clone(), None, false));
            fs::write(&path, Scenario::rewrite(&text, &lines)).unwrap();
            scenario.expected = Some(lines);
        }
        mismatches.extend(scenario.mismatches().into_iter().map(|mismatch| format!("{name}: {mismatch}")));
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[test]
fn scenario_is_deterministic() {
    for path in files() {
        let scenario = Scenario::read(&fs::read_to_string(&path).unwrap()).unwrap();
        let digest = || run(scenario.plan.clone(), None, false).digest();
        assert_eq!(digest(), digest(), "{}", path.display());
    }
}

#[test]
fn every_scenario_has_a_description_and_succeeds() {
    for path in files() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} must begin with a description", path.display());
        let expected = Scenario::read(&text).unwrap().expected.unwrap_or_default();
        assert_eq!(expected.last().map(String::as_str), Some("right"), "{}", path.display());
    }
}
