//! Mistakes that tests plant in this crate, to show that a test notices each of them.
//!
//! Outside of tests [`planted`] is the constant `false`.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A query leaves out objects of classes that extend its class.
    SubclassesLeftOut,
    /// A decimal literal is compared with a float64 as a decimal.
    LiteralKeepsType,
    /// The filter of bricks treats a field with a default as null where a record lacks it.
    DefaultHiddenFromBricks,
    /// An index range leaves out the null entries of records whose default satisfies the test.
    DefaultMissingInIndex,
    /// An index that does not have all objects yet is used.
    UnreadyIndexUsed,
    /// Bricks are asked for as many candidates as `limit` says, without those to be skipped.
    SkipForgottenInLimit,
    /// A key with a truncated component has no checksum.
    CutKeysCollide,
    /// An index entry with a null counts as a duplicate of others.
    NullIsDuplicate,
    /// A comparison with null is true.
    NullComparesTrue,
    /// A candidate whose referenced object is not at hand is dropped instead of set aside.
    MissingReferenceDropsCandidate,
    /// Nulls come first in every order.
    NullsAlwaysFirst,
    /// Aggregates include nulls.
    AggregatesCountNulls,
    /// A record that is rewritten loses the fields that are newer than the schema.
    NewerFieldDropped,
}

/// Whether a mistake is planted: never, outside of tests.
#[cfg(not(test))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
pub(crate) use tests::planted;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic;

    use super::Bug;
    use crate::{check, key, plan, run, schema};

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this thread has planted a mistake.
    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    impl Bug {
        const ALL: [Self; 13] = [
            Self::SubclassesLeftOut,
            Self::LiteralKeepsType,
            Self::DefaultHiddenFromBricks,
            Self::DefaultMissingInIndex,
            Self::UnreadyIndexUsed,
            Self::SkipForgottenInLimit,
            Self::CutKeysCollide,
            Self::NullIsDuplicate,
            Self::NullComparesTrue,
            Self::MissingReferenceDropsCandidate,
            Self::NullsAlwaysFirst,
            Self::AggregatesCountNulls,
            Self::NewerFieldDropped,
        ];

        /// The test that notices the mistake.
        fn noticed_by(self) -> fn() {
            match self {
                Self::SubclassesLeftOut => check::tests::only_a_class_or_its_family_is_asked_for,
                Self::LiteralKeepsType => check::tests::literals_become_what_they_meet,
                Self::DefaultHiddenFromBricks => {
                    plan::tests::records_that_lack_a_field_are_let_through_if_its_default_passes
                }
                Self::DefaultMissingInIndex => plan::tests::the_index_that_says_most_is_taken,
                Self::UnreadyIndexUsed => plan::tests::an_index_must_be_ready_and_have_all_objects_of_the_class,
                Self::SkipForgottenInLimit => plan::tests::what_is_enough_is_known_if_any_will_do,
                Self::CutKeysCollide => key::tests::long_values_are_cut_and_still_told_apart,
                Self::NullIsDuplicate => key::tests::nulls_are_noted,
                Self::NullComparesTrue => run::tests::nulls_count_as_the_decision_says,
                Self::MissingReferenceDropsCandidate => {
                    run::tests::paths_follow_references_and_end_at_what_is_not_there
                }
                Self::NullsAlwaysFirst => run::tests::order_and_page,
                Self::AggregatesCountNulls => run::tests::aggregates_leave_nulls_out,
                Self::NewerFieldDropped => schema::upgrade::tests::a_field_that_is_younger_than_the_schema_is_kept,
            }
        }
    }

    #[test]
    fn each_planted_mistake_is_noticed() {
        for bug in Bug::ALL {
            let test = bug.noticed_by();
            test();
            PLANTED.set(Some(bug));
            let outcome = panic::catch_unwind(test);
            PLANTED.set(None);
            assert!(outcome.is_err(), "{bug:?} is not noticed");
        }
    }
}
