//! The workloads of "BuddyCache: High-Performance Object Storage for Collaborative Strong-Consistency Applications in a WAN": groups of
//! clients that are far from the store.
//!
//! [`site`] starts the processes and the links between them, [`workload`] runs transactions and measures where their time goes, [`model`]
//! has the equations of the paper. [`costs`], [`cold`] and [`hot`] are the figures.

mod cold;
mod costs;
mod hot;
mod model;
mod site;
mod workload;

use crate::Result;
use crate::figure::{Better, Figure, Row};
use crate::run::Run;

/// Figures of the paper: their names for `--only` (several if they use the same runs), and the function that measures them.
type Measure = fn(&Run) -> Result<Figure>;

/// All figures of the paper.
pub(crate) const FIGURES: [(&str, Measure); 5] = [
    ("buddy-t1 buddy-t2", costs::measure),
    ("buddy-7 buddy-8", cold::breakdown),
    ("buddy-9", cold::benefit),
    ("buddy-10 buddy-11", hot::breakdown),
    ("buddy-12", hot::benefit),
];

/// The transactions of a group, and the system that runs them without a redirector.
const BASE: &str = "Base: without a redirector";

/// A row of one run of which less is better, beside the same program without a redirector.
fn base_row(case: String, (panel, point): (&str, &str), unit: &'static str, mortar: f64, base: f64) -> Row {
    new_row(case, (panel, point), (unit, Better::Lower), mortar, (BASE, base))
}

/// A row of one run that must be at most `required`.
fn at_most_row(case: String, (panel, point): (&str, &str), unit: &'static str, mortar: f64, required: f64) -> Row {
    let row = new_row(case, (panel, point), (unit, Better::Lower), mortar, ("required", required));
    Row { target_ratio: Some(1.0), ..row }
}

fn new_row(
    case: String,
    (panel, point): (&str, &str),
    (unit, better): (&'static str, Better),
    mortar: f64,
    (rival_name, rival): (&str, f64),
) -> Row {
    Row {
        case,
        panel: panel.to_owned(),
        point: point.to_owned(),
        unit,
        better,
        rival_name: rival_name.to_owned(),
        mortar: vec![mortar],
        rival: vec![rival],
        target_ratio: None,
    }
}

/// Rows of a benefit, in percent of the time without a redirector: beside the model and, where it has one, the paper's. `required` is in
/// percent.
fn benefit_rows(
    case: &str,
    (panel, point): (&str, &str),
    measured: f64,
    rivals: &[(&str, Option<f64>)],
    required: Option<f64>,
) -> Vec<Row> {
    let row = |name, value| {
        new_row(case.to_owned(), (panel, point), ("% less time", Better::Higher), measured, (name, value))
    };
    let shown = rivals.iter().filter_map(|(name, value)| Some(row(name, (*value)?)));
    let required = required.map(|percent| Row { target_ratio: Some(1.0), ..row("required", percent) });
    shown.chain(required).collect()
}

/// How much less time than `base` something takes, in percent.
fn percent_less(time: f64, base: f64) -> f64 {
    (1.0 - time / base) * 100.0
}
