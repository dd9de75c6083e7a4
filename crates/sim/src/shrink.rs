//! Finds a short plan that fails in the same way as a long one.
//!
//! - **K1.** What is found fails: each plan that is kept was run, and something of the same kind was found wrong.
//! - **K2.** The number of runs is bounded; the best plan so far counts.
//! - **K3.** The result depends only on the plan, the planted bug and the bound.
//!
//! First the noise goes, then actions: by *delta debugging* (Zeller and Hildebrandt, "Simplifying and isolating
//! failure-inducing input"), halves first, then ever smaller parts, down to single ones. Then single steps of operations,
//! unused processes, and the time before the first action. All of this is repeated until nothing can be removed.

use std::ops::ControlFlow;

use crate::bug::Bug;
use crate::plan::{Action, Demand, Noise, Operation, Plan, ProcessName, Topology};
use crate::run::run;
use crate::world::RunFailure;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs so far.
    pub runs: usize,
    /// Actions of the shortest plan that fails.
    pub actions: usize,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct ShrinkResult {
    /// The shortest plan.
    pub plan: Plan,
    /// What is wrong in it.
    pub wrong: RunFailure,
    /// Runs that it took.
    pub runs: usize,
}

/// Shrinks a plan in at most `limit` runs. Calls `progress` after each run, which returns whether to continue. `None`
/// if the plan does not fail.
#[must_use]
pub fn shrink(
    plan: Plan,
    bug: Option<Bug>,
    limit: usize,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Option<ShrinkResult> {
    let wrong = run(plan.clone(), bug, false).wrong?;
    let mut shrinker = Shrinker { best: plan, wrong, bug, runs: 1, limit, progress };
    loop {
        let before = shrinker.best.clone();
        shrinker.reduce_noise();
        shrinker.reduce_actions();
        shrinker.reduce_steps();
        shrinker.reduce_processes();
        shrinker.remove_initial_delay();
        if shrinker.best == before || shrinker.is_over() {
            return Some(ShrinkResult { plan: shrinker.best, wrong: shrinker.wrong, runs: shrinker.runs });
        }
    }
}

struct Shrinker<'a> {
    best: Plan,
    wrong: RunFailure,
    bug: Option<Bug>,
    runs: usize,
    limit: usize,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl Shrinker<'_> {
    fn is_over(&self) -> bool {
        self.runs >= self.limit
    }

    /// Runs another plan, and keeps it if it fails. Says whether it does.
    fn try_plan(&mut self, plan: Plan) -> bool {
        if self.is_over() || plan == self.best {
            return false;
        }
        self.runs += 1;
        let wrong = run(plan.clone(), self.bug, false).wrong;
        let fails = wrong.is_some_and(|wrong| {
            let same = std::mem::discriminant(&wrong) == std::mem::discriminant(&self.wrong);
            if same {
                (self.best, self.wrong) = (plan, wrong);
            }
            same
        });
        if (self.progress)(Progress { runs: self.runs, actions: self.best.actions.len() }).is_break() {
            self.limit = self.runs;
        }
        fails
    }

    fn with_noise(&mut self, change: impl FnOnce(&mut Noise)) -> bool {
        let mut plan = self.best.clone();
        change(&mut plan.noise);
        self.try_plan(plan)
    }

    fn reduce_noise(&mut self) {
        for change in [
            |plan: &mut Plan| plan.seed = 0,
            |plan: &mut Plan| plan.cluster.snapshots = false,
            |plan: &mut Plan| plan.cluster.rows_at_once = false,
            |plan: &mut Plan| plan.cluster.cold_reads = false,
            |plan: &mut Plan| plan.demand = Demand::None,
        ] {
            let mut plan = self.best.clone();
            change(&mut plan);
            self.try_plan(plan);
        }
        if self.with_noise(|noise| *noise = Noise::NONE) {
            return;
        }
        self.with_noise(|noise| noise.loss = 0);
        self.with_noise(|noise| noise.duplicate = 0);
        self.with_noise(|noise| noise.reorder = 0);
        self.with_noise(|noise| noise.delay_ms = Noise::NONE.delay_ms);
        self.with_noise(|noise| noise.force_ms = Noise::NONE.force_ms);
    }

    /// Leaves out the actions of which this holds.
    fn without(&mut self, out: impl Fn(usize, &Action) -> bool) -> bool {
        let mut plan = self.best.clone();
        let mut index = 0;
        plan.actions.retain(|(_, action)| {
            index += 1;
            !out(index - 1, action)
        });
        self.try_plan(plan)
    }

    fn reduce_actions(&mut self) {
        // The largest parts that belong together.
        self.without(|_, action| !matches!(action, Action::Do(..) | Action::Go(_)));
        for client in 1..=self.best.cluster.clients {
            self.without(|_, action| matches!(action, Action::Do(number, _) if *number == client));
        }
        let mut size = self.best.actions.len().div_ceil(2);
        while size > 0 && !self.is_over() {
            let (mut at, mut gone) = (0, false);
            while at < self.best.actions.len() {
                if self.without(|index, _| (at..at + size).contains(&index)) {
                    gone = true;
                } else {
                    at += size;
                }
            }
            // Single ones again and again: one may have needed another that is gone now.
            size = if size == 1 { usize::from(gone) } else { size.div_ceil(2) };
        }
    }

    fn reduce_steps(&mut self) {
        for index in (0..self.best.actions.len()).rev() {
            let mut at = 0;
            loop {
                let mut plan = self.best.clone();
                let Some(steps) = steps(&mut plan.actions[index].1).filter(|steps| at < steps.len()) else { break };
                steps.remove(at);
                if !self.try_plan(plan) {
                    at += 1;
                }
            }
        }
    }

    /// Fewer processes: each has the number that it had, so only the last ones can go.
    fn reduce_processes(&mut self) {
        for kind in [ProcessName::Client, ProcessName::Brick, ProcessName::Peer, ProcessName::Redirector] {
            loop {
                let mut plan = self.best.clone();
                let many = count(&mut plan, kind(1));
                if *many <= 1 || self.is_named(kind(*many)) {
                    break;
                }
                *many -= 1;
                if !self.try_plan(plan) {
                    break;
                }
            }
        }
        for topology in [Topology::Direct, Topology::Peer] {
            let is_named = (1..=self.best.cluster.peers).any(|number| self.is_named(ProcessName::Peer(number)))
                || (1..=self.best.cluster.redirectors).any(|number| self.is_named(ProcessName::Redirector(number)));
            if topology < self.best.cluster.topology && !is_named {
                let mut plan = self.best.clone();
                let peers = if topology == Topology::Direct { 0 } else { plan.cluster.peers };
                (plan.cluster.topology, plan.cluster.peers, plan.cluster.redirectors) = (topology, peers, 0);
                self.try_plan(plan);
            }
        }
    }

    /// Whether an action is about a process, or about what a brick has.
    fn is_named(&self, place: ProcessName) -> bool {
        let (text, node) = match place {
            ProcessName::Brick(number) => (place.to_string(), Some(format!("{number}."))),
            _ => (place.to_string(), None),
        };
        self.best.actions.iter().any(|(_, action)| {
            let line = crate::scenario::print_action(action);
            let mut words = line.split_whitespace();
            words.any(|word| word == text || node.as_ref().is_some_and(|node| word.starts_with(&**node)))
        })
    }

    /// The first action comes at once.
    fn remove_initial_delay(&mut self) {
        let first = self.best.actions.iter().filter_map(|(at, _)| *at).min().unwrap_or_default();
        let mut plan = self.best.clone();
        for (at, _) in &mut plan.actions {
            *at = at.map(|at| at - first);
        }
        self.try_plan(plan);
    }
}

/// How many there are of a kind.
fn count(plan: &mut Plan, kind: ProcessName) -> &mut usize {
    match kind {
        ProcessName::Client(_) => &mut plan.cluster.clients,
        ProcessName::Brick(_) => &mut plan.cluster.bricks,
        ProcessName::Peer(_) => &mut plan.cluster.peers,
        ProcessName::Redirector(_) => &mut plan.cluster.redirectors,
        ProcessName::Meta | ProcessName::Admin => unreachable!("there is one {kind}, or none"),
    }
}

fn steps(action: &mut Action) -> Option<&mut Vec<crate::plan::Step>> {
    match action {
        Action::Do(
            _,
            Operation::Transact(steps) | Operation::Lock(steps) | Operation::Insist(steps) | Operation::Snapshot(steps),
        ) => Some(steps),
        _ => None,
    }
}
