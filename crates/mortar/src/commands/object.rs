//! `mortar object`: objects of a cluster, each in one transaction.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use client::cluster::Cluster;
use model::{Error, ErrorKind, Object, limits};
use serde::Serialize;

use crate::connection::Session;
use crate::failure::{Failure, Result};
use crate::output::Report;
use crate::target::{Path, no_such_name};

const EXAMPLES: &str = "\
Examples:
  export MORTAR_URL=mortar://127.0.0.1:6678,127.0.0.1:6679/main   any of these peer servers
  echo hello | mortar object put /greeting -
  mortar object get /greeting
  mortar object put /cat.jpg cat.jpg --new                        fails if the name is taken
  mortar object rm /greeting";

/// Put, get and remove objects of a cluster, by name
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ObjectCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Store a file, or the standard input, under a name
    #[command(after_help = EXAMPLES)]
    Put {
        /// The name
        name: Path,
        /// The file; - reads the standard input
        file: PathBuf,
        /// Fail if the name is taken
        #[arg(long)]
        new: bool,
    },
    /// Write an object's content to a file or the standard output
    #[command(after_help = EXAMPLES)]
    Get {
        /// The name
        name: Path,
        /// The file to write; - is the standard output
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Delete an object and its name
    #[command(after_help = EXAMPLES)]
    Rm {
        /// The name
        name: Path,
    },
}

#[derive(Serialize)]
struct Stored {
    oid: String,
    name: String,
    bytes: u64,
    created: bool,
}

impl Report for Stored {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.oid)
    }
}

#[derive(Serialize)]
struct Deleted {
    deleted: u64,
}

impl Report for Deleted {
    fn text(&self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) async fn run(args: ObjectCommand, session: &mut Session) -> Result {
    match args.action {
        Action::Put { name, file, new } => {
            let data = read(&file)?;
            let stored = put(&session.cluster().await?, &name, data, new).await?;
            session.output.print(&stored)
        }
        Action::Get { name, output } => {
            let object = get(&session.cluster().await?, &name).await?;
            if output.as_os_str() == "-" {
                return session.output.raw(&object.data);
            }
            fs::write(&output, &object.data)
                .map_err(|e| Failure::file(format!("cannot write {}", output.display()), &e))
        }
        Action::Rm { name } => {
            remove(&session.cluster().await?, &name).await?;
            session.output.print(&Deleted { deleted: 1 })
        }
    }
}

/// What a file holds, if it is not more than an object may.
fn read(file: &std::path::Path) -> Result<Vec<u8>> {
    let cannot = |error| Failure::file(format!("cannot read {}", file.display()), &error);
    let source: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(fs::File::open(file).map_err(cannot)?),
    };
    let mut data = Vec::new();
    source.take(limits::OBJECT as u64 + 1).read_to_end(&mut data).map_err(cannot)?;
    if data.len() > limits::OBJECT {
        let what = format!("an object of a cluster has at most {} bytes; {} has more", limits::OBJECT, file.display());
        return Err(Error::new(ErrorKind::TooLarge, what).into());
    }
    Ok(data)
}

async fn put(cluster: &Cluster, name: &Path, data: Vec<u8>, new: bool) -> Result<Stored> {
    let bytes = data.len() as u64;
    let (object, path) = (&Object::blob(data.into()), name.as_str());
    let (oid, transaction, created) = cluster
        .transact(|t| async move {
            match t.resolve(path).await? {
                // It is told below, once it is sure.
                Some(oid) if new => Ok((oid, t, false)),
                Some(oid) => {
                    t.put(oid, object.clone()).await?;
                    Ok((oid, t, false))
                }
                None => {
                    let oid = t.create_blob(object.data.clone())?;
                    t.bind(path, oid).await?;
                    Ok((oid, t, true))
                }
            }
        })
        .await?;
    if new && !created {
        return Err(Failure::conflict(format!("the name {path} is taken: it is bound to {oid}")));
    }
    let oid = if created { transaction.real(oid).unwrap_or(oid) } else { oid };
    Ok(Stored { oid: oid.to_string(), name: path.to_owned(), bytes, created })
}

async fn get(cluster: &Cluster, name: &Path) -> Result<Object> {
    let path = name.as_str();
    let found = cluster
        .transact(|t| async move {
            match t.resolve(path).await? {
                Some(oid) => t.get(oid).await,
                None => Ok(None),
            }
        })
        .await?;
    found.ok_or_else(|| no_such_name(name))
}

async fn remove(cluster: &Cluster, name: &Path) -> Result {
    let path = name.as_str();
    let found = cluster
        .transact(|t| async move {
            let Some(oid) = t.resolve(path).await? else { return Ok(false) };
            t.delete(oid).await?;
            t.unbind(path).await
        })
        .await?;
    if found { Ok(()) } else { Err(no_such_name(name)) }
}
