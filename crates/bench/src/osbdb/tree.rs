//! OSBDB figures 5 and 6: creating and walking a tree of directories.
//!
//! A directory is a collection and a file is an empty object; both have their name as an attribute.

use std::time::Instant;

use model::Oid;

use super::{Collections, sides};
use crate::Result;
use crate::contest::interleave;
use crate::figure::{Better, Figure, Shape};
use crate::rival;
use crate::run::{MetricSpec, Run};

const DIRECTORIES: usize = 2;
const FILES: usize = 16;
const DEPTH: usize = 4;
const PAPER_RUNS: usize = 16;

/// Figure 5: makedirs.
pub(super) fn measure_make(run: &Run) -> Result<Figure> {
    let trees = run.choose(PAPER_RUNS, 2);
    let about = "Make the tree. Each directory and each file is one transaction (the object, its name, its place in its \
                 directory), on disk before the next begins.";
    let paper = "makedirs is much slower on Berkeley DB than on EBOFS.";
    let mut figure = new_figure("osbdb-5", "making a tree of directories", about, paper, trees);
    let cells = [cell("makedirs, each change forced")];
    let mut contest = sides::contest(sides::Use::Tree, |side| {
        let mut fresh = side.create_with_collections(run)?;
        let begun = Instant::now();
        for _ in 0..trees {
            make_tree(&mut *fresh.store)?;
        }
        Ok(vec![begun.elapsed().as_secs_f64() * 1e3 / trees as f64])
    });
    let outcome = interleave("osbdb-5", Run::REPEATS, &mut contest)?;
    figure.rows = run.rows("osbdb-5", &outcome, &cells);
    Ok(figure)
}

/// Figure 6: walk and readdirs.
pub(super) fn measure_read(run: &Run) -> Result<Figure> {
    let times = run.choose(PAPER_RUNS * 16, PAPER_RUNS * 4);
    let about = "walk lists every directory and asks for the kind and name of each member; readdirs lists every \
                 directory only. The tree was made beforehand, and the store opened anew.";
    let paper = "walk and readdirs on Berkeley DB are about as fast as on EBOFS.";
    let mut figure = new_figure("osbdb-6", "reading a tree of directories", about, paper, times);
    let cells = [cell("walk"), cell("readdirs")];
    let mut contest = sides::contest(sides::Use::Tree, |side| {
        let mut fresh = side.create_with_collections(run)?;
        let (root, directories) = make_tree(&mut *fresh.store)?;
        fresh.store.reopen()?;
        let begun = Instant::now();
        for _ in 0..times {
            let entries = walk(&mut *fresh.store, root)?;
            if entries != (directories.len() - 1) + directories.len() * FILES {
                return Err(format!("walk saw {entries} entries").into());
            }
        }
        let walking = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        for _ in 0..times {
            for directory in &directories {
                fresh.store.members(*directory)?;
            }
        }
        let per_run = 1e3 / times as f64;
        Ok(vec![walking * per_run, begun.elapsed().as_secs_f64() * per_run])
    });
    let outcome = interleave("osbdb-6", Run::REPEATS, &mut contest)?;
    figure.rows = run.rows("osbdb-6", &outcome, &cells);
    Ok(figure)
}

fn new_figure(id: &'static str, title: &'static str, about: &str, paper: &'static str, runs: usize) -> Figure {
    Figure {
        id,
        title,
        about: about.to_owned(),
        paper,
        parameters: [
            vec![
                format!("{DIRECTORIES} directories in each, {FILES} files in each, {DEPTH} levels below the root"),
                format!("mean of {runs} a run; the paper's of {PAPER_RUNS}"),
            ],
            sides::settings(sides::Use::Tree),
        ]
        .concat(),
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: rival::missing(),
    }
}

fn cell(case: &str) -> MetricSpec {
    let (panel, point) = ("milliseconds a tree".to_owned(), case.to_owned());
    MetricSpec { case: case.to_owned(), panel, point, unit: "ms", better: Better::Lower, target_ratio: Some(1.0) }
}

/// Creates a tree. Returns its root, and all of its directories including the root.
fn make_tree(store: &mut dyn Collections) -> Result<(Oid, Vec<Oid>)> {
    let root = store.create_collection(None, "root")?;
    let mut directories = vec![root];
    let mut level = vec![root];
    for depth in 0..=DEPTH {
        let mut next = Vec::new();
        for directory in level {
            for file in 0..FILES {
                store.create_object(directory, &format!("file.{file}"))?;
            }
            for number in 0..if depth < DEPTH { DIRECTORIES } else { 0 } {
                next.push(store.create_collection(Some(directory), &format!("dir.{number}"))?);
            }
        }
        directories.extend_from_slice(&next);
        level = next;
    }
    Ok((root, directories))
}

/// Walks the tree. Returns the number of entries.
fn walk(store: &mut dyn Collections, directory: Oid) -> Result<usize> {
    let mut entries = 0;
    for member in store.members(directory)? {
        entries += 1;
        let (is_collection, name) = store.describe(member)?;
        if name.is_empty() {
            return Err(format!("{member} has no name").into());
        }
        if is_collection {
            entries += walk(store, member)?;
        }
    }
    Ok(entries)
}
