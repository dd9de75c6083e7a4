//! Java programs on Mortar's plugin for Jakarta Persistence, beside object-relational mappers on PostgreSQL and embedded stores.
//!
//! Each run starts a store of its own and one Java process, which applies one workload to it (`java/bench`). All sides that implement Jakarta
//! Persistence have the same entities and the same workload code. The Java process compares what it reads with what it has written,
//! and fails if something is missing.

mod fields;
mod navigation;
mod program;
mod store;
mod transactions;

use std::cell::RefCell;
use std::collections::BTreeMap;

use self::program::{Program, Task};
use self::store::StoreKind;
use crate::Result;
use crate::contest::{ContestResult, Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::rival::servers;
use crate::run::{MetricSpec, Run};

/// What a report says about versions and settings, for each side, and profiles.
type Notes = RefCell<BTreeMap<StoreKind, (Vec<String>, Vec<String>)>>;

/// Bytes of disk that PostgreSQL fills in a full run, with its log before a checkpoint, or in a quick one.
const POSTGRES_DISK_BYTES: u64 = 16 << 30;
const QUICK_POSTGRES_DISK_BYTES: u64 = 2 << 30;

/// Measures all figures.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let program = Program::find()?;
    let [oo7, queries] = navigation::measure(run, &program)?;
    Ok(vec![
        transactions::on_servers(run, &program)?,
        transactions::lookups(run, &program)?,
        oo7,
        queries,
        transactions::embedded(run, &program)?,
        fields::measure(run, &program)?,
    ])
}

/// A metric: the name of the value that the program prints, and what the report says about it.
struct Metric {
    value: &'static str,
    spec: MetricSpec,
}

impl Metric {
    /// A metric of a case. The panel of the plot has its unit.
    fn new(case: &str, value: &'static str, what: &str, unit: &'static str, better: Better, bar: Option<f64>) -> Self {
        let spec = MetricSpec {
            case: if what.is_empty() { case.to_owned() } else { format!("{case}: {what}") },
            panel: if what.is_empty() { unit.to_owned() } else { format!("{what}, {unit}") },
            point: case.to_owned(),
            unit,
            better,
            target_ratio: bar,
        };
        Self { value, spec }
    }

    /// Memory of the Java process, and of the server where there is one.
    fn memory(case: &str, has_server: bool) -> Vec<Self> {
        let metric = |value, what| Self::new(case, value, what, "MiB", Better::Lower, None);
        let mut all = vec![metric("jvm_mib", "memory of the JVM")];
        if has_server {
            all.push(metric("server_mib", "memory of the server"));
        }
        all
    }
}

/// Runs a task on Mortar, the first store, and its rivals in turn. `None` if no case of it is selected or no rival can be run.
fn contest(
    run: &Run,
    program: &Program,
    figure: &mut Figure,
    stores: &[StoreKind],
    task: &Task,
    metrics: &[Metric],
    notes: &Notes,
) -> Result<Option<ContestResult>> {
    let specs: Vec<MetricSpec> = metrics.iter().map(|metric| metric.spec.clone()).collect();
    if !run.wants(figure.id, &specs) {
        return Ok(None);
    }
    let obstacle = match servers::has_postgres() {
        true => run.lack_of_space(run.choose(POSTGRES_DISK_BYTES, QUICK_POSTGRES_DISK_BYTES))?,
        false => Some("PostgreSQL is not installed; script/bench installs it when run as root".to_owned()),
    };
    let (usable, unusable): (Vec<&StoreKind>, Vec<&StoreKind>) =
        stores.iter().partition(|store| !store.needs_postgres() || obstacle.is_none());
    for store in unusable {
        let line = format!("{}: {}", store.name(), obstacle.as_deref().unwrap_or_default());
        if !figure.skipped.contains(&line) {
            figure.skipped.push(line);
        }
    }
    if usable.len() < 2 {
        return Ok(None);
    }
    let mut sides: Vec<Side<'_>> = usable
        .into_iter()
        .map(|store| {
            Side::new(store.name(), move || {
                let measured = program.run(run, *store, task)?;
                let values = metrics.iter().map(|metric| measured.value(metric.value)).collect();
                notes.borrow_mut().insert(*store, (measured.notes, measured.profile));
                values
            })
        })
        .collect();
    let title = format!("{}, {}", figure.id, task.title);
    interleave(&title, run.choose(Run::REPEATS, 1), &mut sides).map(Some)
}

/// Runs a task as [`contest`], and adds its rows to the figure.
fn add_rows(
    run: &Run,
    program: &Program,
    figure: &mut Figure,
    stores: &[StoreKind],
    task: &Task,
    metrics: &[Metric],
) -> Result<()> {
    let notes = Notes::default();
    if let Some(outcome) = contest(run, program, figure, stores, task, metrics, &notes)? {
        let specs: Vec<MetricSpec> = metrics.iter().map(|metric| metric.spec.clone()).collect();
        figure.rows.extend(run.rows(figure.id, &outcome, &specs));
        add_settings(figure, &notes);
    }
    Ok(())
}

/// Adds the versions and settings of all sides to the parameters of a figure.
fn add_settings(figure: &mut Figure, notes: &Notes) {
    for (store, (lines, _)) in &*notes.borrow() {
        let line = format!("{}: {}", store.name(), lines.join("; "));
        if !figure.parameters.contains(&line) {
            figure.parameters.push(line);
        }
    }
}

/// A figure without rows.
fn new_figure(id: &'static str, title: &'static str, about: &str, parameters: Vec<String>) -> Figure {
    Figure {
        id,
        title,
        about: about.to_owned(),
        paper: "",
        parameters,
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    }
}

/// The settings of PostgreSQL, for reports.
fn postgres_settings() -> String {
    format!(
        "PostgreSQL: fsync and synchronous_commit are on, as by default; {}; ANALYZE after the load",
        servers::POSTGRES.join(", ")
    )
}
