//! How throughput grows with the number of bricks, in the simulator's model: one machine cannot show it.

use std::process::Command;

use serde::Deserialize;

use crate::Result;
use crate::figure::{Better, Figure, Row, Shape};
use crate::run::Run;

const BRICKS: &str = "1,2,4,8";
/// The required part of linear growth.
const TARGET_LINEARITY: f64 = 0.9;

/// A line of `mortar-sim cost --json`.
#[derive(Deserialize)]
struct CostLine {
    load: String,
    bricks: u16,
    rate: f64,
    linear: f64,
}

/// The model's throughput beside linear growth.
pub(super) fn scaling(run: &Run) -> Result<Figure> {
    let mut figure = Figure {
        id: "tods-scaling",
        title: "throughput over the number of bricks, in a model",
        about: "The simulator's model of costs: the machines of the protocol run as they do in a cluster, with as many peer servers as \
                bricks, and each process has its own processor, on which its work takes the time that profiles of \
                real processes showed; each brick has a disk. It shows whether the rules contain a shared bottleneck. It \
                does not model full networks or contention for the same objects. On the two cores of a \
                small machine more processes only share the same processor time: see tods-7."
            .into(),
        paper: "Reads and local transactions grow linearly up to 36 nodes.",
        parameters: vec![format!("mortar-sim cost --bricks {BRICKS}: 256 clients for each brick")],
        shape: Shape::Lines,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    let program = std::env::current_exe()?.with_file_name("mortar-sim");
    if !program.is_file() {
        figure.skipped.push(format!("{} is missing: script/bench builds it", program.display()));
        return Ok(figure);
    }
    let length = run.choose("500", "100");
    let output = Command::new(program).args(["cost", "--json", "--bricks", BRICKS, "--length", length]).output()?;
    if !output.status.success() {
        return Err(format!("mortar-sim cost failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    for line in String::from_utf8(output.stdout)?.lines() {
        let CostLine { load, bricks, rate, linear } = serde_json::from_str(line)?;
        figure.rows.push(Row {
            case: format!("{load}, {bricks} bricks, modelled"),
            panel: format!("{load}, operations/s over bricks"),
            point: bricks.to_string(),
            unit: "operations/s",
            better: Better::Higher,
            rival_name: "linear growth".into(),
            // A model has no noise, so all runs are equal.
            mortar: vec![rate; Run::REPEATS],
            rival: vec![rate / linear; Run::REPEATS],
            target_ratio: Some(TARGET_LINEARITY),
        });
    }
    Ok(figure)
}
