//! `mortar query`: queries the objects of a class in a cluster.

use std::io::{self, Write};

use clap::Args;
use client::Rows;
use model::{ClassId, Oid, Value};
use query::{Expr, Query, Row, Schema};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::class;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, Report};
use crate::record_json;

const EXAMPLES: &str = "\
Examples:
  mortar query Person
  mortar query Person 'age > 30 && boss.name == \"Ann\" order by name limit 10'
  mortar query Person 'select name, age where age >= :least order by age desc' --param least=18
  mortar query Person 'select city, count(*), avg(age) group by city' --json
  mortar query Person 'name.startsWith(\"A\")' --explain      what was done, and to how many objects

docs/queries.md describes the language.";

/// Ask a cluster for objects of a class, or for values of them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QueryCommand {
    /// The class
    class: String,
    /// The condition and the clauses after it, or the query from `select` on; all objects if absent
    #[arg(default_value = "", hide_default_value = true)]
    text: String,
    /// The value of a parameter, written as in a query; else it is text
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    params: Vec<String>,
    /// Rows at most, in place of the query's own limit
    #[arg(short, long)]
    limit: Option<u64>,
    /// Leave out objects of classes that extend the class
    #[arg(long)]
    only: bool,
    /// Show the steps of the answer, where they ran and how many objects came out of each, in place of the rows
    #[arg(long)]
    explain: bool,
}

/// An object in the result.
#[derive(Serialize)]
pub(crate) struct FoundObject {
    oid: String,
    class: String,
    fields: Map<String, Json>,
}

impl FoundObject {
    /// An object of a class that the schema has.
    pub(crate) fn new(schema: &Schema, oid: Oid, record: &[u8]) -> Result<Self> {
        let class = name_of(schema, oid.class());
        let fields = record_json::fields_to_json(schema, oid.class(), record)?;
        Ok(Self { oid: oid.to_string(), class, fields })
    }
}

fn name_of(schema: &Schema, class: ClassId) -> String {
    schema.class(class).map_or_else(|| format!("class {}", class.0), |class| class.name.clone())
}

impl Report for FoundObject {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let fields = Json::Object(self.fields.clone()).to_string();
        writeln!(out, "{}  {}  {}", self.oid, Printable(&self.class), Printable(&fields))
    }
}

/// JSON with a text form.
#[derive(Serialize)]
#[serde(transparent)]
struct JsonLine {
    json: Json,
    #[serde(skip)]
    text: String,
}

impl Report for JsonLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.text)
    }
}

pub(crate) async fn run(args: QueryCommand, session: &mut CommandContext) -> Result {
    if args.class.contains(char::is_whitespace) {
        let what = format!("{:?} is not a class name: the class comes first, then the query", args.class);
        return Err(Failure::usage(what).hint("Such as: mortar query Person 'select name where age > 30'"));
    }
    let mut query = Query::parse_of(&args.class, &args.text)?;
    query.only |= args.only;
    if args.limit.is_some() {
        query.limit = args.limit;
    }
    for param in &args.params {
        let wrong = || Failure::usage(format!("{param:?} is not a parameter: write NAME=VALUE"));
        let (name, text) = param.split_once('=').ok_or_else(wrong)?;
        query = query.with(name.trim(), parse_parameter(text.trim()));
    }
    let cluster = session.cluster().await?;
    if args.explain {
        let mut rows = cluster.explain(&query).await?;
        while rows.next().await?.is_some() {}
        let lost = || Failure::new("the peer server did not send its explanation");
        let explained = rows.explanation().ok_or_else(lost)?;
        let unreadable = |error| Failure::new(format!("the peer server's explanation is not valid JSON: {error}"));
        let json = serde_json::from_str(&explained.json).map_err(unreadable)?;
        return session.output.print(&JsonLine { json, text: explained.text.trim_end().to_owned() });
    }
    let schema = class::schema(&cluster).await?;
    print(cluster.query(&query).await?, &schema, session).await
}

async fn print(mut rows: Rows, schema: &Schema, session: &mut CommandContext) -> Result {
    let columns = rows.columns().to_vec();
    let is_repeated = |(at, name): (usize, &String)| columns[..at].contains(name);
    if let Some(at) = columns.iter().enumerate().position(is_repeated).filter(|_| session.output.json()) {
        let what = format!("two columns have the name {}, and an object of JSON has each name once", columns[at]);
        return Err(Failure::usage(what).hint("Name one of them differently: `… as NAME`."));
    }
    if !columns.is_empty() && !session.output.json() && !session.output.is_quiet() {
        let head: Vec<String> = columns.iter().map(|name| Printable(name).to_string()).collect();
        session.output.print(&JsonLine { json: Json::Null, text: head.join("\t") })?;
    }
    while let Some(row) = rows.next().await? {
        match row {
            Row::Object(oid, record) => session.output.print(&FoundObject::new(schema, oid, &record)?)?,
            Row::Values(values) => {
                let shown: Vec<String> = values.iter().map(|value| Printable(&plain_text(value)).to_string()).collect();
                let named = columns.iter().cloned().zip(values.iter().map(record_json::to_json));
                let json = Json::Object(named.collect());
                session.output.print(&JsonLine { json, text: shown.join("\t") })?;
            }
        }
    }
    Ok(())
}

/// A value for people: text without quotes.
fn plain_text(value: &Value) -> String {
    match record_json::to_json(value) {
        Json::String(text) => text,
        other => other.to_string(),
    }
}

/// The value of a parameter: a literal of the query language, or else text.
fn parse_parameter(text: &str) -> Value {
    let known = Expr::parse(text).ok().and_then(|known| literal(&known));
    let list = || match Expr::parse(&format!("x in {text}")).ok()? {
        Expr::Call(_, of, _) => literal(&of),
        _ => None,
    };
    known.or_else(list).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn literal(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Literal(value) => Some(value.clone()),
        Expr::List(parts) => Some(Value::List(parts.iter().map(literal).collect::<Option<_>>()?)),
        Expr::Negate(of) => match literal(of)? {
            Value::Int64(number) => number.checked_neg().map(Value::Int64),
            Value::Float64(number) => Some(Value::Float64(-number)),
            Value::Decimal(number) => format!("-{number}").parse().ok().map(Value::Decimal),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_literals_or_text() {
        assert_eq!(parse_parameter("5"), Value::Int64(5));
        assert_eq!(parse_parameter("-5"), Value::Int64(-5));
        assert_eq!(parse_parameter("1.50"), Value::Decimal("1.50".parse().unwrap()));
        assert_eq!(parse_parameter("true"), Value::Bool(true));
        assert_eq!(parse_parameter("null"), Value::Null);
        assert_eq!(parse_parameter("d'2026-07-01'"), Value::Date("2026-07-01".parse().unwrap()));
        assert_eq!(parse_parameter("@1.1.0.2a.3"), Value::Reference("1.1.0.2a.3".parse().unwrap()));
        assert_eq!(parse_parameter("[1, 2]"), Value::List(vec![Value::Int64(1), Value::Int64(2)]));
        for text in ["Ann", "Ann Lee", "", "5 apples", "a == b", "\u{e9}"] {
            assert_eq!(parse_parameter(text), Value::String(text.to_owned()));
        }
        assert_eq!(parse_parameter("\"5\""), Value::String("5".to_owned()));
    }
}
