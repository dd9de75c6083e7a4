//! Every transaction that reads all accounts reads the same total, regardless of concurrent transfers (V1 to V4, C1,
//! P1); the final state has this total, too.
//!
//! Transfers are transactions that write new balances to some accounts. They need not be unique: only sums are judged.

use std::collections::BTreeMap;

use super::verdict::{Rule, Summary, Violation};
use crate::history::{History, Kind, Operation, Outcome, Step, Value};

/// Checks the sums. `finals` names all accounts, with their balances in the end. The summary counts the transactions
/// that read all of them, and the balances that they read.
///
/// # Errors
/// A transaction that read another total, or the end if it has another.
pub fn check(history: &History, total: i64, finals: &BTreeMap<String, i64>) -> Result<Summary, Violation> {
    let mut summary = Summary::default();
    let transactions = history.operations.iter().filter(|operation| {
        let in_transaction = operation.is_strict() || operation.kind == Kind::Snapshot;
        in_transaction && operation.outcome == Outcome::Ok
    });
    for operation in transactions {
        let found = balances_found(operation);
        let balances = finals.keys().map(|account| found.get(account.as_str()).map(|balance| i128::from(*balance)));
        // None if an account was not read.
        let Some(sum) = balances.sum::<Option<i128>>().filter(|_| !finals.is_empty()) else { continue };
        if sum != i128::from(total) {
            let why = format!("T{} read balances of {sum} in all, not {total}", operation.number);
            return Err(Violation::new(Rule::Total, &[operation], why));
        }
        summary.operations += 1;
        summary.relations += finals.len();
    }
    let sum: i128 = finals.values().map(|balance| i128::from(*balance)).sum();
    if !finals.is_empty() && sum != i128::from(total) {
        return Err(Violation::new(
            Rule::Total,
            &[],
            format!("in the end, the balances are {sum} in all, not {total}"),
        ));
    }
    Ok(summary)
}

/// The balances that a transaction found: of each account what it read first, unless it had written before.
fn balances_found(operation: &Operation) -> BTreeMap<&str, i64> {
    let mut found: BTreeMap<&str, Option<i64>> = BTreeMap::new();
    for step in &operation.steps {
        let balance = match step {
            Step::Read(_, Value::Integer(balance)) => Some(*balance),
            Step::Read(_, Value::Nothing) => Some(0),
            Step::Read(_, Value::List(_)) | Step::Append(..) | Step::Write(..) => None,
        };
        found.entry(step.key()).or_insert(balance);
    }
    found.into_iter().filter_map(|(account, balance)| Some((account, balance?))).collect()
}

#[cfg(test)]
mod tests {
    use crate::serial::history;

    use super::*;

    fn finals() -> BTreeMap<String, i64> {
        BTreeMap::from([("a".to_string(), 4), ("b".to_string(), 6)])
    }

    const TRANSFERS: &str = r#"
        {"number":1,"client":1,"kind":"transaction","invoked":0,"returned":1,"outcome":"ok","steps":[["read","a",5],["write","a",4],["read","a",4],["read","b",5],["write","b",6]]}
        {"number":2,"client":2,"kind":"snapshot","invoked":0,"returned":1,"outcome":"ok","steps":[["read","a",5],["read","b",5]]}
        {"number":3,"client":3,"kind":"transaction","invoked":0,"returned":1,"outcome":"failed","steps":[["read","a",4],["read","b",5]]}
        {"number":4,"client":4,"kind":"read_only","invoked":0,"returned":1,"outcome":"ok","steps":[["read","a",4]]}
    "#;

    #[test]
    fn what_a_transaction_finds_adds_up_before_its_own_writes() {
        assert_eq!(check(&history(TRANSFERS), 10, &finals()), Ok(Summary { operations: 2, relations: 4 }));
    }

    #[test]
    fn a_total_that_was_never_there_is_noticed() {
        let skewed = TRANSFERS.replace(r#"[["read","a",5],["read","b",5]]"#, r#"[["read","a",4],["read","b",5]]"#);
        let violation = check(&history(&skewed), 10, &finals()).unwrap_err();
        assert_eq!((violation.rule, violation.operations[0].number), (Rule::Total, 2));
        let missing = TRANSFERS.replace(r#"[["read","a",5],["read","b",5]]"#, r#"[["read","a",4],["read","b",null]]"#);
        assert_eq!(check(&history(&missing), 10, &finals()).unwrap_err().rule, Rule::Total);
    }

    #[test]
    fn accounts_that_do_not_add_up_in_the_end_are_noticed() {
        let mut finals = finals();
        finals.insert("b".to_string(), 5);
        assert_eq!(check(&history(TRANSFERS), 10, &finals).unwrap_err().operations, []);
    }
}
