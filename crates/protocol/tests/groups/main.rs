//! Whole histories of replica groups and the meta-server that decides about them, checked from outside: what was told
//! durable is there for ever, there is one history of it, and nobody answers beside the one who may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

mod brick;
mod check;
mod planted;
mod refused;
mod world;

/// The seed of the history that runs: named if that fails.
struct Seed(u64);

impl Drop for Seed {
    #[allow(clippy::print_stderr, reason = "it is what the failure is found again by")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the history of seed {} failed", self.0);
        }
    }
}

/// Runs a history from each of many seeds; it returns how many records became durable, of which there must be enough to
/// mean anything.
#[allow(clippy::print_stderr, reason = "how much was run is worth knowing")]
fn run_all(run: impl Fn(u64) -> usize) {
    let seeds = std::env::var("MORTAR_SEEDS").map_or(300, |seeds| seeds.parse().expect("a number of seeds"));
    let run = |seed| {
        let _named = Seed(seed);
        run(seed)
    };
    // Others than the first ones can be asked for.
    let begin = std::env::var("MORTAR_FIRST_SEED").map_or(0, |seed| seed.parse().expect("a seed"));
    let durable: usize = (begin..begin + seeds).map(run).sum();
    eprintln!("{seeds} seeds: {durable} records durable");
    assert!(durable as u64 > seeds * 10, "{durable} durable: too few to mean anything");
}
