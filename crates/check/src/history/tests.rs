use super::*;

const EXAMPLE: &str = r#"{"number":1,"client":1,"kind":"transaction","invoked":100,"returned":104,"outcome":"ok","steps":[["read","b1.3",[3,17]],["append","b1.3",18],["read","b2.1",null]],"at":7340032}
{"number":2,"client":2,"kind":"write","invoked":101,"outcome":"unknown","steps":[["write","k",5]]}
{"number":3,"client":1,"kind":"snapshot","invoked":105,"returned":105,"outcome":"ok","steps":[["read","b1.3",[3]]],"as_of":50}
"#;

fn read_error(text: &str) -> String {
    History::read(text.as_bytes()).unwrap_err().to_string()
}

/// The first line of the example, with one thing replaced.
fn line_with(old: &str, new: &str) -> String {
    let line = EXAMPLE.lines().next().unwrap();
    assert!(line.contains(old), "{old} is not in {line}");
    line.replace(old, new)
}

#[test]
fn a_history_is_written_as_it_was_read() {
    let history = History::read(EXAMPLE.as_bytes()).unwrap();
    let mut first = Operation::begin(1, 1, Kind::Transaction, 100);
    first.steps = vec![Step::read_list("b1.3", [3, 17]), Step::append("b1.3", 18), Step::read("b2.1", None)];
    first.finish(Outcome::Ok, 104);
    first.at = Some(7_340_032);
    assert_eq!(history.operations[0], first);
    let mut written = Vec::new();
    history.write(&mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), EXAMPLE);
}

#[test]
fn the_example_of_the_documentation_can_be_read() {
    let text = include_str!("../../../../docs/history.md");
    let example: String = text.lines().filter(|line| line.starts_with("{\"")).map(|line| format!("{line}\n")).collect();
    let history = History::read(example.as_bytes()).unwrap();
    assert_eq!(history.operations.len(), 7);
    let mut written = Vec::new();
    history.write(&mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), example);
}

#[test]
fn empty_lines_are_passed_over_and_counted() {
    let text = format!("\n{EXAMPLE}\n\n");
    assert_eq!(History::read(text.as_bytes()).unwrap().operations.len(), 3);
    assert!(read_error("\n\n{").starts_with("line 3 of the history: EOF"), "{}", read_error("\n\n{"));
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    for (old, new, says) in [
        ("\"at\":", "\"When\":", "unknown field `When`"),
        ("\"append\"", "\"prepend\"", "unknown variant `prepend`"),
        ("\"append\",\"b1.3\",18", "\"append\",\"b1.3\",[18]", "what is appended or written is an integer"),
        ("[3,17]", "\"3\"", "a value is null, an integer or a list of integers"),
        ("[3,17]]", "[3,17],4]", "column"),
        ("\"client\":1,", "", "missing field `client`"),
        ("\"returned\":104,", "", "a time at which it returned"),
        ("\"returned\":104", "\"returned\":99", "returned before it was invoked"),
        ("b2.1", "", "a key has 1 to 64 bytes, not 0"),
        ("transaction", "read_only", "may only read"),
        ("transaction", "read", "more than one read"),
        ("transaction", "write", "is not one write"),
    ] {
        let message = read_error(&line_with(old, new));
        assert!(message.starts_with("line 1 of the history: "), "{message}");
        assert!(message.contains(says), "{message} does not say: {says}");
    }
}

#[test]
fn a_line_beyond_the_limit_is_refused_unread() {
    let text = format!("{}\n{}\n", line_with("[3,17]", "[]"), " ".repeat(LINE_LIMIT));
    assert_eq!(read_error(&text), format!("line 2 of the history: longer than {LINE_LIMIT} bytes"));
}

#[test]
fn a_client_that_does_two_things_at_a_time_is_refused() {
    let second = line_with("\"number\":1", "\"number\":2").replace("\"invoked\":100", "\"invoked\":103");
    let text = format!("{}\n{second}\n", line_with("[3,17]", "[]"));
    assert_eq!(read_error(&text), "the history: client 1 began operation 2 before 1 had returned");
}

#[test]
fn a_number_that_is_there_twice_is_refused() {
    let text = format!("{EXAMPLE}{}", line_with("\"client\":1", "\"client\":9"));
    assert_eq!(read_error(&text), "the history: operation 1 is there twice");
}

/// The steps of operations that insert members in a set, replace them and read it.
fn split(operations: &[(u64, &[Step])]) -> Vec<Vec<Step>> {
    let operation = |(number, steps): &(u64, &[Step])| {
        let mut operation = Operation::begin(*number, 1, Kind::Transaction, 0);
        operation.steps = steps.to_vec();
        operation
    };
    let mut history = History { operations: operations.iter().map(operation).collect() };
    history.split_sets();
    history.operations.into_iter().map(|operation| operation.steps).collect()
}

#[test]
fn who_does_not_find_a_member_but_what_has_replaced_it_has_read_both() {
    let set = "1.1.1000";
    let replace = |member: i64, by: i64| vec![Step::append(set, by), Step::append(format!("{set}/{member}"), by)];
    // 5 has replaced 9, which was inserted after it had begun, and 7 has replaced 5. What 6 tried did not happen.
    let (first, second, failed) = (replace(9, 5), replace(5, 7), replace(9, 6));
    let read = |members: &[i64]| [Step::read_list(set, members)];
    let reads = [read(&[9]), read(&[5]), read(&[7]), read(&[])];
    let insert = [Step::append(set, 9)];
    let mut operations: Vec<(u64, &[Step])> = vec![(9, &insert), (5, &first), (6, &failed), (7, &second)];
    operations.extend(reads.iter().map(|steps| (10, &steps[..])));
    let split = split(&operations);
    let found = |at: usize| -> Vec<Vec<i64>> {
        let list = |step: &Step| match step {
            Step::Read(_, value) => value.list().unwrap().to_vec(),
            other => panic!("{other:?} is no read"),
        };
        split[4 + at].iter().map(list).collect()
    };
    // Of the members 5, 6, 7 and 9.
    assert_eq!(found(0), [vec![], vec![], vec![], vec![9]]);
    assert_eq!(found(1), [vec![5], vec![], vec![], vec![9, 5]]);
    assert_eq!(found(2), [vec![5, 7], vec![], vec![7], vec![9, 5]]);
    assert_eq!(found(3), vec![Vec::<i64>::new(); 4]);
}
