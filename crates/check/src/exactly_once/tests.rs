use crate::serial::{ExecutionShape, execution, transactions};

use super::*;

const TEXT: &str = "T1 c1 0-5  x+1 y+2
                    T2 c2 0-5? x+3 y+4
                    T3 c3 0-5! x+5
                    R4 c1 6-7  x=[1]";

fn finals(x: &[i64], y: &[i64]) -> BTreeMap<String, Vec<i64>> {
    BTreeMap::from([("x".to_string(), x.to_vec()), ("y".to_string(), y.to_vec())])
}

fn wrong(x: &[i64], y: &[i64]) -> Rule {
    check(&transactions(TEXT), &finals(x, y)).expect_err("nothing was noticed").rule
}

#[test]
fn what_is_unknown_is_there_or_not() {
    let history = transactions(TEXT);
    assert_eq!(check(&history, &finals(&[1], &[2])), Ok(Summary { operations: 2, relations: 2 }));
    assert_eq!(check(&history, &finals(&[3, 1], &[2, 4])), Ok(Summary { operations: 2, relations: 4 }));
}

#[test]
fn what_is_there_twice_in_the_end_is_noticed() {
    assert_eq!(wrong(&[1, 1], &[2]), Rule::Duplicate);
    assert_eq!(wrong(&[3, 1, 3], &[2, 4]), Rule::Duplicate);
}

#[test]
fn half_a_transaction_is_noticed() {
    assert_eq!(wrong(&[1, 3], &[2]), Rule::Torn);
    assert_eq!(wrong(&[1], &[]), Rule::Torn);
}

#[test]
fn what_is_not_as_its_client_was_told_is_noticed() {
    assert_eq!(wrong(&[], &[]), Rule::Lost);
    assert_eq!(wrong(&[1, 5], &[2]), Rule::G1a);
    assert_eq!(wrong(&[1, 6], &[2]), Rule::Phantom);
}

#[test]
fn what_anybody_read_twice_is_noticed_even_if_the_end_is_right() {
    let text = TEXT.replace("R4 c1 6-7  x=[1]", "T4 c1 6-7! x=[1,1]");
    let violation = check(&transactions(&text), &finals(&[1], &[2])).unwrap_err();
    assert_eq!(violation.rule, Rule::Duplicate);
    assert_eq!(violation.operations.iter().map(|operation| operation.number).collect::<Vec<_>>(), [1, 4]);
}

#[test]
fn single_writes_happen_once_too() {
    let text = r#"{"number":1,"client":1,"kind":"write","invoked":0,"outcome":"unknown","steps":[["write","x",1]]}"#;
    let history = crate::serial::history(text);
    assert!(check(&history, &finals(&[1], &[])).is_ok());
    assert!(check(&history, &finals(&[], &[])).is_ok());
    assert_eq!(check(&history, &finals(&[1, 1], &[])).unwrap_err().rule, Rule::Duplicate);
}

#[test]
fn one_after_the_other_is_right_and_any_change_of_the_end_is_noticed() {
    for seed in 0..200 {
        let (history, finals) =
            execution(seed, ExecutionShape { transactions: 60, clients: 5, keys: 4, snapshots: None });
        check(&history, &finals).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        crate::acknowledged::check(&history, &finals).unwrap();
        for (key, list) in &finals {
            let mut twice = finals.clone();
            twice.get_mut(key).unwrap().extend(list.first());
            assert_eq!(check(&history, &twice).is_err(), !list.is_empty(), "seed {seed}");
        }
    }
}
