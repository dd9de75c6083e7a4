//! What happens to a space while a part of it is away.

use std::fmt;

/// What happens to a space while a brick that serves some of it cannot be reached (TODS, section 4.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// Everything in the space is refused until the brick is back: nobody works with half of it.
    FailStop,
    /// What is on other bricks goes on; only what needs the brick fails.
    #[default]
    Continue,
}

impl FailurePolicy {
    /// Its name, as in commands, files and `--json` output.
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
