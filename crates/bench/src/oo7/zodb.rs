//! The rival: ZODB with ZEO, object storage of Python programs with transparent persistence and caches of objects in the clients.
//!
//! The operations are those of [`operation`](super::operation), written in Python (`zodb/client.py`). What an operation looks up and how it
//! updates is told to that program, so both sides do the same.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::design::Design;
use super::generate::{ModuleData, title_of};
use super::operation::{Kind, Operation};
use super::query::{self, Query};
use super::traversal::{Counts, Traversal, UpdatedField, Updates, Visits};
use crate::Result;
use crate::process::{Address, Server};
use crate::run::Run;

const CLIENT: &str = include_str!("zodb/client.py");

/// A server with the database.
pub(super) struct Zodb {
    // Before the directory, in which it works.
    _server: Server,
    directory: TempDir,
    python: PathBuf,
}

/// One run of an operation.
#[derive(Debug, Deserialize)]
pub(super) struct TimedRun {
    pub(super) seconds: f64,
    visited: u64,
    updated: u64,
}

impl TimedRun {
    pub(super) fn counts(&self) -> Counts {
        Counts { visited: self.visited, updated: self.updated }
    }
}

/// The directory of its programs, which `script/bench oo7` installs beside the build.
///
/// # Errors
/// Why it cannot take part.
pub(super) fn programs() -> Result<PathBuf> {
    let benchmark = std::env::current_exe()?;
    let programs = benchmark.ancestors().nth(2).unwrap_or(Path::new("/")).join("zodb/bin");
    match programs.join("runzeo").exists() {
        true => Ok(programs),
        false => Err("ZODB with ZEO is not installed: script/bench oo7 installs it, with Python 3 and its venv".into()),
    }
}

impl Zodb {
    /// Starts a server with a file storage, which forces its file at each commit, and loads the database.
    pub(super) fn start(run: &Run, programs: &Path, design: &Design) -> Result<Self> {
        let directory = run.directory("zodb")?;
        let socket = std::path::absolute(directory.path())?.join("zeo.sock");
        std::fs::write(directory.path().join("client.py"), CLIENT)?;
        let mut command = Command::new(programs.join("runzeo"));
        command.current_dir(directory.path()).arg("-a").arg(&socket).args(["-f", "data.fs"]);
        let server =
            Server::start("runzeo", &mut command, &directory.path().join("zeo.log"), &[Address::Unix(socket)])?;
        let zodb = Self { _server: server, directory, python: programs.join("python") };
        zodb.client("load", &database(design)?)?;
        Ok(zodb)
    }

    /// Runs an operation in a new client, this many times.
    pub(super) fn run(&self, operation: Operation, design: &Design, module: u32, runs: u32) -> Result<Vec<TimedRun>> {
        let mut task = description(operation, design);
        (task["module"], task["runs"]) = (module.into(), runs.into());
        Ok(serde_json::from_str(&self.client("run", &task)?)?)
    }

    /// Runs the client. Returns what it prints.
    fn client(&self, action: &str, input: &Value) -> Result<String> {
        let mut command = Command::new(&self.python);
        command.current_dir(self.directory.path()).args(["client.py", "zeo.sock", action]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A client that does not read its input says why.
            let _ = stdin.write_all(input.to_string().as_bytes());
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("the client of ZODB ended with {}:\n{text}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// All modules.
fn database(design: &Design) -> Result<Value> {
    let mut modules = Vec::new();
    for number in 1..=design.modules {
        let data = ModuleData::generate(design, number);
        let mut module = serde_json::to_value(&data)?;
        for (value, part) in module["composite_parts"].as_array_mut().into_iter().flatten().zip(&data.composite_parts) {
            value["title"] = title_of(part.id).into();
        }
        modules.push(module);
    }
    let Design { document_bytes, manual_bytes, .. } = design;
    Ok(json!({ "modules": modules, "document_bytes": document_bytes, "manual_bytes": manual_bytes }))
}

/// What the client has to do.
fn description(operation: Operation, design: &Design) -> Value {
    match operation.kind() {
        Kind::Traversal(Traversal { visits, updates, field }) => {
            let of_first = updates.of_first();
            json!({
                "operation": "traversal",
                "all_parts": visits == Visits::AllParts,
                "updates": [of_first.of_part(true), of_first.of_part(false)],
                "of_first_only": updates == Updates::FirstCompositePart,
                "field": if field == UpdatedField::Position { "position" } else { "build_date" },
            })
        }
        Kind::Query(Query::Lookups) => json!({ "operation": "lookups", "ids": query::looked_up_ids(design) }),
        Kind::Query(Query::BuildDates { percent }) => {
            json!({ "operation": "build_dates", "date": query::first_date(percent) })
        }
        Kind::Query(Query::Documents) => {
            json!({ "operation": "documents", "titles": query::looked_up_titles(design) })
        }
        Kind::Query(Query::Make) => json!({ "operation": "make" }),
        Kind::Query(Query::MultiLevelMake) => json!({ "operation": "multi_level_make" }),
        Kind::Query(Query::Join) => json!({ "operation": "join" }),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::oo7::design::Size;

    /// What `zodb/client.py` takes from the description of a traversal.
    const MEMBERS_OF_TRAVERSAL: [&str; 4] = ["all_parts", "updates", "of_first_only", "field"];

    #[test]
    fn every_operation_is_described() {
        let design = Design::new(Size::Tiny, 1);
        for operation in Operation::value_variants() {
            let task = description(*operation, &design);
            let name = task["operation"].as_str().unwrap();
            // The client has each name in quotes: of its traversal, and in the table of its queries.
            assert!(CLIENT.contains(&format!("\"{name}\"")), "{operation}: {name}");
            if name == "traversal" {
                assert!(MEMBERS_OF_TRAVERSAL.iter().all(|member| !task[*member].is_null()), "{operation}: {task}");
            }
        }
        let of_first = description(Operation::T2one, &design);
        assert_eq!((&of_first["updates"], &of_first["of_first_only"]), (&json!([1, 1]), &json!(true)));
        assert_eq!(description(Operation::T3a, &design)["updates"], json!([1, 0]));
    }

    #[test]
    fn database_has_all_objects_with_titles() {
        let database = database(&Design::new(Size::Tiny, 1)).unwrap();
        let parts = database["modules"][0]["composite_parts"].as_array().unwrap();
        assert_eq!((parts.len(), &parts[6]["title"]), (20, &json!("Composite Part 00000007")));
        assert_eq!(parts[0]["parts"][0]["targets"].as_array().unwrap().len(), 3);
    }
}
