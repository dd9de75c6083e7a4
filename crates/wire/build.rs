//! Generates the messages of `proto/mortar.proto`. protox parses the schema, so no protoc is needed.

#![allow(clippy::print_stdout, reason = "standard output is how a build script speaks to cargo")]

use std::error::Error;

const SCHEMA: &str = "mortar.proto";
const FOLDER: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={FOLDER}/{SCHEMA}");
    let schema = protox::compile([SCHEMA], [FOLDER])?;
    prost_build::Config::new().bytes(["."]).compile_fds(schema)?;
    Ok(())
}
