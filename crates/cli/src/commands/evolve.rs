//! `mortar evolve`: rewrites old records in the current version of their classes.
//!
//! Reading does not need it: old records are read through the newest class. It makes them smaller and faster to read,
//! brings defaults into indexes, and removes what removed fields have left. Each portion is a transaction; a concurrent
//! change of an object wins.

use std::collections::BTreeSet;
use std::io::{self, Write};

use clap::Args;
use client::{Client, Transaction};
use model::{ClassId, Kind, Object, Oid, RecordRef};
use query::{Query, Row, Schema};
use serde::Serialize;

use super::class;
use crate::connection::CommandContext;
use crate::failure::Result;
use crate::output::{HumanCount, Printable, Report};
use crate::progress::Progress;

/// Objects in one transaction.
const BATCH_OBJECTS: usize = 64;

const EXAMPLES: &str = "\
Examples:
  mortar class evolve Person --add 'email:string?' --remove fax
  mortar evolve Person --dry-run      how many records are of before
  mortar evolve Person                writes those anew, and those of classes that extend it
  mortar evolve                       all classes of the space

It may be stopped at any time, and be run again. Other commands can be used meanwhile.";

/// Rewrite old records in the current version of their classes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Evolve {
    /// The classes, with those that extend them [default: all]
    #[arg(value_name = "CLASS")]
    classes: Vec<String>,
    /// Count old records without writing
    #[arg(long)]
    dry_run: bool,
}

/// The result for one class.
#[derive(Serialize)]
struct EvolveReport {
    class: String,
    objects: u64,
    /// Objects that were rewritten, or would be.
    rewritten: u64,
    dry_run: bool,
}

impl Report for EvolveReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { class, objects, rewritten, dry_run } = self;
        let what = if *dry_run { "would be rewritten" } else { "rewritten" };
        writeln!(out, "{}: {} of {} objects {what}", Printable(class), HumanCount(*rewritten), HumanCount(*objects))
    }
}

pub(crate) async fn run(args: Evolve, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    let schema = class::schema(&cluster).await?;
    let mut classes = BTreeSet::new();
    for name in &args.classes {
        classes.extend(schema.family(schema.class_named(name)?.id).iter().copied());
    }
    if args.classes.is_empty() {
        classes.extend(schema.classes().map(|class| class.id));
    }
    let progress = Progress::start("evolving", &session.output);
    let mut total = 0;
    for class in &classes {
        total += count(&cluster, &schema, *class).await?;
    }
    progress.set_total(0, total);
    let mut evolved = Vec::new();
    for class in classes {
        evolved.push(evolve(&cluster, &schema, class, args.dry_run, &progress).await?);
    }
    progress.end();
    evolved.iter().try_for_each(|one| session.output.print(one))
}

/// Number of objects of a class.
async fn count(cluster: &Client, schema: &Schema, class: ClassId) -> Result<u64> {
    let Some(class) = schema.class(class) else { return Ok(0) };
    let mut query = Query::parse_of(&class.name, "select count(*)")?;
    query.only = true;
    let mut rows = cluster.query(&query).await?;
    let mut count = 0;
    while let Some(row) = rows.next().await? {
        if let Row::Values(values) = row
            && let Some(model::Value::Int64(number)) = values.first()
        {
            count += number.unsigned_abs();
        }
    }
    Ok(count)
}

/// Rewrites the objects of a class.
async fn evolve(
    cluster: &Client,
    schema: &Schema,
    class: ClassId,
    dry_run: bool,
    progress: &Progress,
) -> Result<EvolveReport> {
    let name = schema.class(class).map(|class| class.name.clone()).unwrap_or_default();
    let mut evolved = EvolveReport { class: name, objects: 0, rewritten: 0, dry_run };
    let mut found = cluster.find([class], None);
    while let Some(objects) = found.next().await? {
        evolved.objects += objects.len() as u64;
        let mut old = Vec::new();
        for (oid, object) in &objects {
            if upgrade_object(schema, *oid, object)?.is_some() {
                old.push(*oid);
            }
        }
        if dry_run {
            evolved.rewritten += old.len() as u64;
        } else {
            for portion in old.chunks(BATCH_OBJECTS) {
                evolved.rewritten += cluster.transact(|t| rewrite(t, schema, portion)).await?;
            }
        }
        progress.advance(0, objects.len() as u64);
    }
    Ok(evolved)
}

/// Rewrites the objects that are old. Returns their number.
async fn rewrite(transaction: Transaction, schema: &Schema, portion: &[Oid]) -> client::Result<u64> {
    let mut rewritten = 0;
    for oid in portion {
        // It may have been removed or rewritten meanwhile.
        let Some(object) = transaction.get_for_update(*oid).await? else { continue };
        if let Some(object) = upgrade_object(schema, *oid, &object)? {
            transaction.put(*oid, object).await?;
            rewritten += 1;
        }
    }
    Ok(rewritten)
}

/// The object in the newest version of its class, if that differs.
fn upgrade_object(schema: &Schema, oid: Oid, object: &Object) -> client::Result<Option<Object>> {
    if object.kind != Kind::Record {
        return Ok(None);
    }
    let record = RecordRef::new(&object.data)?;
    let data = schema.upgrade_record(&record, oid.class())?;
    Ok(data.map(|data| object.with_data(data)))
}
