//! The binary `mortar`. Its code is the library `cli`, which compiles while the code of the servers is generated.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run_command_line()
}
