//! What can be asked for on the command line, one file for each command.

pub(crate) mod bugs;
pub(crate) mod check;
pub(crate) mod cost;
pub(crate) mod nightly;
pub(crate) mod run;
pub(crate) mod scenario;

use sim::bug::Bug;

/// The mistake of this name.
fn bug(name: &str) -> Result<Bug, String> {
    let found = Bug::all().find(|bug| format!("{bug:?}").eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("there is no `{name}`: `mortar-sim bugs` lists what can be planted"))
}

/// As many threads as there are cores.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
