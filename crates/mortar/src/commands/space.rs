//! `mortar space`: object spaces.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::connection::Session;
use crate::failure::Result;
use crate::output::{Printable, Report};

const EXAMPLES: &str = "\
Examples:
  mortar space create photos
  mortar space ls
  mortar --server mortar://127.0.0.1:6678/photos ls     work in that space";

/// Make and list object spaces
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Space {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a space
    #[command(after_help = EXAMPLES)]
    Create {
        /// Its name
        name: String,
    },
    /// List the spaces
    #[command(after_help = EXAMPLES)]
    Ls,
}

#[derive(Serialize)]
struct Line {
    id: u16,
    name: String,
}

impl Report for Line {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{:<6} {}", self.id, Printable(&self.name))
    }
}

pub(crate) async fn run(args: Space, session: &mut Session) -> Result {
    let client = session.connect().await?;
    match args.action {
        Action::Create { name } => {
            let id = client.create_space(&name).await?.0;
            session.output.print(&Line { id, name })
        }
        Action::Ls => {
            let spaces = client.spaces().await?;
            spaces.into_iter().try_for_each(|(id, name)| session.output.print(&Line { id: id.0, name }))
        }
    }
}
