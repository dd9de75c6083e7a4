//! Scenarios: plans as text with their expected results.
//!
//! A scenario reads like a transcript. First the cluster, then what happens, one action a line; after a line `----` what is
//! expected: every operation as its client saw it, and `right`, or `wrong:` and what was found. `docs/simulator.md` has the
//! whole language.
//!
//! ```text
//! bricks 1                          # defaults are left out
//! clients 2
//! catches NoDoom                    # with this mistake planted something must be found wrong
//!
//! c1 transact append 1.1.0 pause    # an action without a time waits until nothing is under way
//! c2 transact append 1.1.0
//! @300 c1 go                        # one with a time happens then, in milliseconds
//! ----
//! c2 T2 ok: read 1.1.0 nothing, append 1.1.0 2
//! c1 T1 failed: read 1.1.0 nothing, append 1.1.0 1
//! right
//! ```
//!
//! - **S1.** What is printed is read as the same plan.
//! - **S2.** The size of a text and of everything in it is bounded: a scenario from others is safe to run.
//! - **S3.** An expected result has no times: a rule that sends one more message does not change a scenario.

use std::error::Error;
use std::fmt;

use crate::bug::Bug;
use crate::plan::Plan;
use crate::run::run;

mod expected;
mod parse;
mod print;

pub use expected::expectation;
pub use print::{print, print_action};

/// Bytes that a scenario may have.
pub const TEXT_LIMIT: usize = 4 << 20;
/// Actions that it may have.
pub const ACTION_LIMIT: usize = 100_000;
/// Steps that an operation may have.
pub const STEP_LIMIT: usize = 1_000;
/// Processes of a kind that it may have.
pub const PROCESS_LIMIT: usize = 64;
/// The latest time that it may speak of, in milliseconds: a little more than a day.
pub const TIME_LIMIT: u64 = 100_000_000;

/// What divides what happens from what is expected.
const DIVIDER: &str = "----";

/// A plan with its expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What is to happen.
    pub plan: Plan,
    /// Bugs that it must notice if they are planted.
    pub catches: Vec<Bug>,
    /// The operations as their clients saw them, and the verdict; none if that is not written down.
    pub expected: Option<Vec<String>>,
}

/// Why something is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl Error for Malformed {}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn read(text: &str) -> Result<Self, Malformed> {
        if text.len() > TEXT_LIMIT {
            return Err(Malformed { line: 1, message: format!("a scenario has at most {TEXT_LIMIT} bytes") });
        }
        let lines: Vec<&str> = text.lines().collect();
        let divider = lines.iter().position(|line| line.trim_end() == DIVIDER);
        let expected = divider.map(|at| {
            let lines = lines[at + 1..].iter().map(|line| line.trim_end().to_owned());
            lines.filter(|line| !line.is_empty()).collect()
        });
        let (plan, catches) = parse::parse(&lines[..divider.unwrap_or(lines.len())])?;
        Ok(Self { plan, catches, expected })
    }

    /// Runs the scenario. Returns every difference from the expected result, and every bug in `catches` that it does not
    /// notice.
    #[must_use]
    pub fn mismatches(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let found = expectation(&self.plan, &run(self.plan.clone(), None, false));
        match &self.expected {
            None => complaints.push("it does not say what is expected".to_owned()),
            Some(expected) => {
                let longest = expected.len().max(found.len());
                let differs = |at: &usize| expected.get(*at) != found.get(*at);
                if let Some(at) = (0..longest).find(differs) {
                    let line = |lines: &[String]| lines.get(at).map_or("nothing", String::as_str).to_owned();
                    complaints.push(format!(
                        "expected: {}
   found: {}",
                        line(expected),
                        line(&found)
                    ));
                }
            }
        }
        let unnoticed = self.catches.iter().filter(|bug| !self.notices(**bug, &found));
        complaints.extend(unnoticed.map(|bug| format!("{bug:?} is planted, and the result is the same")));
        complaints
    }

    /// Whether the run has another result with this bug planted: a violation, or another outcome of an operation. `correct` is
    /// the result without a bug.
    #[must_use]
    pub fn notices(&self, bug: Bug, correct: &[String]) -> bool {
        expectation(&self.plan, &run(self.plan.clone(), Some(bug), false)) != correct
    }

    /// The text with another expectation: comments and everything else stay as they are.
    #[must_use]
    pub fn rewrite(text: &str, expected: &[String]) -> String {
        let mut out = String::new();
        for line in text.lines().take_while(|line| line.trim_end() != DIVIDER) {
            out += line;
            out.push('\n');
        }
        out += DIVIDER;
        out.push('\n');
        for line in expected {
            out += line;
            out.push('\n');
        }
        out
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(&self.plan, &self.catches))?;
        let Some(expected) = &self.expected else { return Ok(()) };
        writeln!(f, "{DIVIDER}")?;
        expected.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
