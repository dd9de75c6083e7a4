//! `mortar completions` and `mortar man`: shell completions and manual pages.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::{Failure, Result};
use crate::output::Output;

const COMPLETIONS: &str = "\
Examples:
  mortar completions bash > ~/.local/share/bash-completion/completions/mortar
  mortar completions zsh > ~/.zfunc/_mortar
  mortar completions fish > ~/.config/fish/completions/mortar.fish";

const MAN: &str = "\
Examples:
  mortar man | man -l -                          read the manual
  mortar man --dir ~/.local/share/man/man1       install a page for each command";

/// Print the completion script for a shell
#[derive(Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Print the manual, or write one page for each command
#[derive(Args)]
#[command(after_help = MAN)]
pub(crate) struct Man {
    /// Write `mortar.1`, `mortar-put.1` and so on into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &Completions, output: &mut Output) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::definition(), "mortar", &mut script);
    output.write_raw(&script)
}

pub(crate) fn man(args: &Man, output: &mut Output) -> Result {
    if let Some(dir) = &args.dir {
        let cannot = |error| Failure::file(format!("cannot write to {}", dir.display()), &error);
        fs::create_dir_all(dir).map_err(cannot)?;
        return clap_mangen::generate_to(Cli::definition(), dir).map_err(cannot);
    }
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(Cli::definition());
    manual.render(&mut page).map_err(|e| Failure::new(format!("cannot make the manual: {e}")))?;
    output.write_raw(&page)
}
