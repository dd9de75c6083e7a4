//! Whole histories of replica groups and the meta-server that decides about them, checked from outside: records that
//! were reported durable are never lost, their order never changes, and at most one brick leads a group at a time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod brick;
mod check;
mod planted;
mod refused;
mod world;

/// The seed of the running history, which is printed if the history fails.
struct Seed(u64);

impl Drop for Seed {
    #[allow(clippy::print_stderr, reason = "the seed reproduces the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the history of seed {} failed", self.0);
        }
    }
}

/// Runs a history from each of many seeds. `run` returns the number of durable records, whose sum must be large enough
/// for a meaningful test.
#[allow(clippy::print_stderr, reason = "the amount of work is reported")]
fn run_all(run: impl Fn(u64) -> usize) {
    let seeds = std::env::var("MORTAR_SEEDS").map_or(300, |seeds| seeds.parse().expect("a number of seeds"));
    let run = |seed| {
        let _named = Seed(seed);
        run(seed)
    };
    // The first seed can be set.
    let begin = std::env::var("MORTAR_FIRST_SEED").map_or(0, |seed| seed.parse().expect("a seed"));
    let durable: usize = (begin..begin + seeds).map(run).sum();
    eprintln!("{seeds} seeds: {durable} records durable");
    assert!(durable as u64 > seeds * 10, "{durable} durable: too few for a meaningful test");
}
