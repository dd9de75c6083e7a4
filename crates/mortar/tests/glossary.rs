//! The names of public types consist of standard words and of words that docs/glossary.md defines.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Standard terms and English words that need no definition here. A new type takes its words from these or from the glossary. A
/// missing standard term is added here, a word of Mortar's own to the glossary.
const STANDARD: &str = include_str!("standard_words.txt");

/// Crates whose public names are compared.
const CRATES: [&str; 9] = ["model", "protocol", "query", "store", "meta", "wire", "node", "client", "relay"];

fn root() -> &'static Path {
    Path::new("../..")
}

/// All Rust files below a directory.
fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The words of `CamelCase`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars().filter(|letter| *letter != '_') {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_lowercase().to_string()),
        }
    }
    words
}

/// The public type that a line of a source file declares.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let (kind, rest) = rest.split_once(' ')?;
    let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    ["struct", "enum", "trait", "type", "union"].contains(&kind).then_some(name)
}

/// The words that the glossary defines.
fn glossary() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let entry = |line: &str| Some(line.strip_prefix("| **")?.split_once("** |")?.0.to_owned());
    text.lines().filter_map(entry).collect()
}

/// The words of a text in lower case, each between single spaces.
fn normalize_words(text: &str) -> String {
    let mut flat = String::from(" ");
    let mut before = ' ';
    for letter in text.chars() {
        if !letter.is_alphanumeric() {
            if !flat.ends_with(' ') {
                flat.push(' ');
            }
        } else {
            if letter.is_uppercase() && before.is_lowercase() {
                flat.push(' ');
            }
            flat.extend(letter.to_lowercase());
        }
        before = letter;
    }
    flat + " "
}

#[test]
fn public_types_are_named_with_standard_words_and_those_of_the_glossary() {
    let glossary = glossary();
    let defined = glossary
        .iter()
        .flat_map(|entry| normalize_words(entry).split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let mut known: BTreeSet<String> = STANDARD.split_whitespace().map(str::to_owned).collect();
    known.extend(defined);
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut types = 0;
    for name in CRATES {
        let mut files = Vec::new();
        sources(&root().join("crates").join(name).join("src"), &mut files);
        for file in files.iter().filter(|file| !file.to_string_lossy().contains("tests")) {
            let text = fs::read_to_string(file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for public in code.lines().filter_map(public_type) {
                types += 1;
                let is_known = |word: &String| known.contains(word) || known.contains(word.trim_end_matches('s'));
                for word in words(public).into_iter().filter(|word| !is_known(word)) {
                    unknown.entry(word).or_default().push(format!("{name}: {public}"));
                }
            }
        }
    }
    assert!(types > 200, "only {types} public types were found");
    assert!(
        unknown.is_empty(),
        "words of public types that are neither standard nor in docs/glossary.md: rename the type, define the word in \
         docs/glossary.md, or, if it is a standard term, add it to crates/mortar/tests/standard_words.txt: {unknown:#?}"
    );
}

#[test]
fn every_word_of_the_glossary_is_used_by_the_code() {
    let mut text = String::new();
    for name in CRATES {
        let mut files = Vec::new();
        sources(&root().join("crates").join(name).join("src"), &mut files);
        for file in files {
            text.push_str(&normalize_words(&fs::read_to_string(file).unwrap()));
        }
    }
    let is_used = |entry: &String| text.contains(normalize_words(entry).trim_end());
    let glossary = glossary();
    assert!(glossary.len() > 60, "only {} words were found", glossary.len());
    let unused: Vec<&String> = glossary.iter().filter(|entry| !is_used(entry)).collect();
    assert!(unused.is_empty(), "words of docs/glossary.md that no crate uses: remove them: {unused:?}");
}

#[test]
fn no_word_is_defined_twice() {
    let mut seen = BTreeSet::new();
    let twice: Vec<String> = glossary().into_iter().filter(|entry| !seen.insert(entry.to_lowercase())).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
