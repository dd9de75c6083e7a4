//! Generates the messages of `proto/mortar.proto` and what that imports. protox parses the schema, so no protoc is needed.

#![allow(clippy::print_stdout, reason = "standard output is how a build script speaks to cargo")]

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use protox::prost_reflect::{DescriptorPool, Kind};

const SCHEMA: &str = "mortar.proto";
const FOLDER: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    let others = [
        "cluster.proto",
        "contents.proto",
        "entries.proto",
        "members.proto",
        "meta.proto",
        "moves.proto",
        "query.proto",
        "schema.proto",
        "ids.proto",
        "account.proto",
        "usage.proto",
        "groups.proto",
        "jobs.proto",
    ];
    for schema in [SCHEMA].into_iter().chain(others) {
        println!("cargo:rerun-if-changed={FOLDER}/{schema}");
    }
    let schema = protox::compile([SCHEMA], [FOLDER])?;
    let table = message_table(&DescriptorPool::from_file_descriptor_set(schema.clone())?)?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("message_table.rs"), table)?;
    // These contain passwords or their hashes, which must not be printed.
    let secret = ["mortar.v1.Hello", "mortar.v1.account.AddUser", "mortar.v1.account.SetPassword"];
    // A request or an answer is as large as its largest variant and is moved many times, so large variants are boxed.
    let boxed = [
        "Request.request.up",
        "Request.request.down",
        "Request.request.call",
        "Request.request.ask",
        "Request.request.answer",
        "Request.request.describe",
        "Request.request.look_up",
        "Request.request.list_entries",
        "Request.request.list_entries_of",
        "cluster.Scan.range",
        "cluster.Scan.after",
        "Response.response.scanned",
        "Response.response.rows",
        "Response.response.entry_list",
        "Response.response.looked_up",
        "Response.response.entries_of",
    ];
    let mut config = prost_build::Config::new();
    for field in boxed {
        config.boxed(format!(".mortar.v1.{field}"));
    }
    config.bytes(["."]).skip_debug(secret).compile_fds(schema)?;
    Ok(())
}

/// A table of all messages with what their fields take in memory, for `src/decoded_size.rs`.
fn message_table(schema: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let messages: Vec<_> = schema.all_messages().collect();
    let place_of: HashMap<&str, usize> = messages.iter().map(|message| message.full_name()).zip(0..).collect();
    let mut table = format!("pub(super) static MESSAGES: [MessageType; {}] = [\n", messages.len());
    for message in &messages {
        let name = message.full_name();
        let path = name.strip_prefix("mortar.v1.").ok_or("a package of another name")?.replace('.', "::");
        writeln!(table, "    MessageType {{ size: size_of::<crate::proto::{path}>(), fields: &[")?;
        let mut fields: Vec<_> = message.fields().collect();
        fields.sort_by_key(|field| field.number());
        for field in fields {
            let kind = match field.kind() {
                Kind::Message(_) if field.is_group() => return Err("groups are not supported".into()),
                Kind::Message(of) => format!("Message({})", place_of[of.full_name()]),
                Kind::String => "Bytes(size_of::<String>())".to_owned(),
                Kind::Bytes => "Bytes(size_of::<bytes::Bytes>())".to_owned(),
                _ if !field.is_list() => continue,
                Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => numbers(8, 8),
                Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => numbers(4, 4),
                Kind::Bool => numbers(1, 1),
                Kind::Uint32 | Kind::Int32 | Kind::Sint32 | Kind::Enum(_) => numbers(1, 4),
                Kind::Uint64 | Kind::Int64 | Kind::Sint64 => numbers(1, 8),
            };
            writeln!(table, "        ({}, FieldKind::{kind}),", field.number())?;
        }
        writeln!(table, "    ] }},")?;
    }
    writeln!(table, "];")?;
    for (name, root) in [("REQUEST", "Request"), ("RESPONSE", "Response")] {
        writeln!(table, "pub(super) const {name}: usize = {};", place_of[format!("mortar.v1.{root}").as_str()])?;
    }
    Ok(table)
}

/// A list of numbers that have at least `encoded` bytes on the wire, and `size` in memory.
fn numbers(encoded: usize, size: usize) -> String {
    format!("Numbers {{ encoded: {encoded}, size: {size} }}")
}
