//! `mortar put`: stores content as an object.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path as FilePath;

use bytes::Bytes;
use clap::Args;
use client::{Client, PlacementHint, StagedContent, Transaction};
use model::{Error, ErrorKind, Kind, NodeId, Object, Oid, limits};
use serde::Serialize;

use crate::connection::CommandContext;
use crate::etag::Etag;
use crate::failure::{Failure, Result};
use crate::output::Report;
use crate::stream::{self, StageError};
use crate::target::{Target, no_such_name, no_such_object};
use crate::tree::attributes::CONTENT_TYPE;
use crate::tree::{INLINE_BYTES, content_type};

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
    /// Add to the end of the object; prints the identifier and the offset of the bytes
    #[arg(long, conflicts_with = "offset")]
    append: bool,
    /// Write over the object from this byte on
    #[arg(long, value_name = "BYTE")]
    offset: Option<u64>,
    /// The media type [default: by the name's extension and the content]; '' for none
    #[arg(long = "type", value_name = "TYPE", conflicts_with_all = ["append", "offset"])]
    content_type: Option<String>,
    /// Set an attribute too; may be repeated
    #[arg(long = "attr", value_name = "KEY=VALUE", value_parser = key_value, conflicts_with_all = ["append", "offset"])]
    attributes: Vec<(String, String)>,
    /// Fail if the name is taken
    #[arg(long, conflicts_with_all = ["append", "offset", "if_match"])]
    new: bool,
    /// Fail unless the object has this etag, as `mortar stat` shows it
    #[arg(long, value_name = "ETAG")]
    if_match: Option<Etag>,
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
    /// Where appended bytes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// `None` if the object was removed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<Etag>,
    created: bool,
}

impl Report for StoredObject {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.offset {
            Some(offset) => writeln!(out, "{} {offset}", self.oid),
            None => writeln!(out, "{}", self.oid),
        }
    }
}

/// The bytes to store: in memory, or uploaded.
enum Content {
    Inline(Bytes),
    Staged(StagedContent),
}

impl Content {
    fn size(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Staged(staged) => staged.size(),
        }
    }
}

/// What a transaction has done.
enum Change {
    Created(Oid),
    Replaced(Oid),
    /// Nothing: the object has another etag.
    Mismatch(Etag),
}

pub(crate) async fn run(args: Put, session: &mut CommandContext) -> Result {
    let source = open(&args.source)?;
    let cluster = session.cluster().await?;
    let existing = find_existing(&args, &cluster).await?;
    let in_place = args.append || args.offset.is_some();
    let limit = if in_place { limits::OBJECT as u64 } else { INLINE_BYTES as u64 };
    let (head, rest) = read_head(source, limit)?;
    let media = if in_place { None } else { media_type(&args, &head) };
    let content = match rest {
        None => Content::Inline(head),
        Some(_) if in_place => {
            return Err(Failure::from(Error::new(
                ErrorKind::TooLarge,
                format!("a write in place has at most {} bytes: split it", limits::OBJECT),
            )));
        }
        Some(rest) => {
            let source = io::Cursor::new(head).chain(rest);
            Content::Staged(upload(&cluster, existing.map(|oid| oid.page().node), &args.source, source).await?)
        }
    };
    let media = media.map(|value| (CONTENT_TYPE.to_owned(), value));
    let given = args.attributes.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
    let attributes: Vec<_> = media.into_iter().chain(given).collect();
    let (bytes, args_ref) = (content.size(), (&args, &content, &attributes));
    let (change, t) = cluster
        .transact(|t| async move {
            let (args, content, attributes) = args_ref;
            Ok((store(&t, args, existing, content, attributes).await?, t))
        })
        .await?;
    let (oid, created) = match change {
        Change::Created(oid) => (t.real_oid(oid).unwrap_or(oid), true),
        Change::Replaced(oid) => (oid, false),
        Change::Mismatch(found) => {
            return Err(Failure::conflict(format!("the object has the etag {found} now; nothing was changed")));
        }
    };
    let offset = if created { Some(0) } else { t.append_offsets(oid).first().copied() };
    let stored = cluster.stat(oid).await?;
    session.output.print(&StoredObject {
        oid: oid.to_string(),
        name: match &args.target {
            Some(Target::Path(path)) => Some(path.as_str().to_owned()),
            _ => None,
        },
        bytes,
        offset: offset.filter(|_| args.append),
        etag: stored.map(|stat| Etag(stat.object.etag())),
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

/// The object that gets the bytes, if it exists. What is wrong with the target is reported before an upload.
async fn find_existing(args: &Put, cluster: &Client) -> Result<Option<Oid>> {
    let Some(target) = &args.target else {
        return match args.append || args.offset.is_some() || args.if_match.is_some() {
            true => Err(Failure::usage("--append, --offset and --if-match need a target object")),
            false => Ok(None),
        };
    };
    let oid = match target {
        Target::Path(path) => match cluster.resolve(path.as_str()).await? {
            Some(_) if args.new => return Err(Failure::conflict(format!("the name {path} is taken"))),
            None if args.if_match.is_some() => return Err(no_such_name(path)),
            None => return Ok(None),
            Some(oid) => oid,
        },
        Target::Oid(_) if args.new => {
            return Err(Failure::usage("--new needs a name: identifiers are assigned by the server"));
        }
        Target::Oid(oid) => *oid,
    };
    let Some(stat) = cluster.stat(oid).await? else {
        // A name that leads nowhere gets a new object.
        let is_name = matches!(target, Target::Path(_));
        return if is_name && args.if_match.is_none() { Ok(None) } else { Err(no_such_object(target)) };
    };
    match stat.kind() {
        Kind::Blob => Ok(Some(oid)),
        Kind::Record => {
            Err(Failure::usage(format!("{target} is a record")).hint("`mortar object put` replaces records."))
        }
        kind => Err(Failure::usage(format!("{target} is a {}, which has no bytes", kind.name()))),
    }
}

/// Uploads bytes to the logical node of the object that gets them.
pub(crate) async fn upload(
    cluster: &Client,
    node: Option<NodeId>,
    name: &str,
    source: impl Read + Send + 'static,
) -> Result<StagedContent> {
    let mut writer = cluster.content_writer(node);
    stream::send(&mut writer, source, |_| {}).await.map_err(|error| match error {
        StageError::Source(error) => Failure::file(format!("cannot read {name}"), &error),
        StageError::Server(error) => lost_upload(error, name),
    })?;
    writer.finish().await.map_err(|error| lost_upload(error, name))
}

/// The failure of an upload. A brick that was restarted has forgotten it, and so has one that received nothing of it for long.
fn lost_upload(error: Error, name: &str) -> Failure {
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    let source = if name == "-" { "the standard input" } else { name };
    let what = format!(
        "the upload of {source} was lost, for its brick was restarted or received nothing for too long: {error}"
    );
    Failure::from(Error::new(ErrorKind::Unavailable, what)).hint("Nothing was stored. Run the command again.")
}

/// Stores the bytes and the attributes in a transaction.
async fn store(
    t: &Transaction,
    args: &Put,
    existing: Option<Oid>,
    content: &Content,
    attributes: &[(String, Option<String>)],
) -> client::Result<Change> {
    let mut found = match &args.target {
        Some(Target::Oid(oid)) => Some(*oid),
        Some(Target::Path(path)) => t.resolve(path.as_str()).await?,
        None => None,
    };
    if let Some(oid) = found.filter(|oid| existing != Some(*oid) && !args.new)
        && t.get(oid).await?.is_none()
    {
        found = None;
    }
    let change = match found {
        None => Change::Created(create(t, args, content).await?),
        Some(_) if args.new => return Err(Error::new(ErrorKind::Exists, "the name is taken")),
        Some(oid) => replace(t, args, content, oid).await?,
    };
    if let Change::Created(oid) | Change::Replaced(oid) = change {
        for (key, value) in attributes {
            t.set_attribute(oid, key.clone(), value.clone().map(Into::into)).await?;
        }
    }
    Ok(change)
}

async fn replace(t: &Transaction, args: &Put, content: &Content, oid: Oid) -> client::Result<Change> {
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no object {oid}"));
    if let Some(expected) = args.if_match {
        let etag = t.get(oid).await?.ok_or_else(missing)?.etag();
        if etag != expected.0 {
            return Ok(Change::Mismatch(Etag(etag)));
        }
    }
    match (content, args.offset) {
        (Content::Inline(data), Some(offset)) => t.write_at(oid, offset, data.clone()).await?,
        (Content::Inline(data), None) if args.append => t.append(oid, data.clone()).await?,
        (Content::Inline(data), None) => {
            let before = t.get(oid).await?.ok_or_else(missing)?;
            t.put(oid, before.with_data(data.clone())).await?;
        }
        (Content::Staged(staged), _) => t.put_content(oid, *staged).await?,
    }
    Ok(Change::Replaced(oid))
}

async fn create(t: &Transaction, args: &Put, content: &Content) -> client::Result<Oid> {
    let oid = match content {
        Content::Inline(data) => {
            let blob = Object::blob(if args.offset.is_some() { Bytes::new() } else { data.clone() });
            let oid = t.create_object(blob.class, blob, PlacementHint::Anywhere)?;
            if let Some(offset) = args.offset {
                t.write_at(oid, offset, data.clone()).await?;
            }
            oid
        }
        Content::Staged(staged) => t.create_blob_from(*staged)?,
    };
    if let Some(Target::Path(path)) = &args.target {
        t.bind(path.as_str(), oid).await?;
    }
    Ok(oid)
}

/// The first `limit` bytes, one more if there are more, and the source if it has more.
pub(crate) fn read_head(mut source: Box<dyn Read + Send>, limit: u64) -> Result<(Bytes, Option<Box<dyn Read + Send>>)> {
    let mut head = Vec::new();
    let read = (&mut source).take(limit + 1).read_to_end(&mut head);
    read.map_err(|e| Failure::file("cannot read the content", &e))?;
    let rest = (head.len() as u64 > limit).then_some(source);
    Ok((head.into(), rest))
}

/// The media type that the object gets: `Some(None)` removes the one that it has, `None` leaves it.
fn media_type(args: &Put, head: &[u8]) -> Option<Option<String>> {
    match &args.content_type {
        Some(none) if none.is_empty() => Some(None),
        Some(given) => Some(Some(given.clone())),
        None => {
            let name = match &args.target {
                Some(Target::Path(path)) if args.source == "-" => path.as_str(),
                _ => &args.source,
            };
            Some(Some(content_type::guess(FilePath::new(name), head)))
        }
    }
}
