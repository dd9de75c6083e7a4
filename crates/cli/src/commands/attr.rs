//! `mortar attr`: the attributes of an object.

use std::fmt;
use std::io::{self, Read, Write};

use bytes::Bytes;
use clap::{Args, Subcommand};
use client::Transaction;
use model::limits;
use serde::Serialize;

use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, Report};
use crate::target::Target;

const EXAMPLES: &str = "\
Examples:
  mortar attr set /photos/cat.jpg owner ann
  mortar attr get /photos/cat.jpg owner
  mortar attr ls /photos/cat.jpg --json
  mortar attr rm /photos/cat.jpg owner
  mortar attr set /photos/cat.jpg thumbnail - < small.jpg";

/// Read and change the attributes of an object
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Attr {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Write the value of an attribute to the standard output, as it is
    #[command(after_help = EXAMPLES)]
    Get {
        /// The object: a name or an identifier
        target: Target,
        /// The attribute
        key: String,
    },
    /// Set an attribute
    #[command(after_help = EXAMPLES)]
    Set {
        /// The object: a name or an identifier
        target: Target,
        /// The attribute
        key: String,
        /// Its value; - reads the standard input
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// List attributes with their values
    #[command(alias = "list", after_help = EXAMPLES)]
    Ls {
        /// The object: a name or an identifier
        target: Target,
    },
    /// Remove attributes; missing ones are ignored
    #[command(after_help = EXAMPLES)]
    Rm {
        /// The object: a name or an identifier
        target: Target,
        /// The attributes
        #[arg(required = true)]
        keys: Vec<String>,
    },
}

/// An attribute and its value.
///
/// In JSON, the value is `value` if it is UTF-8 text and `value_hex` otherwise; likewise the key.
#[derive(Serialize)]
pub(crate) struct AttributePair {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    value: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Key {
    Key(String),
    KeyHex(String),
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Value {
    Value(String),
    ValueHex(String),
}

impl AttributePair {
    pub(crate) fn new(key: &[u8], value: &[u8]) -> Self {
        Self {
            key: text(key).map_or_else(|| Key::KeyHex(hex(key)), Key::Key),
            value: text(value).map_or_else(|| Value::ValueHex(hex(value)), Value::Value),
        }
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `key = value`; for a long or binary value only its size is shown.
impl fmt::Display for AttributePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_PRINTED_BYTES: usize = 200;
        match &self.key {
            Key::Key(key) => write!(f, "{} = ", Printable(key))?,
            Key::KeyHex(hex) => write!(f, "0x{hex} = ")?,
        }
        match &self.value {
            Value::Value(value) if value.len() <= MAX_PRINTED_BYTES => write!(f, "{}", Printable(value)),
            Value::Value(value) => write!(f, "({} bytes)", value.len()),
            Value::ValueHex(hex) => write!(f, "({} bytes)", hex.len() / 2),
        }
    }
}

impl Report for AttributePair {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{self}")
    }
}

pub(crate) async fn run(args: Attr, session: &mut CommandContext) -> Result {
    match args.action {
        Action::Get { target, key } => get(&target, &key, session).await,
        Action::Set { target, key, value } => {
            let value = if value == "-" { standard_input()? } else { value.into() };
            change(&target, &[(key.into(), Some(value))], session).await
        }
        Action::Ls { target } => {
            let stat = target.stat(&session.cluster().await?).await?;
            let mut pairs = stat.object.attributes().iter().map(|(key, value)| AttributePair::new(key, value));
            pairs.try_for_each(|pair| session.output.print(&pair))
        }
        Action::Rm { target, keys } => {
            let removed: Vec<_> = keys.into_iter().map(|key| (key.into(), None)).collect();
            change(&target, &removed, session).await
        }
    }
}

/// Changes attributes in one transaction.
async fn change(target: &Target, changes: &[(Bytes, Option<Bytes>)], session: &CommandContext) -> Result {
    let cluster = session.cluster().await?;
    let oid = target.find(&cluster).await?;
    let set_all = |t: Transaction| async move {
        for (key, value) in changes {
            t.set_attribute(oid, key.clone(), value.clone()).await?;
        }
        Ok(())
    };
    Ok(cluster.transact(set_all).await?)
}

async fn get(target: &Target, key: &str, session: &mut CommandContext) -> Result {
    let stat = target.stat(&session.cluster().await?).await?;
    let value = stat.object.attributes().get(key.as_bytes()).ok_or_else(|| {
        Failure::not_found(format!("{target} has no attribute {}", Printable(key)))
            .hint(format!("`mortar attr ls {target}` lists those it has."))
    })?;
    if session.output.json() {
        return session.output.print(&AttributePair::new(key.as_bytes(), value));
    }
    session.output.write_raw(value)
}

fn standard_input() -> Result<Bytes> {
    let mut value = Vec::new();
    let read = io::stdin().take(limits::ATTRIBUTE_VALUE as u64 + 1).read_to_end(&mut value);
    read.map_err(|e| Failure::file("cannot read the standard input", &e))?;
    Ok(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_or_hexadecimal() {
        let json = |value: &[u8]| serde_json::to_value(AttributePair::new(b"k", value)).unwrap();
        assert_eq!(json(b"caf\xc3\xa9"), serde_json::json!({ "key": "k", "value": "café" }));
        assert_eq!(json(b"\x00\xff"), serde_json::json!({ "key": "k", "value_hex": "00ff" }));
        assert_eq!(AttributePair::new(b"k", b"a\nb").to_string(), "k = a\\nb");
        assert_eq!(AttributePair::new(b"k", &[0xff; 9]).to_string(), "k = (9 bytes)");
    }
}
