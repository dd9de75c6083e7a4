//! `mortar space`: object spaces.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::user::{self, Grantee, Permission};
use crate::connection::Session;
use crate::failure::Result;
use crate::output::{Printable, Report};

const EXAMPLES: &str = "\
Examples:
  mortar space create photos
  mortar space ls
  mortar --server mortar://127.0.0.1:6690 space create music --nodes 16   of a cluster, by its meta-server
  mortar space grant photos read --to-group guests
  mortar space revoke photos --to-user bob
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
    /// Let a user, or the members of a group, read, write or administer a space
    #[command(after_help = EXAMPLES)]
    Grant {
        /// The space
        #[arg(value_name = "SPACE")]
        name: String,
        /// What is allowed; each includes the ones before it
        permission: Permission,
        #[command(flatten)]
        to: Grantee,
    },
    /// Take a permission away
    #[command(after_help = EXAMPLES)]
    Revoke {
        /// The space
        #[arg(value_name = "SPACE")]
        name: String,
        #[command(flatten)]
        to: Grantee,
    },
    /// Show who may do what in a space
    #[command(after_help = EXAMPLES)]
    Grants {
        /// The space
        #[arg(value_name = "SPACE")]
        name: String,
    },
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
    let args = match args.action {
        Action::Grant { name, permission, to } => return user::grant(name, Some(permission), to, session).await,
        Action::Revoke { name, to } => return user::grant(name, None, to, session).await,
        Action::Grants { name } => return user::grants(name, session).await,
        action => Space { action },
    };
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
        Action::Grant { .. } | Action::Revoke { .. } | Action::Grants { .. } => Ok(()),
    }
}
