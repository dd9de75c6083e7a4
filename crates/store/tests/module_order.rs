//! The modules of `src` depend on each other in one direction.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules; each may use those of earlier lines.
const ORDER: [&[&str]; 13] = [
    &["checksum", "options", "plant", "progress"],
    &["disk", "rows"],
    &["engine", "log"],
    &["error"],
    &["change_tracking", "content", "directory"],
    &["read"],
    &["backup", "commit", "scrub"],
    &["open", "status"],
    &["store"],
    &["repair", "roll_forward"],
    &["sim"],
    &["tests"],
    &["lib"],
];

fn source_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn level(module: &str) -> Option<usize> {
    ORDER.iter().position(|modules| modules.contains(&module))
}

/// The modules of this crate that a file names, except in tests and comments.
fn used_modules(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split("crate::").skip(1));
    names.map(|name| name.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or_default()).collect()
}

#[test]
fn modules_depend_on_each_other_in_one_direction() {
    let root = Path::new("src");
    let mut files = Vec::new();
    source_files(root, &mut files);
    assert!(files.len() > 30, "the sources were not found in {}", root.display());
    for file in files {
        let path = file.strip_prefix(root).unwrap().with_extension("");
        let parts: Vec<_> = path.iter().map(|part| part.to_str().unwrap()).collect();
        let module = if parts.contains(&"tests") { "tests" } else { parts[0] };
        let own = level(module).unwrap_or_else(|| panic!("ORDER lacks module {module}"));
        let text = fs::read_to_string(&file).unwrap();
        for used in used_modules(&text).into_iter().filter(|used| !used.is_empty() && *used != module) {
            let below = level(used).unwrap_or_else(|| panic!("ORDER lacks module {used}, which {module} uses"));
            assert!(below < own, "{} uses {used}, which is not below {module}", file.display());
        }
    }
}
