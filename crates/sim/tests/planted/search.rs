//! Looks for seeds that notice bugs.
//!
//! `seeds.txt` has a seed that has noticed each bug, which is tried first; `MORTAR_SEEDS=N` searches from the beginning, in N seeds at most.
//! With `MORTAR_WRITE_SEEDS=1` the file is written anew. `MORTAR_BUG=NAME` looks for one bug only.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sim::bug::Bug;
use sim::run::run;
use sim::workload::{Choice, plan};

/// The seeds that have noticed bugs.
const SEEDS_FILE: &str = "tests/planted/seeds.txt";

/// A bug, where it is looked for, and in how many seeds at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    pub(crate) bug: Bug,
    pub(crate) choice: Choice,
    pub(crate) limit: u64,
}

impl Search {
    /// A seed that notices the bug, and as what. `known` is tried first.
    fn first_noticed(&self, known: Option<u64>) -> Option<(u64, String)> {
        let tries = known.into_iter().chain(0..self.limit).map(|seed| (seed, plan(seed, self.choice)));
        let mut found =
            tries.filter_map(|(seed, plan)| Some((seed, run(plan, Some(self.bug), false).wrong?.to_string())));
        found.next().map(|(seed, wrong)| (seed, wrong.lines().next().unwrap_or_default().chars().take(110).collect()))
    }
}

/// Looks for bugs, on all processors. Returns those that nothing noticed. What is noticed must be the bug: without it, nothing is wrong
/// in the same plan.
#[allow(clippy::print_stderr, reason = "how soon each is noticed is worth knowing")]
pub(crate) fn unnoticed_bugs(searches: impl IntoIterator<Item = Search>) -> Vec<Bug> {
    let only = std::env::var("MORTAR_BUG").ok();
    let wanted = |search: &Search| only.as_ref().is_none_or(|only| format!("{:?}", search.bug) == *only);
    let mut searches: Vec<Search> = searches.into_iter().filter(wanted).collect();
    let asked = std::env::var("MORTAR_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    searches.iter_mut().for_each(|search| search.limit = asked.unwrap_or(search.limit));
    let is_written = std::env::var_os("MORTAR_WRITE_SEEDS").is_some();
    let known = if asked.is_some() || is_written { BTreeMap::new() } else { known_seeds() };
    let noticed = Mutex::new(BTreeMap::new());
    on_all_processors(&searches, |search| {
        let known = known.get(&format!("{:?}", search.bug)).copied();
        if let Some((seed, wrong)) = search.first_noticed(known) {
            noticed.lock().unwrap().insert(search.bug, (search.choice, seed, wrong));
        }
    });
    let noticed = noticed.into_inner().unwrap();
    if is_written {
        write_seeds(noticed.iter().map(|(bug, (_, seed, _))| (*bug, *seed)));
    }
    for (bug, (_, seed, wrong)) in &noticed {
        eprintln!("{:3} {bug:?}: seed {seed}: {wrong}", bug.rule());
    }
    assert_clean(noticed.values().map(|(choice, seed, _)| (*choice, *seed)));
    searches.into_iter().map(|search| search.bug).filter(|bug| !noticed.contains_key(bug)).collect()
}

/// Without a planted bug nothing is wrong in these plans.
fn assert_clean(plans: impl Iterator<Item = (Choice, u64)>) {
    let mut distinct = Vec::new();
    for one in plans {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    on_all_processors(&distinct, |(choice, seed)| {
        if let Some(wrong) = run(plan(*seed, *choice), None, false).wrong {
            panic!("seed {seed} of {choice:?}, without a planted bug: {wrong}");
        }
    });
}

/// Calls `action` for all items, on as many threads as there are processors.
fn on_all_processors<T: Sync>(items: &[T], action: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    action(item);
                }
            });
        }
    });
}

fn known_seeds() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(SEEDS_FILE).unwrap();
    let line = |line: &str| line.split_once(' ').map(|(bug, seed)| (bug.to_owned(), seed.parse().unwrap()));
    text.lines().filter_map(line).collect()
}

fn write_seeds(found: impl Iterator<Item = (Bug, u64)>) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap();
    let mut seeds = known_seeds();
    seeds.extend(found.map(|(bug, seed)| (format!("{bug:?}"), seed)));
    let lines: String = seeds.iter().map(|(bug, seed)| format!("{bug} {seed}\n")).collect();
    fs::write(SEEDS_FILE, lines).unwrap();
}
