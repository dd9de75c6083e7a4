//! Workloads and rivals: compares Mortar with widely used systems in the same run.

mod buddy;
mod contest;
mod figure;
mod hammer;
mod java;
mod load;
mod machine;
mod mortar;
mod oo7;
mod osbdb;
mod paper;
mod plot;
mod process;
mod progress;
mod report;
mod rival;
mod run;
mod tods;
mod workload;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::figure::Figure;
use crate::machine::Machine;
use crate::run::Run;

/// An error ends the benchmark with its message.
type Result<T, E = BoxedError> = std::result::Result<T, E>;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Measures Mortar beside its rivals and writes a page with plots and tables.
///
/// Progress goes to standard error and the table of results to standard output. The exit code is 0 if everything requested was
/// measured, 1 after an error, and 3 if a case was skipped because a rival is missing or the disk is too full. A ratio below the
/// required one is shown and is not an error.
#[derive(Parser)]
#[command(name = "script/bench", version, max_term_width = 100)]
struct Arguments {
    /// What to measure.
    name: Benchmark,
    /// Measure one figure (osbdb-2), the figures of one paper (buddy), or the cases whose text contains this ("unix get").
    #[arg(long, value_name = "ID")]
    only: Option<String>,
    /// Reduce sizes and times so that the run ends within a minute; the report notes that.
    #[arg(long)]
    quick: bool,
    /// Write the rows to this file, one JSON object per line; "-" is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The directory of the report and, during the run, of the measured files; must be on a disk.
    /// Default: bench (figures: figures) in the target directory. As root, measured files are in
    /// /var/tmp if other users cannot enter that directory: PostgreSQL does not run as root.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    oo7: oo7::Options,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// Durable transactions of 4 × 512 B, beside append and fdatasync.
    Commit,
    /// Hot reads of 1 KB in process, beside LMDB.
    Get,
    /// Gets and puts of 1 KB over TCP and Unix socket, beside Redis and memcached.
    Kv,
    /// An object of 256 MB, written and read in pieces of 1 MiB, beside a file.
    Blob,
    /// The server's memory: idle, while importing large files, and a tree of small ones.
    Memory,
    /// Opening a store of ten million objects after SIGKILL.
    Open,
    /// Ten minutes of commits: latency, memory and disk of the last one beside the second one; then a restart after SIGKILL.
    Endurance,
    /// A directory of ten million names: its first names, and creates in it.
    Names,
    /// Clients of eight bricks beside backups, and backup and restore beside a copy of as many bytes.
    Backup,
    /// Java programs: small transactions, lookups, OO7 and embedded stores, beside DataNucleus and Hibernate on PostgreSQL, EclipseStore
    /// and H2. About an hour and a half.
    Java,
    /// OO7 on the typed client: traversals and queries, beside the same code on structs in memory.
    Oo7,
    /// The figures of the papers.
    Figures,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments) {
        Ok(skipped) => ExitCode::from(if skipped { 3 } else { 0 }),
        Err(error) => {
            progress::line(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Measures and writes the reports. Returns whether a case was skipped.
fn measure(arguments: &Arguments) -> Result<bool> {
    let name = arguments.name;
    if name != Benchmark::Oo7 && arguments.oo7 != oo7::Options::default() {
        return Err(format!("{} takes none of the options of oo7", name.text()).into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let out = arguments.out.clone().unwrap_or_else(|| target.join(name.directory()));
    let data = out.join("data");
    fs::create_dir_all(&data)?;
    let temporary = if arguments.out.is_none() { rival::servers::enterable_instead_of(&data)? } else { None };
    let data = temporary.as_ref().map_or(data, |temporary| temporary.path().to_owned());
    let run = Run { quick: arguments.quick, only: arguments.only.clone(), data };
    let machine = Machine::describe(&run.data);
    progress::line(format_args!("{}", machine.line()));
    let figures = name.figures(&run, arguments)?;
    if figures.iter().all(|figure| figure.rows.is_empty() && figure.skipped.is_empty()) {
        let only = arguments.only.as_deref().unwrap_or_default();
        return Err(format!("{} has no figure or case called {only:?}", name.text()).into());
    }
    write(arguments, name, &out, &figures, &machine)?;
    Ok(figures.iter().any(|figure| !figure.skipped.is_empty()))
}

fn write(arguments: &Arguments, name: Benchmark, out: &Path, figures: &[Figure], machine: &Machine) -> Result<()> {
    let page =
        out.join(if name == Benchmark::Figures { "index.html".to_owned() } else { format!("{}.html", name.text()) });
    report::page(&page, name.text(), figures, machine, arguments.quick)?;
    let json = report::json(figures, arguments.quick)?;
    if name == Benchmark::Figures {
        fs::write(out.join("figures.json"), &json)?;
    }
    let mut stdout = io::stdout().lock();
    match arguments.json.as_deref() {
        Some(path) if path == Path::new("-") => stdout.write_all(json.as_bytes())?,
        Some(path) => fs::write(path, &json)?,
        None => {}
    }
    if arguments.json.as_deref() != Some(Path::new("-")) {
        stdout.write_all(report::table(figures).as_bytes())?;
    }
    progress::line(format_args!("{}", page.display()));
    Ok(())
}

impl Benchmark {
    fn text(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Get => "get",
            Self::Kv => "kv",
            Self::Blob => "blob",
            Self::Memory => "memory",
            Self::Open => "open",
            Self::Endurance => "endurance",
            Self::Names => "names",
            Self::Backup => "backup",
            Self::Java => "java",
            Self::Oo7 => "oo7",
            Self::Figures => "figures",
        }
    }

    fn directory(self) -> &'static str {
        if self == Self::Figures { "figures" } else { "bench" }
    }

    fn figures(self, run: &Run, arguments: &Arguments) -> Result<Vec<Figure>> {
        match self {
            Self::Figures => {
                // All figures of a paper, or one of them.
                let is = |only: &str, paper: &str, ids: &str| only == paper || ids.split(' ').any(|id| id == only);
                let wants = |paper: &str, ids: &str| run.only.as_deref().is_none_or(|only| is(only, paper, ids));
                let osbdb = osbdb::FIGURES.iter().map(|figure| ("osbdb", figure));
                let tods = tods::FIGURES.iter().map(|figure| ("tods", figure));
                let buddy = buddy::FIGURES.iter().map(|figure| ("buddy", figure));
                let wanted = osbdb.chain(tods).chain(buddy).filter(|(paper, (ids, _))| wants(paper, ids));
                wanted.map(|(_, (_, measure))| measure(&run.without_filter())).collect()
            }
            Self::Commit => workload::commit::measure(run),
            Self::Get => workload::get::measure(run),
            Self::Kv => workload::kv::measure(run),
            Self::Blob => workload::blob::measure(run),
            Self::Memory => workload::memory::measure(run),
            Self::Open => workload::open::measure(run),
            Self::Endurance => workload::endurance::measure(run),
            Self::Names => workload::names::measure(run),
            Self::Backup => workload::backup::measure(run),
            Self::Java => java::measure(run),
            Self::Oo7 => oo7::measure(run, &arguments.oo7),
        }
    }
}
