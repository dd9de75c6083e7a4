//! Small durable transactions, and lookups by identity.

use std::time::Duration;

use super::program::{Program, Task};
use super::store::StoreKind;
use super::{Metric, add_rows, new_figure, postgres_settings};
use crate::Result;
use crate::figure::{Better, Figure};
use crate::run::Run;

const THREADS: [usize; 2] = [1, 16];
/// Objects that are stored before the measurement.
const ITEMS: usize = 10_000;
/// The required ratios.
const BAR_ON_SERVERS: f64 = 3.0;
const BAR_EMBEDDED: f64 = 1.0;
const BAR_LOOKUPS: f64 = 1.5;

const ABOUT: &str = "Each thread runs one durable transaction after another, each with an entity manager of its own: it stores four new objects of \
                     about 500 bytes, reads four and checks them, and changes one of these. Identities are of a sequence that gives 50 at \
                     a time; objects have versions; second-level caches are on. A transaction counts if it begins and ends within \
                     the measurement. Then the store is opened again: the number of objects, every changed object and 20,000 new ones \
                     are compared with what was committed. ";

/// Beside the mappers on PostgreSQL.
pub(super) fn on_servers(run: &Run, program: &Program) -> Result<Figure> {
    let about = format!(
        "{ABOUT}All stores are servers on this machine, over TCP; the Java process shares the cores with them. PostgreSQL forces \
         its log at each commit, Mortar its own. Memory: the peak of the resident pages of the JVM, and of the proportional \
         pages of all processes of the server. Disk: the growth of all files for each object that was stored, of PostgreSQL \
         without its log."
    );
    let mut figure = new_figure("java-transactions", "small transactions of Java programs", &about, parameters(run));
    figure.parameters.push(postgres_settings());
    let stores = [StoreKind::Mortar, StoreKind::DataNucleus, StoreKind::Hibernate];
    measure(run, program, &mut figure, &stores, BAR_ON_SERVERS)?;
    Ok(figure)
}

/// Beside stores within the Java process.
pub(super) fn embedded(run: &Run, program: &Program) -> Result<Figure> {
    let about = format!(
        "{ABOUT}All stores are within the Java process. EclipseStore has the objects of the transactions on its heap, in maps below its \
         root; a transaction stores the maps and the object that it has changed, within one lock. H2 has a file, and writes to it \
         at each commit. Mortar forces its log at each commit; EclipseStore and H2 force nothing then, so their commits survive the \
         end of the process, but not a loss of power."
    );
    let mut figure = new_figure("java-embedded", "small transactions on embedded stores", &about, parameters(run));
    let stores = [StoreKind::EmbeddedMortar, StoreKind::EclipseStore, StoreKind::H2];
    measure(run, program, &mut figure, &stores, BAR_EMBEDDED)?;
    Ok(figure)
}

fn duration(run: &Run) -> Duration {
    run.choose(Duration::from_secs(60), Duration::from_secs(5))
}

fn parameters(run: &Run) -> Vec<String> {
    vec![
        format!("{} s a run after a sixth of warm-up; {ITEMS} objects before", duration(run).as_secs()),
        "Heap of the JVM: at most 4 GiB, with EclipseStore 12 GiB, because all its objects are there; the default collector".into(),
    ]
}

fn measure(run: &Run, program: &Program, figure: &mut Figure, stores: &[StoreKind], bar: f64) -> Result<()> {
    let has_server = stores.contains(&StoreKind::Mortar);
    for threads in THREADS {
        let case = format!("{threads} {}", if threads == 1 { "thread" } else { "threads" });
        let metric = |value, what, unit, better, bar| Metric::new(&case, value, what, unit, better, bar);
        let mut metrics = vec![
            metric("transactions_per_s", "", "transactions/s", Better::Higher, Some(bar)),
            metric("p50_us", "p50", "µs", Better::Lower, None),
            metric("p99_us", "p99", "µs", Better::Lower, None),
            metric("disk_bytes_per_object", "disk", "bytes/object", Better::Lower, None),
        ];
        metrics.extend(Metric::memory(&case, has_server));
        let task = Task {
            title: case.clone(),
            workload: "transactions",
            threads,
            duration: duration(run),
            options: vec!["--items".into(), ITEMS.to_string()],
        };
        add_rows(run, program, figure, stores, &task, &metrics)?;
    }
    Ok(())
}

/// Lookups by identity, warm.
pub(super) fn lookups(run: &Run, program: &Program) -> Result<Figure> {
    let duration = run.choose(Duration::from_secs(10), Duration::from_secs(2));
    let mut figure = new_figure(
        "java-lookup",
        "lookups by identity",
        "One thread finds random objects of about 500 bytes by identity, each with a new entity manager and without a transaction, and \
         checks the found object as a whole. All objects were read before: the rivals find them in their second-level caches, Mortar \
         in the page cache of its client, which other processes keep coherent.",
        vec![
            format!("{} s a run after half of that as warm-up; {ITEMS} objects", duration.as_secs()),
            postgres_settings(),
        ],
    );
    let case = "find by identity, warm";
    let mut metrics = vec![Metric::new(case, "lookups_per_s", "", "lookups/s", Better::Higher, Some(BAR_LOOKUPS))];
    metrics.extend(Metric::memory(case, true));
    let task = Task {
        title: case.to_owned(),
        workload: "lookups",
        threads: 1,
        duration,
        options: vec!["--items".into(), ITEMS.to_string()],
    };
    let stores = [StoreKind::Mortar, StoreKind::DataNucleus, StoreKind::Hibernate];
    add_rows(run, program, &mut figure, &stores, &task, &metrics)?;
    Ok(figure)
}
