//! `mortar object`: objects of a cluster, each in one transaction: blobs of any size, and records of classes as JSON.

use std::fs;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use client::{Client, PlacementHint, StagedContent, Transaction};
use model::{ClassId, Error, ErrorKind, Kind, Object, Oid};
use query::Schema;
use serde::Serialize;
use serde_json::Value as Json;

use super::class as classes;
use super::get::Sink;
use super::put::{open, read_head, upload};
use super::query::FoundObject;
use super::rm::DeleteReport;
use crate::connection::CommandContext;
use crate::distinct_json::DistinctJson;
use crate::failure::{Failure, Result};
use crate::output::Report;
use crate::record_json::{self, NameBindings};
use crate::record_reader::RecordReader;
use crate::target::{NamePath, Target, no_such_object};
use crate::tree::INLINE_BYTES;

/// The argument for the standard input.
const STDIN: &str = "-";

const EXAMPLES: &str = "\
Examples:
  export MORTAR_URL=mortar://127.0.0.1:6678,127.0.0.1:6688/main   any of these peer servers
  echo hello | mortar object put /greeting -
  mortar object get /greeting
  mortar object put /cat.jpg cat.jpg --new                        fails if the name is taken
  mortar object rm /greeting
  mortar object put --class Person '{\"name\": \"Ann\", \"age\": 31}'   a record of a class (see mortar class --help)
  mortar object put /bob --class Person '{\"name\": \"Bob\", \"boss\": \"/ann\"}'
  mortar object get /bob                                          shows its fields as JSON
  mortar object put --class Person - < people.json                records, one after the other, each a transaction of its own";

/// Put, get and remove objects of a cluster
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ObjectCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Store a file, or the standard input, under a name; with --class a record, given as JSON
    #[command(after_help = EXAMPLES)]
    Put {
        /// The name, or an object's identifier; with --class it may be left out
        #[arg(value_name = "NAME")]
        first: String,
        /// The file; - reads the standard input. With --class the fields as a JSON object; - reads one there, or without a name
        /// any number, one after the other, each of which is a transaction of its own
        #[arg(value_name = "FILE|JSON", required_unless_present = "class")]
        second: Option<String>,
        /// The class of the record
        #[arg(short, long)]
        class: Option<String>,
        /// Fail if the name is taken
        #[arg(long)]
        new: bool,
    },
    /// Write an object's content to a file or the standard output; of a record its fields as JSON
    #[command(after_help = EXAMPLES)]
    Get {
        /// The object: a name or an identifier
        target: Target,
        /// The file to write; - is the standard output
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Delete an object, and its name if it is given by that
    #[command(after_help = EXAMPLES)]
    Rm {
        /// The object: a name or an identifier
        target: Target,
    },
}

#[derive(Serialize)]
struct StoredObject {
    oid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    bytes: u64,
    created: bool,
}

impl Report for StoredObject {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.oid)
    }
}

pub(crate) async fn run(args: ObjectCommand, session: &mut CommandContext) -> Result {
    // A wrong name is reported before connecting.
    if let Action::Put { first, second, class, .. } = &args.action
        && (class.is_none() || second.is_some())
    {
        parse(first)?;
    }
    let cluster = session.cluster().await?;
    match args.action {
        Action::Put { first, second, class: None, new } => {
            let (target, source) = (parse(&first)?, second.unwrap_or_default());
            let (head, rest) = read_head(open_source(&source)?, INLINE_BYTES as u64)?;
            let stored = match rest {
                None => put(&cluster, &Some(target), &NewContent::Object(Object::blob(head)), new).await?,
                Some(rest) => put_large(&cluster, target, (&source, Cursor::new(head).chain(rest)), new).await?,
            };
            session.output.print(&stored)
        }
        Action::Put { first, second, class: Some(class), new } => {
            let (target, json) = match second {
                Some(json) => (Some(parse(&first)?), json),
                None => (None, first),
            };
            let schema = classes::schema(&cluster).await?;
            let class = schema.class_named(&class)?.id;
            if json != STDIN {
                let object = record_from_json(&cluster, &schema, class, &parse_fields(&json)?).await?;
                let stored = put(&cluster, &target, &NewContent::Object(object), new).await?;
                return session.output.print(&stored);
            }
            let mut records = RecordReader::new(io::stdin());
            if target.is_some() {
                let object = record_from_json(&cluster, &schema, class, &records.read_single()?).await?;
                let stored = put(&cluster, &target, &NewContent::Object(object), new).await?;
                return session.output.print(&stored);
            }
            while let Some(fields) = records.next()? {
                let object = record_from_json(&cluster, &schema, class, &fields)
                    .await
                    .map_err(|error| records.with_record_number(error))?;
                let stored = put(&cluster, &None, &NewContent::Object(object), new).await;
                let stored = stored.map_err(|error| records.with_record_number(error))?;
                session.output.print(&stored)?;
            }
            Ok(())
        }
        Action::Get { target, output } => {
            let (oid, object) = get(&cluster, &target).await?;
            if object.content().is_some() {
                return write_content(&cluster, oid, &output, session).await;
            }
            let mut data = object.data;
            if object.kind == Kind::Record {
                let schema = classes::schema(&cluster).await?;
                if session.output.json() {
                    return session.output.print(&FoundObject::new(&schema, oid, &data)?);
                }
                let fields = record_json::fields_to_json(&schema, oid.class(), &data)?;
                let text = serde_json::to_string_pretty(&fields);
                data = (text.map_err(|error| Failure::new(format!("cannot show JSON: {error}")))? + "\n").into();
            }
            if output.as_os_str() == STDIN {
                return session.output.write_raw(&data);
            }
            fs::write(&output, &data).map_err(|e| Failure::file(format!("cannot write {}", output.display()), &e))
        }
        Action::Rm { target } => {
            remove(&cluster, &target).await?;
            session.output.print(&DeleteReport { deleted: 1 })
        }
    }
}

fn parse(target: &str) -> Result<Target> {
    target.parse().map_err(|why: String| Failure::usage(format!("{target:?} does not name an object: {why}")))
}

/// Opens the file of an object without a class.
fn open_source(source: &str) -> Result<Box<dyn Read + Send>> {
    open(source).map_err(|failure| match source.trim_start().starts_with('{') {
        true => failure.hint("For a record give --class CLASS."),
        false => failure,
    })
}

fn parse_fields(json: &str) -> Result<Json> {
    serde_json::from_str(json).map(|DistinctJson(fields)| fields).map_err(|error| {
        let hint = "Write the fields as a JSON object: '{\"name\": \"Ann\"}'; `mortar class define` defines a class.";
        Failure::usage(format!("the fields are not valid JSON: {error}")).hint(hint)
    })
}

/// The record for some JSON.
async fn record_from_json(cluster: &Client, schema: &Schema, class: ClassId, json: &Json) -> Result<Object> {
    let mut names = NameBindings::default();
    let mut record = record_json::from_json(schema, class, json, &mut names)?;
    if !names.unresolved.is_empty() {
        for name in std::mem::take(&mut names.unresolved) {
            let path: NamePath = name.parse().map_err(Failure::usage)?;
            names.bound.insert(name, find_referenced(cluster, path).await?);
        }
        record = record_json::from_json(schema, class, json, &mut names)?;
    }
    Ok(Object::record(class, record))
}

/// The object with a name, of any kind: whether it fits the field is checked later.
async fn find_referenced(cluster: &Client, path: NamePath) -> Result<Oid> {
    let target = Target::Path(path);
    let wanted = &Some(target.clone());
    let found = cluster.transact(|t| async move {
        let Some(oid) = find(&t, wanted).await? else { return Ok(None) };
        let exists = oid == t.root()? || t.get(oid).await?.is_some();
        Ok(exists.then_some(oid))
    });
    found.await?.ok_or_else(|| no_such_object(&target))
}

/// What an object gets.
enum NewContent {
    Object(Object),
    /// Bytes that were uploaded.
    Staged(StagedContent),
}

impl NewContent {
    fn class(&self) -> ClassId {
        match self {
            Self::Object(object) => object.class,
            Self::Staged(_) => ClassId::NONE,
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Object(object) => object.size(),
            Self::Staged(staged) => staged.size(),
        }
    }

    async fn create(&self, t: &Transaction) -> client::Result<Oid> {
        match self {
            Self::Object(object) => t.create_object(object.class, object.clone(), PlacementHint::Anywhere),
            Self::Staged(staged) => t.create_blob_from(*staged),
        }
    }

    async fn replace(&self, t: &Transaction, oid: Oid) -> client::Result<()> {
        match self {
            Self::Object(object) => t.put(oid, object.clone()).await,
            Self::Staged(staged) => t.put_content(oid, *staged).await,
        }
    }
}

/// The object that a target names, if there is one.
async fn find(t: &Transaction, target: &Option<Target>) -> client::Result<Option<Oid>> {
    match target {
        Some(Target::Oid(oid)) => Ok(Some(*oid)),
        Some(Target::Path(path)) => t.resolve(path.as_str()).await,
        None => Ok(None),
    }
}

/// Reads an object that has bytes: no set and no directory.
async fn get_bytes(t: &Transaction, oid: Oid) -> client::Result<Option<Object>> {
    let kind = match t.get(oid).await? {
        Some(object) if object.is_collection() => object.kind.name(),
        _ if oid == t.root()? => "root directory",
        found => return Ok(found),
    };
    Err(Error::new(ErrorKind::Invalid, format!("{oid} is a {kind}, which has no bytes")))
}

fn is_taken(target: &Option<Target>, oid: Oid) -> Failure {
    Failure::conflict(match target {
        Some(Target::Path(path)) => format!("the name {path} is taken: it is bound to {oid}"),
        _ => format!("{oid} is an identifier: new objects get theirs from the server"),
    })
}

/// Stores an object under the target; without a target as a new object without a name.
async fn put(cluster: &Client, target: &Option<Target>, content: &NewContent, new: bool) -> Result<StoredObject> {
    let (oid, transaction, created) = cluster
        .transact(|t| async move {
            match find(&t, target).await? {
                // Reported below, after the commit.
                Some(oid) if new => Ok((oid, t, false)),
                Some(oid) if oid.class() != content.class() => {
                    let what = format!("{oid} has another class: remove it first");
                    Err(Error::new(ErrorKind::Invalid, what))
                }
                Some(oid) => {
                    content.replace(&t, oid).await?;
                    Ok((oid, t, false))
                }
                None => {
                    let oid = content.create(&t).await?;
                    if let Some(Target::Path(path)) = target {
                        t.bind(path.as_str(), oid).await?;
                    }
                    Ok((oid, t, true))
                }
            }
        })
        .await?;
    if new && !created {
        return Err(is_taken(target, oid));
    }
    let name = match target {
        Some(Target::Path(path)) => Some(path.as_str().to_owned()),
        _ => None,
    };
    let oid = if created { transaction.real_oid(oid).unwrap_or(oid) } else { oid };
    Ok(StoredObject { oid: oid.to_string(), name, bytes: content.size(), created })
}

/// Uploads bytes to the logical node of the object that gets them, and stores them there.
async fn put_large(
    cluster: &Client,
    target: Target,
    (name, source): (&str, impl Read + Send + 'static),
    new: bool,
) -> Result<StoredObject> {
    let target = &Some(target);
    // A wrong target is reported before the upload.
    let known = cluster.transact(|t| async move {
        let known = find(&t, target).await?;
        if let Some(oid) = known {
            get_bytes(&t, oid).await?;
        }
        Ok(known)
    });
    let known = known.await?;
    if let Some(oid) = known.filter(|_| new) {
        return Err(is_taken(target, oid));
    }
    let staged = upload(cluster, known.map(|oid| oid.page().node), name, source).await?;
    put(cluster, target, &NewContent::Staged(staged), new).await
}

/// Writes the bytes of a large blob to a file or the standard output.
async fn write_content(cluster: &Client, oid: Oid, output: &Path, session: &mut CommandContext) -> Result {
    let (mut sink, mut reader) = (Sink::open(output)?, cluster.content_reader(oid, 0));
    while let Some(piece) = reader.next().await? {
        sink.write(&mut session.output, &piece)?;
    }
    sink.finish()
}

async fn get(cluster: &Client, target: &Target) -> Result<(Oid, Object)> {
    let found = cluster
        .transact(|t| async move {
            let oid = match target {
                Target::Oid(oid) => Some(*oid),
                Target::Path(path) => t.resolve(path.as_str()).await?,
            };
            match oid {
                Some(oid) => Ok(get_bytes(&t, oid).await?.map(|object| (oid, object))),
                None => Ok(None),
            }
        })
        .await?;
    found.ok_or_else(|| no_such_object(target))
}

async fn remove(cluster: &Client, target: &Target) -> Result {
    let found = cluster
        .transact(|t| async move {
            match target {
                Target::Oid(oid) => {
                    let found = t.get_for_update(*oid).await?.is_some();
                    t.delete(*oid).await?;
                    Ok(found)
                }
                Target::Path(path) => {
                    let Some(oid) = t.resolve(path.as_str()).await? else { return Ok(false) };
                    t.delete(oid).await?;
                    t.unbind(path.as_str()).await
                }
            }
        })
        .await?;
    if found { Ok(()) } else { Err(no_such_object(target)) }
}
