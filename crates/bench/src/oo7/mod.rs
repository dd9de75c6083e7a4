//! OO7 (Carey, DeWitt and Naughton, SIGMOD 1993) on the typed client, beside the same code on structs in memory.
//!
//! [`design`] has the sizes, [`generate`] the contents, [`load`] stores them; [`traversal`] and [`query`] are the operations, [`operation`]
//! their names. They run on any [`objects::Database`]: on a [`space`] of Mortar and on the [`control`].

mod control;
pub(crate) mod design;
mod generate;
pub(crate) mod load;
pub(crate) mod model;
pub(crate) mod objects;
mod operation;
mod query;
mod random;
pub(crate) mod space;
#[cfg(test)]
mod tests;
pub(crate) mod traversal;
mod users;
mod zodb;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use client::{Client, ErrorKind};
use tokio::runtime::Runtime;

use self::control::Control;
pub(crate) use self::control::Stored;
use self::design::{Design, Size};
use self::operation::Operation;
use self::space::Space;
use self::traversal::Counts;
use self::users::{User, run_all};
use self::zodb::Zodb;
use crate::Result;
use crate::figure::{Better, Figure, Row, Shape};
use crate::mortar::server::{Engine, MortarServer, runtime};
use crate::progress;
use crate::run::Run;

const ID: &str = "oo7";

/// Options of `script/bench oo7`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Options of oo7")]
pub(crate) struct Options {
    /// The size of a module. Default: small; with --quick: tiny.
    #[arg(long)]
    size: Option<Size>,
    /// Traversals and queries, such as T1,T6,Q5. Default: all.
    #[arg(long, value_name = "NAME", value_delimiter = ',', ignore_case = true)]
    traversals: Vec<Operation>,
    /// Number of clients that run each operation at the same time. If more than one, each has a module, and one more is shared. Default: 1.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    users: Option<u32>,
    /// All users traverse the shared module instead of their own.
    #[arg(long)]
    shared: bool,
    /// Show only the first run of new clients.
    #[arg(long)]
    cold: bool,
    /// Show only the second run of each client.
    #[arg(long)]
    hot: bool,
    /// Number of hot runs of each client. Default: 1.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hot_runs: Option<u32>,
    /// Traversals that only read use group snapshots, which have no limit of objects.
    #[arg(long)]
    snapshots: bool,
    /// The space of a running cluster, without an OO7 database. Default: a server of the benchmark's own.
    #[arg(long)]
    url: Option<String>,
}

/// A database on Mortar, and the control.
struct Fixture<'a> {
    options: &'a Options,
    design: Design,
    url: String,
    control: Control,
    /// For the control.
    runtime: Runtime,
    /// The rival, if it takes part.
    zodb: Option<Zodb>,
}

/// Durations of a run on each side, in milliseconds, one for each repetition.
#[derive(Default)]
struct Times {
    mortar: Vec<f64>,
    control: Vec<f64>,
    zodb: Vec<f64>,
}

/// The result of an operation.
struct Measured {
    cold: Times,
    hot: Times,
    /// Of all users together.
    counts: Counts,
}

/// Loads a database and measures the operations.
pub(crate) fn measure(run: &Run, options: &Options) -> Result<Vec<Figure>> {
    let size = options.size.unwrap_or(run.choose(Size::Small, Size::Tiny));
    let design = Design::for_users(size, options.users());
    let mut figure = new_figure(options, size, &design);
    let operations = operations(run, options);
    if operations.is_empty() {
        return Ok(vec![figure]);
    }
    // Lives until all is measured.
    let (server, url) = match &options.url {
        Some(url) => (None, url.clone()),
        None => {
            let server = MortarServer::start(run, Engine::Durable)?;
            let url = server.url();
            (Some(server), url)
        }
    };
    let zodb = match options.programs_of_zodb() {
        Ok(programs) => Some(Zodb::start(run, &programs, &design)?),
        Err(why) => {
            figure.skipped.push(why.to_string());
            None
        }
    };
    let fixture = Fixture { options, design, url, control: Control::default(), runtime: runtime()?, zodb };
    figure.rows.push(fixture.load()?);
    for operation in operations {
        match fixture.measure(operation)? {
            Ok(measured) => figure.rows.extend(fixture.rows(operation, &measured)),
            Err(why) => figure.skipped.push(format!("{operation}: {why}")),
        }
    }
    drop(server);
    Ok(vec![figure])
}

/// The selected operations.
fn operations(run: &Run, options: &Options) -> Vec<Operation> {
    let named = if options.traversals.is_empty() { Operation::value_variants() } else { &options.traversals };
    let is_wanted =
        |operation: &Operation| ["cold", "hot"].iter().any(|kind| run.wants_case(ID, &format!("{operation} {kind}")));
    named.iter().copied().filter(is_wanted).collect()
}

fn new_figure(options: &Options, size: Size, design: &Design) -> Figure {
    let size = size.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let Design { modules, composite_parts, atomic_parts, levels, .. } = design;
    let placed = match (options.users(), options.shared) {
        (1, _) => "one user".to_owned(),
        (users, false) => format!("{users} users, each with a module of its own"),
        (users, true) => format!("{users} users of one module"),
    };
    Figure {
        id: ID,
        title: "OO7 on the typed client",
        about: "Each traversal and query of OO7 is a transaction of the typed client (`#[derive(Persistent)]`). The same code runs on \
                plain structs in memory, which is what the program costs without a store; both must count the same objects. Cold: a client that \
                has connected, with an empty cache; the caches of the server are warm. Hot: a second transaction of the same client. With \
                several users: the time until the last one has finished; the control runs one after the other. Beside one user runs ZODB \
                with ZEO: the same operations in Python, on the same objects, with all objects in its caches when it is hot."
            .into(),
        paper: "",
        parameters: vec![
            format!(
                "{size}: {modules} module(s) of {composite_parts} composite parts with {atomic_parts} atomic parts each, {levels} levels \
                 of assemblies; {} base assemblies a module",
                design.base_assemblies()
            ),
            format!("{placed}; traversals that only read use {}", if options.snapshots { "snapshots" } else { "optimistic transactions" }),
            options.url.clone().unwrap_or_else(|| "mortar dev with a data directory, over its Unix socket".to_owned()),
            "ZODB 6.4 with ZEO 6.2, over its Unix socket: a file storage, a client's cache file of 1 GiB, all objects in memory; B-trees as \
             indexes of identifiers, titles and build dates"
                .to_owned(),
        ],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    }
}

impl Options {
    fn users(&self) -> u32 {
        self.users.unwrap_or(1)
    }

    /// Where ZODB is, which runs beside one user on a server of the benchmark's own.
    fn programs_of_zodb(&self) -> Result<PathBuf> {
        match self.users() == 1 && self.url.is_none() {
            true => zodb::programs(),
            false => Err("ZODB runs beside one user only, without --url".into()),
        }
    }

    fn shows_cold(&self) -> bool {
        self.cold || !self.hot
    }

    fn shows_hot(&self) -> bool {
        self.hot || !self.cold
    }
}

impl Fixture<'_> {
    /// Loads the database and the control. Returns the times.
    fn load(&self) -> Result<Row> {
        let last_tenth = Cell::new(0);
        let report = |stored: usize, all: usize| {
            if last_tenth.replace(stored * 10 / all) != stored * 10 / all {
                progress::line(format_args!("oo7: {stored} of {all} composite parts are stored"));
            }
        };
        let begun = Instant::now();
        self.runtime.block_on(async {
            let space = Space::new(Client::connect(&self.url).await?, false);
            space.define().await?;
            load::load(&space, &self.design, report).await
        })?;
        let mortar = begun.elapsed();
        let begun = Instant::now();
        self.runtime.block_on(load::load(&self.control, &self.design, |_, _| {}))?;
        let control = begun.elapsed();
        progress::line(format_args!("oo7: loaded in {mortar:.1?}, the control in {control:.1?}"));
        Ok(new_row("load", "load", "load, s", "s", (vec![mortar.as_secs_f64()], vec![control.as_secs_f64()])))
    }

    /// Measures an operation: a cold and a hot run of new clients, several times. The inner error says why it cannot run.
    fn measure(&self, operation: Operation) -> Result<Result<Measured, String>> {
        let mut measured = Measured { cold: Times::default(), hot: Times::default(), counts: Counts::default() };
        for repetition in 1..=Run::REPEATS {
            let users = self.connect()?;
            let hot_runs = if self.options.shows_hot() { self.options.hot_runs.unwrap_or(1) } else { 0 };
            for run in 0..=hot_runs {
                let times = if run == 0 { &mut measured.cold } else { &mut measured.hot };
                let (elapsed, counts) = match run_all(&users, operation, &self.design) {
                    Err(error) if error.kind() == ErrorKind::TooLarge => return Ok(Err(error.message().to_owned())),
                    result => result?,
                };
                measured.counts = self.check(operation, &users, &counts, times)?;
                times.mortar.push(milliseconds(elapsed));
            }
            self.measure_zodb(operation, hot_runs, &mut measured)?;
            let last = |(kind, times): (&str, &Times)| Some(format!("{:.1} ms {kind}", times.mortar.last()?));
            let shown: Vec<String> =
                [("cold", &measured.cold), ("hot", &measured.hot)].into_iter().filter_map(last).collect();
            let repeats = Run::REPEATS;
            progress::line(format_args!("oo7: {operation}: run {repetition} of {repeats}: {}", shown.join(", ")));
        }
        Ok(Ok(measured))
    }

    /// Measures a cold run and this many hot ones of a new client of ZODB, which must count the same as Mortar.
    fn measure_zodb(&self, operation: Operation, hot_runs: u32, measured: &mut Measured) -> Result<()> {
        let Some(zodb) = &self.zodb else { return Ok(()) };
        for (number, run) in zodb.run(operation, &self.design, 1, 1 + hot_runs)?.into_iter().enumerate() {
            let (counts, expected) = (run.counts(), measured.counts);
            if counts != expected {
                return Err(format!("{operation}: Mortar has counted {expected:?}, and ZODB {counts:?}").into());
            }
            let times = if number == 0 { &mut measured.cold } else { &mut measured.hot };
            times.zodb.push(run.seconds * 1e3);
        }
        Ok(())
    }

    /// New clients.
    fn connect(&self) -> Result<Vec<User>> {
        let module = |user| if self.options.shared { self.design.modules } else { user };
        let users = 1..=self.options.users();
        users.map(|user| User::connect(&self.url, module(user), self.options.snapshots)).collect()
    }

    /// Runs the operation on the control for each user, and compares the counts. Returns those of all users together.
    fn check(&self, operation: Operation, users: &[User], counts: &[Counts], times: &mut Times) -> Result<Counts> {
        let begun = Instant::now();
        let mut all = Counts::default();
        for (user, counts) in users.iter().zip(counts) {
            let expected = self.runtime.block_on(operation.run(&self.control, &self.design, user.module()))?;
            if *counts != expected {
                return Err(format!("{operation}: Mortar has counted {counts:?}, and the control {expected:?}").into());
            }
            all.visited += counts.visited;
            all.updated += counts.updated;
        }
        times.control.push(milliseconds(begun.elapsed()));
        Ok(all)
    }

    /// The rows of an operation: times and counts.
    fn rows(&self, operation: Operation, measured: &Measured) -> Vec<Row> {
        let point = operation.to_string();
        let mut rows = Vec::new();
        let Measured { cold, hot, counts } = measured;
        for (kind, times, is_shown) in
            [("cold", cold, self.options.shows_cold()), ("hot", hot, self.options.shows_hot())]
        {
            if is_shown {
                let values = (times.mortar.clone(), times.control.clone());
                let row = new_row(&format!("{point} {kind}"), &point, &format!("{kind}, ms"), "ms", values);
                if !times.zodb.is_empty() {
                    let (rival_name, rival) = ("ZODB with ZEO".to_owned(), times.zodb.clone());
                    rows.push(Row { rival_name, rival, target_ratio: Some(1.0), ..row.clone() });
                }
                rows.push(row);
            }
        }
        for (kind, count) in [("visited", counts.visited), ("updated", counts.updated)] {
            if count > 0 || kind == "visited" {
                let values = (vec![count as f64], vec![count as f64]);
                rows.push(new_row(&format!("{point} {kind}"), &point, "objects", "objects", values));
            }
        }
        rows
    }
}

/// A row: the values of Mortar, and of the control.
fn new_row(case: &str, point: &str, panel: &str, unit: &'static str, (mortar, control): (Vec<f64>, Vec<f64>)) -> Row {
    Row {
        case: case.to_owned(),
        panel: panel.to_owned(),
        point: point.to_owned(),
        unit,
        better: Better::Lower,
        rival_name: "structs in memory".to_owned(),
        mortar,
        rival: control,
        target_ratio: None,
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
