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
  mortar --server mortar://127.0.0.1:6690 space create music --nodes 16   of a cluster, by its meta-server
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
        /// Of a cluster: how many logical nodes it is spread over [default: enough for many more bricks than there are]
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
        nodes: Option<u32>,
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
        Action::Create { name, nodes } => {
            let id = client.create_space_with(&name, nodes).await?.0;
            session.output.print(&Line { id, name })
        }
        Action::Ls => {
            let spaces = client.spaces().await?;
            spaces.into_iter().try_for_each(|(id, name)| session.output.print(&Line { id: id.0, name }))
        }
    }
}
