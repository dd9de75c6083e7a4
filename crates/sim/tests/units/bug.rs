//! Bugs that can be planted.

use std::collections::BTreeSet;

use sim::bug::Bug;

#[test]
fn each_bug_is_found_by_its_name() {
    let names: BTreeSet<String> = Bug::all().map(|bug| format!("{bug:?}")).collect();
    assert_eq!(names.len(), Bug::all().count(), "two bugs have one name");
    assert!(Bug::all().all(|bug| Bug::find(&format!("{bug:?}")) == Some(bug)));
    assert_eq!(Bug::find("None"), None);
}
