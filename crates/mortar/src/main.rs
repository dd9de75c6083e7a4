//! The binary `mortar`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mortar::run_command_line()
}
