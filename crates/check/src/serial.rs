//! Histories for the tests of the checkers: written by hand, and of executions that are right because one transaction
//! happens after the other.

use std::collections::BTreeMap;

use crate::history::{History, Kind, Operation, Outcome, Step, Value};

/// A history as text, which may be indented.
pub(super) fn history(text: &str) -> History {
    History::read(text.as_bytes()).unwrap()
}

/// Transactions, one a line, for what matters in them: `T1 c1 0-5 x+1 y=[] z=[1,2]`. The letter before the number is
/// the kind (`T`ransaction, `L`ocks, `R`ead only, `S`napshot), what follows is the client, when it was invoked and when
/// it returned, and the steps. `0-5?` is unknown, `0-5!` failed.
pub(super) fn transactions(text: &str) -> History {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let history = History { operations: lines.map(transaction).collect() };
    history.validate().unwrap();
    history
}

fn transaction(line: &str) -> Operation {
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap();
    let (name, client, times) = (word(), word(), word());
    let kind = match &name[..1] {
        "T" => Kind::Transaction,
        "L" => Kind::Locks,
        "R" => Kind::ReadOnly,
        "S" => Kind::Snapshot,
        _ => panic!("{line}"),
    };
    let (invoked, returned) = times.split_once('-').unwrap();
    let outcome = match &returned[returned.len() - 1..] {
        "?" => Outcome::Unknown,
        "!" => Outcome::Failed,
        _ => Outcome::Ok,
    };
    let (number, client) = (name[1..].parse().unwrap(), client[1..].parse().unwrap());
    let mut operation = Operation::begin(number, client, kind, invoked.parse().unwrap());
    operation.finish(outcome, returned.trim_end_matches(['?', '!']).parse().unwrap());
    operation.steps = words.map(step).collect();
    operation
}

fn step(word: &str) -> Step {
    match (word.split_once('+'), word.split_once('=')) {
        (Some((key, element)), None) => Step::append(key, element.parse().unwrap()),
        (None, Some((key, elements))) => Step::read_list(key, serde_json::from_str::<Vec<i64>>(elements).unwrap()),
        _ => panic!("{word}"),
    }
}

/// Numbers that look random and are the same in every run: splitmix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below a limit.
    pub(super) fn roll(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// What a run is like.
#[derive(Clone, Copy)]
pub(super) struct ExecutionShape {
    pub(super) transactions: u64,
    pub(super) clients: u64,
    pub(super) keys: u64,
    /// How many milliseconds old a snapshot may be, if there are snapshots.
    pub(super) snapshots: Option<u64>,
}

/// An execution of one transaction after the other, and what the lists are in the end. Each happens at a moment between
/// its invocation and its return; some fail, and of some the client does not learn whether they happened.
pub(super) fn execution(seed: u64, shape: ExecutionShape) -> (History, BTreeMap<String, Vec<i64>>) {
    let mut dice = Dice(seed);
    let mut states: Vec<(u64, BTreeMap<String, Vec<i64>>)> = vec![(0, BTreeMap::new())];
    // For each client: when it is free, and at which state its session is.
    let mut free = vec![(0, 0); shape.clients as usize];
    let mut history = History::default();
    let mut now = 10;
    for number in 1..=shape.transactions {
        now += dice.roll(4);
        let client = dice.roll(shape.clients);
        let (free_at, session) = free[client as usize];
        now = now.max(free_at);
        let invoked = free_at.max(now - dice.roll(10));
        let kinds = [Kind::Transaction, Kind::Transaction, Kind::Locks, Kind::ReadOnly, Kind::Snapshot];
        let kind = kinds[dice.roll(if shape.snapshots.is_some() { 5 } else { 4 }) as usize];
        let mut operation = Operation::begin(number, client, kind, invoked);
        let newest = states.len() - 1;
        let mut seen = newest;
        if let (Kind::Snapshot, Some(bound)) = (kind, shape.snapshots) {
            // Whatever had happened before `invoked - bound` is in it.
            let oldest = states.partition_point(|(time, _)| *time + bound < invoked).saturating_sub(1).max(session);
            seen = oldest + dice.roll((newest - oldest + 1) as u64) as usize;
            operation.as_of = Some(bound);
        }
        let mut state = states[seen].1.clone();
        for at in 0..=dice.roll(4) {
            let key = format!("k{}", dice.roll(shape.keys));
            let list = state.entry(key.clone()).or_default();
            if matches!(kind, Kind::ReadOnly | Kind::Snapshot) || dice.roll(2) == 0 {
                operation.steps.push(Step::read_list(key, list.clone()));
            } else {
                let element = (number * 10 + at) as i64;
                list.push(element);
                operation.steps.push(Step::append(key, element));
            }
        }
        let fate = if operation.appends().next().is_some() { dice.roll(20) } else { 20 };
        let returned = now + dice.roll(10);
        operation.finish([Outcome::Failed, Outcome::Unknown, Outcome::Unknown][fate.min(2) as usize], returned);
        if fate > 2 {
            operation.outcome = Outcome::Ok;
        }
        // One that is unknown happens in half of the cases, and only what is ok moves the session on.
        if fate >= 2 && kind != Kind::Snapshot {
            if shape.snapshots.is_none() {
                states.clear();
            }
            states.push((now, state));
            seen = states.len() - 1;
        }
        let session = if operation.outcome == Outcome::Ok { seen.max(session) } else { session };
        free[client as usize] = (returned, session);
        history.operations.push(operation);
    }
    history.validate().unwrap();
    let finals = states.pop().unwrap().1;
    (history, finals)
}

/// Removes the last element of what an acknowledged transaction read, or puts another in its place. None if nothing was
/// read.
pub(super) fn damage_history(history: &History, seed: u64) -> Option<History> {
    let mut dice = Dice(seed);
    let mut history = history.clone();
    let ok = history.operations.iter_mut().filter(|operation| operation.outcome == Outcome::Ok);
    let mut lists: Vec<&mut Vec<i64>> = ok
        .flat_map(|operation| &mut operation.steps)
        .filter_map(|step| match step {
            Step::Read(_, Value::List(list)) if !list.is_empty() => Some(list),
            _ => None,
        })
        .collect();
    if lists.is_empty() {
        return None;
    }
    let at = dice.roll(lists.len() as u64) as usize;
    let list = &mut *lists[at];
    if list.len() > 1 && dice.roll(2) == 0 {
        let last = list.len() - 1;
        list.swap(last - 1, last);
    } else {
        list.pop();
    }
    Some(history)
}

/// Whether some order explains all that was read: by trying all. Each client's operations stay in their order, and one
/// comes before another where `in_time` says so. What is unknown may have happened, what failed has not.
pub(super) fn is_serializable(history: &History, in_time: impl Fn(&Operation, &Operation) -> bool) -> bool {
    let operations = history.operations.iter().filter(|operation| operation.outcome != Outcome::Failed);
    let before = |one: &Operation, other: &Operation| {
        let in_session = one.client == other.client && one.number < other.number && one.outcome == Outcome::Ok;
        in_session || in_time(one, other)
    };
    explains(&mut operations.collect(), &BTreeMap::new(), &before)
}

fn explains(
    left: &mut Vec<&Operation>,
    state: &BTreeMap<String, Vec<i64>>,
    before: &impl Fn(&Operation, &Operation) -> bool,
) -> bool {
    if left.iter().all(|operation| operation.outcome == Outcome::Unknown) {
        return true;
    }
    for at in 0..left.len() {
        let next = left.remove(at);
        let is_next = !left.iter().any(|other| before(other, next));
        let after = is_next.then(|| apply(next, state.clone())).flatten();
        if after.is_some_and(|state| explains(left, &state, before)) {
            return true;
        }
        left.insert(at, next);
    }
    false
}

/// The state after an operation, if that saw what was there.
fn apply(operation: &Operation, mut state: BTreeMap<String, Vec<i64>>) -> Option<BTreeMap<String, Vec<i64>>> {
    for step in &operation.steps {
        let list = state.entry(step.key().to_string()).or_default();
        match step {
            Step::Append(_, element) => list.push(*element),
            Step::Read(_, value) if value.list() != Some(list.as_slice()) => return None,
            Step::Read(..) | Step::Write(..) => (),
        }
    }
    Some(state)
}
