//! `mortar-sim bugs`.

use sim::bug::Bug;

use crate::screen::result;
use crate::{CommandResult, Result};

/// List the bugs that can be planted: rule, name, and description.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only bugs that break this rule (V1, C3, …).
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<CommandResult> {
    let wanted = |bug: &Bug| arguments.rule.as_ref().is_none_or(|rule| rule.eq_ignore_ascii_case(bug.rule()));
    let bugs: Vec<Bug> = Bug::all().filter(wanted).collect();
    if bugs.is_empty() {
        return Err("no bug breaks that rule: omit --rule to list all".into());
    }
    for bug in bugs {
        result(format_args!("{:3} {:24} {}", bug.rule(), format!("{bug:?}"), bug.what()));
    }
    Ok(CommandResult::Clean)
}
