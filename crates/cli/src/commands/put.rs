//! `mortar put`: stores content as an object.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path as FilePath;

use bytes::Bytes;
use clap::Args;
use client::Client;
use model::{ClassId, Kind, Oid, Op, SpaceId, Transaction, limits};
use serde::Serialize;

use super::commit;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::Report;
use crate::stream::{self, StageError};
use crate::target::{NamePath, Target, no_such_object};
use crate::tree::attributes::CONTENT_TYPE;
use crate::tree::{SMALL_FILE_BYTES, content_type};

const EXAMPLES: &str = "\
Examples:
  mortar put cat.jpg /photos/cat.jpg        store a file under a name, or replace what has it
  date | mortar put - /notes/now            store what comes from a pipe
  mortar put cat.jpg                        store without a name; prints the identifier
  echo more | mortar put - /log --append    add to the end
  mortar put new.bin /data --offset 4096    overwrite a part";

/// Store a file, or the standard input, as an object
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Put {
    /// The file to store; - reads the standard input
    source: String,
    /// The name or identifier of the object; without it a new object is made and its identifier printed
    target: Option<Target>,
    /// Add to the end of the object
    #[arg(long, conflicts_with = "offset")]
    append: bool,
    /// Write over the object from this byte on
    #[arg(long, value_name = "BYTE")]
    offset: Option<u64>,
    /// The media type [default: by the name's extension and the content]; '' for none
    #[arg(long = "type", value_name = "TYPE")]
    content_type: Option<String>,
    /// Set an attribute too; may be repeated
    #[arg(long = "attr", value_name = "KEY=VALUE", value_parser = key_value)]
    attributes: Vec<(String, String)>,
    /// Fail if the name is taken
    #[arg(long, conflicts_with_all = ["append", "offset", "if_version"])]
    new: bool,
    /// Fail unless the object has this version, as `mortar stat` shows it
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

/// `key=value`.
fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("an attribute has the form KEY=VALUE".to_owned()),
    }
}

#[derive(Serialize)]
struct StoredObject {
    oid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    bytes: u64,
    version: u64,
    created: bool,
}

impl Report for StoredObject {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.oid)
    }
}

/// The object that receives the content.
enum Destination {
    Existing(Oid),
    New(Option<NamePath>),
}

/// The content: in memory, or uploaded.
enum Content {
    Whole(Bytes),
    Staged(model::UploadId, u64),
}

pub(crate) async fn run(args: Put, session: &mut CommandContext) -> Result {
    let source = open(&args.source)?;
    let client = session.connect().await?;
    let place = find_destination(&args, &client).await?;
    let in_place = args.append || args.offset.is_some();
    let limit = if in_place { limits::TRANSACTION as u64 } else { SMALL_FILE_BYTES };
    let (head, rest) = read_head(source, limit)?;
    let media = media_type(&args, &head).filter(|_| !in_place);
    let content = match rest {
        None => Content::Whole(head),
        Some(_) if in_place => {
            return Err(Failure::from(model::Error::new(
                model::ErrorKind::TooLarge,
                format!("a write in place has at most {} bytes: split it", limits::TRANSACTION),
            )));
        }
        Some(rest) => {
            let staged = stream::stage(&client, io::Cursor::new(head).chain(rest), |_| {}).await;
            let staged = staged.map_err(|error| match error {
                StageError::Source(error) => Failure::file(format!("cannot read {}", args.source), &error),
                StageError::Server(error) => error.into(),
            })?;
            Content::Staged(staged.writer.finish().await?, staged.bytes)
        }
    };
    let bytes = match &content {
        Content::Whole(data) => data.len() as u64,
        Content::Staged(_, bytes) => *bytes,
    };
    let created = matches!(place, Destination::New(_));
    let tx = transaction(&args, &place, client.space(), content, media);
    let committed = commit(&client, tx).await?;
    let (oid, name) = match (place, args.target) {
        (Destination::Existing(oid), Some(Target::Path(path))) => (oid, Some(path)),
        (Destination::Existing(oid), _) => (oid, None),
        (Destination::New(path), _) => {
            let oid = committed.created.first().copied();
            (oid.ok_or_else(|| Failure::new("the server did not return the identifier of the new object"))?, path)
        }
    };
    session.output.print(&StoredObject {
        oid: oid.to_string(),
        name: name.map(|path| path.as_str().to_owned()),
        bytes,
        version: committed.version,
        created,
    })
}

/// Opens a file or the standard input.
pub(crate) fn open(source: &str) -> Result<Box<dyn Read + Send>> {
    if source == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(source).map_err(|e| Failure::file(format!("cannot read {source}"), &e))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::usage(format!("{source} is a directory")).hint("`mortar import` stores a whole tree."));
    }
    Ok(Box::new(file))
}

async fn find_destination(args: &Put, client: &Client) -> Result<Destination> {
    match &args.target {
        None if args.append || args.offset.is_some() || args.if_version.is_some() => {
            Err(Failure::usage("--append, --offset and --if-version need a target object"))
        }
        None => Ok(Destination::New(None)),
        Some(Target::Path(path)) => match client.resolve(path.as_str()).await? {
            Some(_) if args.new => Err(Failure::conflict(format!("the name {path} is taken"))),
            Some(oid) => Ok(Destination::Existing(oid)),
            None if args.if_version.is_some() => Err(crate::target::no_such_name(path)),
            None => Ok(Destination::New(Some(path.clone()))),
        },
        Some(Target::Oid(_)) if args.new => {
            Err(Failure::usage("--new needs a name: identifiers are assigned by the server"))
        }
        Some(target @ Target::Oid(oid)) => match client.stat(*oid).await? {
            Some(_) => Ok(Destination::Existing(*oid)),
            None => Err(no_such_object(target)),
        },
    }
}

/// The first `limit` bytes, one more if there are more, and the source if it has more.
pub(crate) fn read_head(mut source: Box<dyn Read + Send>, limit: u64) -> Result<(Bytes, Option<Box<dyn Read + Send>>)> {
    let mut head = Vec::new();
    let read = (&mut source).take(limit + 1).read_to_end(&mut head);
    read.map_err(|e| Failure::file("cannot read the content", &e))?;
    let rest = (head.len() as u64 > limit).then_some(source);
    Ok((head.into(), rest))
}

fn media_type(args: &Put, head: &[u8]) -> Option<String> {
    match &args.content_type {
        Some(none) if none.is_empty() => None,
        Some(given) => Some(given.clone()),
        None => {
            let name = match &args.target {
                Some(Target::Path(path)) if args.source == "-" => path.as_str(),
                _ => &args.source,
            };
            Some(content_type::guess(FilePath::new(name), head))
        }
    }
}

fn transaction(
    args: &Put,
    place: &Destination,
    space: SpaceId,
    content: Content,
    media: Option<String>,
) -> Transaction {
    let mut ops = Vec::new();
    let oid = match place {
        Destination::Existing(oid) => *oid,
        Destination::New(name) => {
            let oid = Oid::temporary(space, ClassId::NONE, 0);
            if let Some(path) = name {
                ops.push(Op::ExpectName { name: path.in_space(space), oid: None });
            }
            ops.push(Op::Create { oid, kind: Kind::Blob, data: Bytes::new(), near: None });
            if let Some(path) = name {
                ops.push(Op::Bind { name: path.in_space(space), oid });
            }
            oid
        }
    };
    if let Some(version) = args.if_version {
        ops.push(Op::Expect { oid, version: Some(version) });
    }
    ops.push(match (content, args.offset) {
        (Content::Whole(data), Some(offset)) => Op::Write { oid, offset, data },
        (Content::Whole(data), None) if args.append => Op::Append { oid, data },
        (Content::Whole(data), None) => Op::Put { oid, data },
        (Content::Staged(upload, _), _) => Op::PutUpload { oid, upload },
    });
    let media = media.map(|value| (CONTENT_TYPE.to_owned(), value));
    let attributes = media.into_iter().chain(args.attributes.iter().cloned());
    ops.extend(attributes.map(|(key, value)| Op::SetAttribute { oid, key: key.into(), value: value.into() }));
    Transaction { ops }
}
