//! OSBDB table 1: lines of code of the object store, counted as SLOCCount does: neither blank nor only comment.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::figure::{Better, Figure, Row, Shape};
use crate::run::Run;

const PAPER_OSBDB: f64 = 2161.0;
const PAPER_EBOFS: f64 = 6600.0;

/// Counts the store's code without its tests.
pub(super) fn measure(_: &Run) -> Result<Figure> {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/src");
    let mut lines = 0;
    for file in sources(&store)? {
        lines += count(&fs::read_to_string(file)?);
    }
    let row = |name: &str, paper| Row {
        case: "lines of code of the store, without tests".into(),
        panel: "lines of code".into(),
        point: "store".into(),
        unit: "lines",
        better: Better::Lower,
        rival_name: name.into(),
        mortar: vec![f64::from(lines)],
        rival: vec![paper],
        target_ratio: None,
    };
    Ok(Figure {
        id: "osbdb-t1",
        title: "lines of code of the object store",
        about: "Mortar's store implements a log, recovery, checksums, large objects in separate files, backup, scrub and repair \
                itself, where the paper's store relies on Berkeley DB for what it has of these. For context only."
            .into(),
        paper: "OSBDB 2,161 lines of C++, EBOFS 6,600.",
        parameters: vec!["crates/store/src, counted at this run".into()],
        shape: Shape::Bars,
        rows: vec![row("OSBDB (paper)", PAPER_OSBDB), row("EBOFS (paper)", PAPER_EBOFS)],
        skipped: Vec::new(),
    })
}

/// All Rust files below a directory, except tests.
fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Number of lines that are neither blank nor only comments, up to the tests at the end of a file.
fn count(text: &str) -> u32 {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let counted = code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    counted.count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_do_not_count() {
        let text = "//! Docs.\n\nfn f() { // why\n    // what\n}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(count(text), 2);
    }
}
