//! The failure policy of a space.

use std::fmt;

/// What happens to a space while a brick that serves a part of it is unreachable (TODS, section 4.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// All requests to the space are refused until the brick is back, so that no client works with a part of the data.
    FailStop,
    /// Requests to other bricks succeed; only requests that need the unreachable brick fail.
    #[default]
    Continue,
}

impl FailurePolicy {
    /// The name of the policy in commands, files and `--json` output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FailStop => "fail_stop",
            Self::Continue => "continue",
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
