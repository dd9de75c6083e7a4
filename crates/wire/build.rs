//! Generates the messages of `proto/mortar.proto` and what that imports. protox parses the schema, so no protoc is needed.

#![allow(clippy::print_stdout, reason = "standard output is how a build script speaks to cargo")]

use std::error::Error;

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
