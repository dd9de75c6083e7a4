//! OO7 on its small database: traversals and queries.

use std::time::Duration;

use super::program::{Program, Task};
use super::store::StoreKind;
use super::{Metric, Notes, add_settings, contest, new_figure, postgres_settings};
use crate::Result;
use crate::figure::{Better, Figure};
use crate::run::{MetricSpec, Run};

/// The required ratios.
const BAR_COLD: f64 = 5.0;
const BAR_HOT: f64 = 1.5;

/// The value of the program, the case, and the required ratio.
const TRAVERSALS: [(&str, &str, Option<f64>); 6] = [
    ("t1_cold_ms", "T1 cold", Some(BAR_COLD)),
    ("t6_cold_ms", "T6 cold", Some(BAR_COLD)),
    ("t1_hot_ms", "T1 hot", Some(BAR_HOT)),
    ("t6_hot_ms", "T6 hot", Some(BAR_HOT)),
    ("t1_loaded_ms", "T1 of loaded objects", None),
    ("t6_loaded_ms", "T6 of loaded objects", None),
];
const QUERIES: [(&str, &str); 7] = [
    ("q1_ms", "Q1, 10 atomic parts by identifier"),
    ("q2_ms", "Q2, 1 % of the build dates"),
    ("q3_ms", "Q3, 10 % of the build dates"),
    ("q4_ms", "Q4, 100 documents by title and their base assemblies"),
    ("q5_ms", "Q5, base assemblies with a younger composite part"),
    ("q7_ms", "Q7, all atomic parts"),
    ("q8_ms", "Q8, pairs of documents and atomic parts"),
];

const ABOUT: &str = "The small database of OO7 (Carey, DeWitt and Naughton): one module with seven levels of assemblies, three below each; 500 composite \
                     parts of 20 atomic parts with three connections each; three composite parts for each base assembly; documents of \
                     2,000 characters, a manual of 100,000. Each operation is a transaction, and the number of visits or of found \
                     objects is checked. ";

/// The figures of the traversals and of the queries, which are of the same runs.
pub(super) fn measure(run: &Run, program: &Program) -> Result<[Figure; 2]> {
    let (duration, cold) = run.choose((Duration::from_secs(20), 5), (Duration::from_secs(2), 2));
    let [mut traversals, mut queries] = figures(duration, cold);
    let (of_traversals, of_queries) = (metrics_of_traversals(), metrics_of_queries());
    let split = of_traversals.len();
    let metrics: Vec<Metric> = of_traversals.into_iter().chain(of_queries).collect();
    let specs: Vec<MetricSpec> = metrics.iter().map(|metric| metric.spec.clone()).collect();
    // A filter may name either figure.
    let wanted = if run.wants(queries.id, &specs[split..]) { run.without_filter() } else { run.clone() };
    let task = Task {
        title: "navigation and queries".to_owned(),
        workload: "navigation",
        threads: 1,
        duration,
        options: vec!["--cold-runs".into(), cold.to_string()],
    };
    let notes = Notes::default();
    let stores = [StoreKind::Mortar, StoreKind::DataNucleus, StoreKind::Hibernate];
    if let Some(outcome) = contest(&wanted, program, &mut traversals, &stores, &task, &metrics, &notes)? {
        for row in run.without_filter().rows(traversals.id, &outcome, &specs) {
            let is_query = specs[split..].iter().any(|spec| spec.case == row.case);
            let figure = if is_query { &mut queries } else { &mut traversals };
            if run.wants_case(figure.id, &row.case) {
                figure.rows.push(row);
            }
        }
        add_settings(&mut traversals, &notes);
        queries.parameters.clone_from(&traversals.parameters);
        for (store, (_, profile)) in &*notes.borrow() {
            for line in profile {
                let figure = if line.starts_with('T') { &mut traversals } else { &mut queries };
                figure.parameters.push(format!("Profile, {}: {line}", store.name()));
            }
        }
    }
    queries.skipped.clone_from(&traversals.skipped);
    Ok([traversals, queries])
}

/// The figures without rows.
fn figures(duration: Duration, cold: usize) -> [Figure; 2] {
    let about = format!(
        "{ABOUT}T1 visits the 43,740 atomic parts of all composite parts of all base assemblies, depth first; T6 only the 2,187 root parts. Cold: a new \
         factory, whose caches and whose client's cache are empty; the server and its caches are warm. Hot: a new entity manager, after \
         traversals with the same factory. Of loaded objects: the same entity manager again."
    );
    let parameters = vec![
        format!("{cold} cold traversals after one that is not counted; {} s a hot one", duration.as_secs() / 2),
        postgres_settings(),
    ];
    let traversals = new_figure("java-oo7", "OO7: traversals", &about, parameters);
    let about = format!(
        "{ABOUT}Queries are in JPQL, each with a new entity manager and warm caches. Q6 is left out. The profiles say where the time goes: \
         processor time of each run, and the libraries of sampled stacks. They are taken after the measurement."
    );
    [traversals, new_figure("java-queries", "OO7: queries", &about, Vec::new())]
}

fn metrics_of_traversals() -> Vec<Metric> {
    let time = |(value, case, bar): &(&'static str, &str, Option<f64>)| {
        let mut metric = Metric::new(case, value, "", "ms", Better::Lower, *bar);
        // T1 and T6 of a kind are drawn side by side.
        metric.spec.panel = format!("{}, ms", case.split_once(' ').map_or(*case, |(_, kind)| kind));
        metric
    };
    let other = |value, what, unit| Metric::new("OO7", value, what, unit, Better::Lower, None);
    let mut metrics: Vec<Metric> = TRAVERSALS.iter().map(time).collect();
    metrics.push(other("load_s", "load", "s"));
    metrics.push(other("disk_mib", "disk", "MiB"));
    metrics.extend(Metric::memory("OO7", true));
    metrics
}

fn metrics_of_queries() -> Vec<Metric> {
    QUERIES.iter().map(|(value, case)| Metric::new(case, value, "", "ms", Better::Lower, None)).collect()
}
