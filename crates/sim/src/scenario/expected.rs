//! What came of a run, as a scenario has it.

use crate::plan::{Cluster, Plan};
use crate::run::RunReport;
use crate::world::FIRST_CUT;
use check::history::{Kind, Operation, Outcome, Step, Value};

/// The operations in the order in which they began, and the verdict.
#[must_use]
pub fn expectation(plan: &Plan, report: &RunReport) -> Vec<String> {
    let mut operations: Vec<&Operation> = report.history.operations.iter().collect();
    operations.sort_by_key(|operation| operation.number);
    let lines = operations.into_iter().map(|operation| line(&plan.cluster, operation));
    lines.chain([verdict(report)]).collect()
}

fn verdict(report: &RunReport) -> String {
    match &report.wrong {
        None => "right".to_owned(),
        Some(wrong) => format!("wrong: {}", wrong.to_string().lines().next().unwrap_or_default()),
    }
}

fn line(cluster: &Cluster, operation: &Operation) -> String {
    let Operation { number, client, kind, outcome, steps, .. } = operation;
    let kind = match kind {
        Kind::Transaction | Kind::ReadOnly | Kind::Write | Kind::Read => "",
        Kind::Locks => "locks ",
        Kind::Snapshot => "snapshot ",
    };
    let outcome = match outcome {
        Outcome::Ok => "ok",
        Outcome::Failed => "failed",
        Outcome::Unknown => "unknown",
    };
    let steps: Vec<String> = steps.iter().map(step).collect();
    let separator = if steps.is_empty() { "" } else { ": " };
    format!("{} T{number} {kind}{outcome}{separator}{}", name(cluster, *client), steps.join(", "))
}

/// A client is called as in the plan. One that was restarted is another client (H1), and has the number of its process.
fn name(cluster: &Cluster, member: u64) -> String {
    let before = (cluster.bricks + cluster.peers + cluster.redirectors) as u64;
    match member.checked_sub(before).filter(|number| (1..=cluster.clients as u64).contains(number)) {
        Some(number) => format!("c{number}"),
        None if member >= FIRST_CUT => "restored cluster".to_owned(),
        None => format!("restarted {member}"),
    }
}

fn step(step: &Step) -> String {
    match step {
        Step::Read(key, value) => format!("read {key} {}", show(value)),
        Step::Append(key, element) => format!("append {key} {element}"),
        Step::Write(key, value) => format!("write {key} {value}"),
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Nothing => "nothing".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::List(list) => format!("{list:?}"),
    }
}
