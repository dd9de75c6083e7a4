//! Shows a plan: which step runs where, and how many objects it processed.

use std::fmt::{self, Display, Write};

use serde_json::{Value as Json, json};

use super::{CandidateSource, Plan};
use crate::check::{Cond, GroupColumn, Groups, Order, OrderBy, Output, Term};

/// The number of objects that each step processed, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read by bricks: objects of the extent, or entries of the index.
    pub scanned: Option<u64>,
    /// Accepted by the filter, and sent by bricks.
    pub sent: Option<u64>,
    /// Fetched through references.
    pub navigated: Option<u64>,
    /// Satisfying the whole condition.
    pub matched: Option<u64>,
    /// Rows of the result.
    pub rows: Option<u64>,
}

/// A step of a plan, and the steps whose results it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// The kind of the step.
    pub name: &'static str,
    /// Where: `brick` or `peer`.
    pub place: &'static str,
    /// Its details.
    pub what: String,
    /// The number of objects, entries or rows that it returned.
    pub objects: Option<u64>,
    /// The steps that provide its input.
    pub inputs: Vec<PlanStep>,
}

impl Plan {
    /// The plan as steps, the last one on top, with the counts of a run.
    #[must_use]
    pub fn explain(&self, counts: &Counts) -> PlanStep {
        let mut step = self.source_step(counts);
        if self.filter != model::Filter::And(vec![]) {
            let what = self.pushed_condition();
            step = unary_step(step, "filter", "brick", what, counts.sent);
        }
        if let Some(residual) = &self.residual {
            let mut filter = unary_step(step, "filter", "peer", residual.to_string(), counts.matched);
            let paths = navigations(|visit| residual.paths(visit));
            if !paths.is_empty() {
                filter.inputs.push(leaf_step("navigate", "peer", paths.join(", "), counts.navigated));
            }
            step = filter;
        }
        match &self.checked.output {
            Output::Objects => {}
            Output::Columns(_) => {
                let names: Vec<&str> = self.columns().iter().map(|column| column.name.as_str()).collect();
                step = unary_step(step, "columns", "peer", names.join(", "), None);
            }
            Output::Groups(groups) => {
                let name = if groups.keys.is_empty() { "aggregate" } else { "group" };
                step = unary_step(step, name, "peer", self.groups(groups), None);
            }
        }
        if !self.checked.order.is_empty() {
            let keys: Vec<String> = self.checked.order.iter().map(|key| self.order_key(key)).collect();
            let mut what = keys.join(", ");
            if let Some(limit) = self.checked.limit {
                // Writing to a string does not fail.
                let _ = write!(what, "; the first {}", limit.saturating_add(self.checked.skip));
            }
            if matches!(&self.source, CandidateSource::Index(index) if index.ordered) {
                what.push_str(", until the index has no better ones");
            }
            step = unary_step(step, "sort", "peer", what, None);
        }
        let page = match (self.checked.skip, self.checked.limit) {
            (0, None) => "all".into(),
            (0, Some(limit)) => format!("at most {limit}"),
            (skip, None) => format!("all behind the first {skip}"),
            (skip, Some(limit)) => format!("at most {limit} behind the first {skip}"),
        };
        unary_step(step, "page", "peer", page, counts.rows)
    }

    fn source_step(&self, counts: &Counts) -> PlanStep {
        let name = &self.checked.class_name;
        let others = self.checked.classes.len() - 1;
        let classes = match others {
            0 => name.clone(),
            1 => format!("{name} and a class that extends it"),
            _ => format!("{name} and {others} classes that extend it"),
        };
        match &self.source {
            CandidateSource::Nothing => {
                leaf_step("nothing", "peer", "the condition holds of no object".into(), counts.scanned)
            }
            CandidateSource::Extent => leaf_step("extent scan", "brick", classes, counts.scanned),
            CandidateSource::Index(index) => {
                let ranges = match index.ranges.len() {
                    1 => String::new(),
                    count => format!(", in {count} ranges"),
                };
                let backwards = if index.reverse { ", backwards" } else { "" };
                let what = format!("{}: {}{ranges}{backwards}; of {classes}", index.name, index.words);
                leaf_step("index range", "brick", what, counts.scanned)
            }
        }
    }

    /// The part of the condition that bricks evaluate, as text.
    fn pushed_condition(&self) -> String {
        let parts = self.checked.conjuncts();
        let residual = match &self.residual {
            Some(Cond::And(parts)) => super::flatten(parts),
            Some(one) => vec![one],
            None => vec![],
        };
        let (decided, rest): (Vec<&Cond>, Vec<&Cond>) = parts.into_iter().partition(|part| !residual.contains(part));
        let mut words: Vec<String> = decided.iter().map(|part| part.to_string()).collect();
        let filters = match &self.filter {
            model::Filter::And(filters) => filters.len(),
            _ => 1,
        };
        if !rest.is_empty() && filters > decided.len() {
            words.push("the part of the rest that needs no references".into());
        }
        words.join(" && ")
    }

    fn groups(&self, groups: &Groups) -> String {
        let names: Vec<&str> = self.columns().iter().map(|column| column.name.as_str()).collect();
        let keys: Vec<String> = groups.keys.iter().map(Term::to_string).collect();
        match keys.is_empty() {
            true => names.join(", "),
            false => format!("{} by {}", names.join(", "), keys.join(", ")),
        }
    }

    fn order_key(&self, key: &Order) -> String {
        let by = match (&key.by, &self.checked.output) {
            (OrderBy::Term(term), _) => term.to_string(),
            (OrderBy::Group(GroupColumn::Key(index)), Output::Groups(groups)) => {
                groups.keys.get(*index).map(Term::to_string).unwrap_or_default()
            }
            (OrderBy::Group(GroupColumn::Aggregate(index)), Output::Groups(groups)) => {
                match groups.aggregates.get(*index) {
                    Some((aggregate, Some(of))) => format!("{}({of})", aggregate.name()),
                    Some((aggregate, None)) => format!("{}(*)", aggregate.name()),
                    None => String::new(),
                }
            }
            (OrderBy::Group(_), _) => String::new(),
        };
        format!("{by}{}", if key.descending { " desc" } else { "" })
    }
}

/// The paths that follow references, each once.
fn navigations<'c>(paths: impl FnOnce(&mut dyn FnMut(&'c crate::check::Path))) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    paths(&mut |path| {
        let follows = match path.root {
            crate::check::PathRoot::This => path.steps.len() > 1,
            crate::check::PathRoot::Variable(_) => !path.steps.is_empty(),
        };
        if follows && !found.iter().any(|known| **known == *path.text) {
            found.push(path.text.to_string());
        }
    });
    found
}

fn leaf_step(name: &'static str, place: &'static str, what: String, objects: Option<u64>) -> PlanStep {
    PlanStep { name, place, what, objects, inputs: vec![] }
}

fn unary_step(
    input: PlanStep,
    name: &'static str,
    place: &'static str,
    what: String,
    objects: Option<u64>,
) -> PlanStep {
    PlanStep { name, place, what, objects, inputs: vec![input] }
}

impl PlanStep {
    /// The step and those below it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let inputs: Vec<Json> = self.inputs.iter().map(Self::to_json).collect();
        json!({ "step": self.name, "place": self.place, "what": self.what, "objects": self.objects, "inputs": inputs })
    }

    fn lines(&self, indent: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = if indent == 0 { String::new() } else { format!("{:1$}└ ", "", 2 * (indent - 1)) };
        write!(f, "{branch}{} [{}]: {}", self.name, self.place, self.what)?;
        if let Some(objects) = self.objects {
            write!(f, "  ({objects})")?;
        }
        writeln!(f)?;
        self.inputs.iter().try_for_each(|input| input.lines(indent + 1, f))
    }
}

/// A line for each step, the last on top.
impl Display for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(0, f)
    }
}
