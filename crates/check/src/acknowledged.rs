//! Every acknowledged change is in the final state, whatever crashed meanwhile (L1, C1, C4).

use std::collections::{BTreeMap, BTreeSet};

use super::exactly_once::lasting_effects;
use super::verdict::{Rule, Summary, Violation};
use crate::history::{History, Outcome};

/// Checks that nothing acknowledged was lost. `finals` has what each list is in the end, and of an object with a single
/// value all that it ever was; a key that it lacks has nothing. The summary counts acknowledged operations that left
/// something, and what they left.
///
/// # Errors
/// The first acknowledged operation of which something is missing.
pub fn check(history: &History, finals: &BTreeMap<String, Vec<i64>>) -> Result<Summary, Violation> {
    let present = finals.iter().flat_map(|(key, elements)| elements.iter().map(|element| (key.as_str(), *element)));
    let present: BTreeSet<(&str, i64)> = present.collect();
    let mut summary = Summary::default();
    for operation in history.operations.iter().filter(|operation| operation.outcome == Outcome::Ok) {
        if let Some((key, element)) = lasting_effects(operation).find(|mark| !present.contains(mark)) {
            let (number, returned) = (operation.number, operation.returned.unwrap_or_default());
            let why = format!("T{number} was acknowledged at {returned}; its {element} is not in {key} in the end");
            return Err(Violation::new(Rule::Lost, &[operation], why));
        }
        let left = lasting_effects(operation).count();
        summary.operations += usize::from(left > 0);
        summary.relations += left;
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use crate::Rule;
    use crate::serial::history;

    use super::*;

    fn finals(key: &str, elements: &[i64]) -> BTreeMap<String, Vec<i64>> {
        BTreeMap::from([(key.to_string(), elements.to_vec())])
    }

    #[test]
    fn what_is_unknown_or_failed_may_be_missing() {
        let history = history(
            r#"{"number":1,"client":1,"kind":"transaction","invoked":0,"returned":1,"outcome":"ok","steps":[["append","x",1]]}
               {"number":2,"client":2,"kind":"transaction","invoked":0,"outcome":"unknown","steps":[["append","x",2]]}
               {"number":3,"client":3,"kind":"locks","invoked":0,"returned":1,"outcome":"failed","steps":[["append","x",3]]}"#,
        );
        assert_eq!(check(&history, &finals("x", &[1])), Ok(Summary { operations: 1, relations: 1 }));
        assert_eq!(check(&history, &finals("x", &[2])).unwrap_err().rule, Rule::Lost);
        assert_eq!(check(&history, &BTreeMap::new()).unwrap_err().rule, Rule::Lost);
    }

    #[test]
    fn an_acknowledged_single_write_that_never_was_is_lost() {
        let history = history(
            r#"{"number":1,"client":1,"kind":"write","invoked":0,"returned":1,"outcome":"ok","steps":[["write","x",1]]}"#,
        );
        assert!(check(&history, &finals("x", &[1, 2])).is_ok());
        let violation = check(&history, &finals("x", &[2])).unwrap_err();
        assert_eq!(violation.why, ["T1 was acknowledged at 1; its 1 is not in x in the end"]);
    }
}
