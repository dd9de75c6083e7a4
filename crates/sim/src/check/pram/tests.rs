use crate::check::serial::Dice;

use super::*;

/// One operation a line: `3 c1 x:5` wrote 5, `3 c1 x=5` read 5, `x=-` read nothing. `?` at the end: unknown; `!`: failed.
fn history(text: &str) -> History {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let operations = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (number, client) = (words[0].parse().unwrap(), words[1][1..].parse().unwrap());
        let (what, outcome) = match words[2].strip_suffix(['?', '!']) {
            Some(what) if words[2].ends_with('?') => (what, Outcome::Unknown),
            Some(what) => (what, Outcome::Failed),
            None => (words[2], Outcome::Ok),
        };
        let (kind, step) = match what.split_once(':') {
            Some((key, value)) => (Kind::Write, Step::write(key, value.parse().unwrap())),
            None => (Kind::Read, what.split_once('=').map(|(key, value)| Step::read(key, value.parse().ok())).unwrap()),
        };
        let mut operation = Operation::invoked(number, client, kind, number);
        operation.returned(outcome, number);
        operation.steps.push(step);
        operation
    });
    let history = History { operations: operations.collect() };
    history.validate().unwrap();
    history
}

fn orders(orders: &[(&str, &[i64])]) -> BTreeMap<String, Vec<i64>> {
    orders.iter().map(|(key, order)| (key.to_string(), order.to_vec())).collect()
}

fn right(text: &str, given: &[(&str, &[i64])]) -> Summary {
    check(&history(text), &orders(given)).unwrap_or_else(|violation| panic!("{violation}"))
}

fn wrong(text: &str, given: &[(&str, &[i64])]) -> (Rule, Vec<u64>) {
    let violation = check(&history(text), &orders(given)).expect_err("nothing was noticed");
    (violation.rule, violation.operations.iter().map(|operation| operation.number).collect())
}

#[test]
fn an_old_state_is_right_as_long_as_nothing_newer_was_seen() {
    let text = "1 c1 x:1
                2 c1 y:2
                3 c1 x:3
                4 c2 x=-
                5 c2 y=-
                6 c2 x=1
                7 c2 y=2
                8 c2 x=1
                9 c2 x=3";
    assert_eq!(right(text, &[]), Summary { operations: 6, relations: 2 });
    right(text, &[("x", &[1, 3]), ("y", &[2])]);
}

#[test]
fn writes_seen_in_another_order_than_made_are_noticed() {
    let text = "1 c1 x:1
                2 c1 x:2
                3 c1 y:3
                4 c2 y=3
                5 c2 x=1";
    assert_eq!(wrong(text, &[]), (Rule::Backwards, vec![1, 2, 3, 5]));
    assert_eq!(wrong(text, &[("x", &[1, 2]), ("y", &[3])]), (Rule::Backwards, vec![1, 2, 3, 5]));
    assert_eq!(wrong(&text.replace("x=1", "x=-"), &[]), (Rule::Backwards, vec![2, 3, 5]));
    right(&text.replace("x=1", "x=2"), &[]);
}

#[test]
fn what_a_third_wrote_in_between_is_right() {
    let text = "1 c1 x:1
                2 c3 x:2
                3 c1 y:3
                4 c2 y=3
                5 c2 x=2";
    right(text, &[]);
    right(text, &[("x", &[1, 2])]);
    // Unless it is known to have been replaced.
    assert_eq!(wrong(text, &[("x", &[2, 1])]), (Rule::Backwards, vec![2, 1, 3, 5]));
}

#[test]
fn what_a_write_replaced_is_seen_with_it() {
    // c4 never sees y = 2, but what replaced it.
    let text = "1 c1 x:1
                2 c1 y:2
                3 c3 y:3
                4 c4 y=3
                5 c4 x=-";
    right(text, &[]);
    assert_eq!(wrong(text, &[("y", &[2, 3])]), (Rule::Backwards, vec![1, 3, 5]));
    right(text, &[("y", &[3, 2])]);
}

#[test]
fn two_readers_may_see_two_writers_in_two_orders() {
    right(
        "1 c1 x:1
         2 c2 y:2
         3 c3 x=1
         4 c3 y=-
         5 c4 y=2
         6 c4 x=-",
        &[("x", &[1]), ("y", &[2])],
    );
}

#[test]
fn a_client_sees_its_own_writes() {
    assert_eq!(wrong("1 c1 x:1\n2 c1 x=-", &[]), (Rule::Backwards, vec![1, 2]));
    assert_eq!(wrong("1 c1 x:1\n2 c1 x:2\n3 c1 x=1", &[]), (Rule::Backwards, vec![1, 2, 3]));
    let text = "1 c2 x:1\n2 c1 x:2\n3 c1 x=1";
    right(text, &[]);
    right(text, &[("x", &[2, 1])]);
    assert_eq!(wrong(text, &[("x", &[1, 2])]), (Rule::Backwards, vec![1, 2, 3]));
}

#[test]
fn an_object_that_goes_back_is_noticed() {
    let text = "1 c1 x:1\n2 c2 x:2\n3 c3 x=1\n4 c3 x=2\n5 c3 x=1";
    assert_eq!(wrong(text, &[]), (Rule::Backwards, vec![1, 2, 5]));
    assert_eq!(wrong(text, &[("x", &[1, 2])]), (Rule::Backwards, vec![1, 2, 5]));
    assert_eq!(wrong(text, &[("x", &[2, 1])]), (Rule::Backwards, vec![2, 1, 4]));
}

#[test]
fn what_is_unknown_may_come_later_or_never() {
    let text = "1 c1 x:1?
                2 c1 y:2
                3 c2 y=2
                4 c2 x=-
                5 c2 x=1";
    right(text, &[]);
    right(text, &[("x", &[1])]);
    // Also its own client cannot rely on it.
    right("1 c1 x:1\n2 c1 x:2?\n3 c1 x=1\n4 c1 x=2", &[]);
    right("1 c1 x:1?\n2 c1 x:2\n3 c2 x=2\n4 c2 x=1", &[("x", &[2, 1])]);
}

#[test]
fn what_never_was_and_is_read_is_noticed() {
    assert_eq!(wrong("1 c1 x:1!\n2 c2 x=1", &[]), (Rule::G1a, vec![1, 2]));
    assert_eq!(wrong("1 c1 x:1!", &[("x", &[1])]), (Rule::G1a, vec![1]));
    assert_eq!(wrong("1 c1 x:1\n2 c2 x=7", &[]), (Rule::Phantom, vec![2]));
    assert_eq!(wrong("1 c1 x:1?\n2 c2 x=1", &[("x", &[])]), (Rule::Phantom, vec![1, 2]));
    assert_eq!(wrong("1 c1 x:1\n2 c2 x:1", &[]), (Rule::Malformed, vec![1, 2]));
}

/// Clients that each apply one log of writes at a pace of their own: they see its order, and their own writes at once. With
/// the log as the order of each object.
fn execution(seed: u64) -> (History, BTreeMap<String, Vec<i64>>) {
    let mut dice = Dice(seed);
    let mut log: Vec<(String, i64)> = Vec::new();
    let mut applied = [0; 4];
    let (mut history, mut orders) = (History::default(), BTreeMap::<String, Vec<i64>>::new());
    for number in 1..=80 {
        let client = dice.roll(4) as usize;
        let key = format!("k{}", dice.roll(3));
        let is_write = dice.roll(3) == 0;
        let kind = if is_write { Kind::Write } else { Kind::Read };
        let mut operation = Operation::invoked(number, client as u64, kind, number);
        if is_write {
            let happens = dice.roll(10);
            operation.returned([Outcome::Failed, Outcome::Unknown, Outcome::Ok][happens.min(2) as usize], number);
            if happens == 9 {
                operation.outcome = Outcome::Unknown;
            }
            if happens > 1 {
                log.push((key.clone(), number as i64));
                orders.entry(key.clone()).or_default().push(number as i64);
            }
            if operation.outcome == Outcome::Ok {
                applied[client] = log.len();
            }
            operation.steps.push(Step::write(key, number as i64));
        } else {
            applied[client] += dice.roll((log.len() - applied[client] + 1) as u64) as usize;
            let value = log[..applied[client]].iter().rev().find(|(other, _)| *other == key).map(|(_, value)| *value);
            operation.returned(Outcome::Ok, number);
            operation.steps.push(Step::read(key, value));
        }
        history.operations.push(operation);
    }
    (history, orders)
}

#[test]
fn whoever_follows_one_log_is_right_and_going_back_is_mostly_noticed() {
    let (mut tried, mut noticed) = (0, 0);
    for seed in 0..500 {
        let (mut history, orders) = execution(seed);
        for orders in [&orders, &BTreeMap::new()] {
            let summary = check(&history, orders).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
            assert!(summary.operations > 20, "{summary:?}");
        }
        // One read gets the value before.
        let mut dice = Dice(seed + 1);
        let reads: Vec<(usize, String, i64)> = (history.operations.iter().enumerate())
            .filter_map(|(at, operation)| match operation.steps.first() {
                Some(Step::Read(key, Value::Integer(value))) => Some((at, key.clone(), *value)),
                _ => None,
            })
            .collect();
        let (at, key, value) = reads[dice.roll(reads.len() as u64) as usize].clone();
        let position = orders[&key].iter().position(|other| *other == value).unwrap();
        let before = position.checked_sub(1).map(|position| orders[&key][position]);
        history.operations[at].steps = vec![Step::read(key, before)];
        tried += 1;
        noticed += usize::from(check(&history, &orders).is_err());
    }
    // What is not noticed was the first that this client saw of the value.
    assert!(noticed * 2 > tried, "{noticed} of {tried}");
}
