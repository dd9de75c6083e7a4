//! A short run of every fuzz target on stable Rust. `MORTAR_FUZZ_INPUTS` sets the number of inputs for each.

use std::fs;
use std::path::{Path, PathBuf};

use fuzz::{Target, smoke};

const INPUTS: u32 = 20_000;

fn corpus(target: Target) -> Vec<Vec<u8>> {
    let dir = Path::new("../../fuzz/corpus").join(target.name);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("the corpus is listed").path()).collect();
    // The same order of inputs on every machine.
    files.sort();
    files.iter().map(|file| fs::read(file).expect("the corpus is readable")).collect()
}

fn run(target: Target) {
    let inputs = std::env::var("MORTAR_FUZZ_INPUTS").map_or(INPUTS, |count| count.parse().expect("a count of inputs"));
    smoke(target, &corpus(target), inputs);
}

#[test]
fn record() {
    run(Target::RECORD);
}

#[test]
fn filter() {
    run(Target::FILTER);
}

#[test]
fn wire_frames() {
    run(Target::WIRE_FRAMES);
}

#[test]
fn log_frames() {
    run(Target::LOG_FRAMES);
}

#[test]
fn query() {
    run(Target::QUERY);
}

#[test]
fn archive() {
    run(Target::ARCHIVE);
}

#[test]
fn cluster() {
    run(Target::CLUSTER);
}

#[test]
fn archives_of_the_corpus_are_valid() {
    let corpus = corpus(Target::ARCHIVE);
    assert!(!corpus.is_empty() && corpus.iter().all(|input| store::check_archive(input)));
    assert!(!store::check_archive(&corpus[0][..corpus[0].len() - 1]));
}

#[test]
fn every_target_has_a_program_for_libfuzzer() {
    let programs = Path::new("../../fuzz/fuzz_targets");
    for target in Target::ALL {
        assert!(programs.join(target.name).with_extension("rs").is_file(), "{}", target.name);
    }
    assert_eq!(fs::read_dir(programs).unwrap().count(), Target::ALL.len());
}

#[test]
#[should_panic(expected = "found it")]
fn a_target_that_panics_on_a_mutated_input_is_reported() {
    let run = |input: &[u8]| assert!(!input.starts_with(b"go\xff"), "found it");
    smoke(Target { name: "planted", run }, &[b"good".to_vec()], INPUTS);
}
