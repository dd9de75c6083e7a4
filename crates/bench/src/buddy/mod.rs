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

/// A row of times in milliseconds.
fn time_row(case: String, panel: &str, point: &str, mortar: f64, base: f64) -> Row {
    Row {
        case,
        panel: panel.to_owned(),
        point: point.to_owned(),
        unit: "ms",
        better: Better::Lower,
        rival_name: BASE.to_owned(),
        mortar: vec![mortar],
        rival: vec![base],
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
    let row = |(name, value): &(&str, Option<f64>)| {
        Some(Row {
            case: case.to_owned(),
            panel: panel.to_owned(),
            point: point.to_owned(),
            unit: "% less time",
            better: Better::Higher,
            rival_name: (*name).to_owned(),
            mortar: vec![measured],
            rival: vec![(*value)?],
            target_ratio: None,
        })
    };
    let required = required.map(|percent| ("required", Some(percent)));
    let mut rows: Vec<Row> = rivals.iter().chain(&required).filter_map(row).collect();
    if let (Some(_), Some(row)) = (required, rows.last_mut()) {
        row.target_ratio = Some(1.0);
    }
    rows
}

/// How much less time than `base` something takes, in percent.
fn percent_less(time: f64, base: f64) -> f64 {
    (1.0 - time / base) * 100.0
}
