//! Bugs that can be planted in queries, and the test that notices each.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in queries.
    pub enum Bug {
        SubclassesLeftOut "a query leaves out objects of classes that extend its class"
        LiteralKeepsType "a decimal literal is compared with a float64 as a decimal"
        DefaultHiddenFromBricks "the filter of bricks treats a field with a default as null where a record lacks it"
        DefaultMissingInIndex "an index range leaves out the null entries of records whose default satisfies the test"
        UnreadyIndexUsed "an index that is still being built is used"
        SkipForgottenInLimit "bricks are asked for only `limit` candidates, without those to be skipped"
        CutKeysCollide "a key with a truncated component has no checksum"
        NullIsDuplicate "an index entry with a null counts as a duplicate of others"
        NullComparesTrue "a comparison with null is true"
        MissingReferenceDropsCandidate "a candidate whose referenced object is not at hand is dropped instead of set aside"
        NullsAlwaysFirst "nulls come first in every order"
        AggregatesCountNulls "aggregates include nulls"
        NewerFieldDropped "a record that is rewritten loses the fields that are newer than the schema"
        RemovedFieldRewritten "a record that is rewritten keeps the fields that its class has lost"
        DefaultNotRewritten "a record that is rewritten does not get the defaults of the fields that it lacks"
        RemovedTakenForNewer "the last field that a class got counts as newer than the schema when it was removed"
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::{PlantedBug, assert_noticed};

    use super::Bug;
    use crate::{check, key, plan, run, schema};

    impl Bug {
        /// The test that notices the bug.
        fn noticing_test(self) -> fn() {
            match self {
                Self::SubclassesLeftOut => check::tests::only_a_class_or_its_family_is_asked_for,
                Self::LiteralKeepsType => check::tests::literals_take_the_type_of_the_other_side,
                Self::DefaultHiddenFromBricks => {
                    plan::tests::records_that_lack_a_field_are_let_through_if_its_default_passes
                }
                Self::DefaultMissingInIndex => plan::tests::the_index_that_says_most_is_taken,
                Self::UnreadyIndexUsed => plan::tests::an_index_must_be_ready_and_have_all_objects_of_the_class,
                Self::SkipForgottenInLimit => plan::tests::limit_without_an_order_bounds_the_candidates,
                Self::CutKeysCollide => key::tests::long_values_are_cut_and_still_told_apart,
                Self::NullIsDuplicate => key::tests::nulls_are_noted,
                Self::NullComparesTrue => run::tests::nulls_count_as_the_decision_says,
                Self::MissingReferenceDropsCandidate => {
                    run::tests::paths_follow_references_and_are_null_at_missing_objects
                }
                Self::NullsAlwaysFirst => run::tests::order_and_page,
                Self::AggregatesCountNulls => run::tests::aggregates_leave_nulls_out,
                Self::NewerFieldDropped => schema::upgrade::tests::a_field_that_is_younger_than_the_schema_is_kept,
                Self::RemovedFieldRewritten | Self::DefaultNotRewritten => {
                    schema::upgrade::tests::old_record_gets_new_fields_and_loses_removed_ones
                }
                Self::RemovedTakenForNewer => {
                    schema::upgrade::tests::the_last_field_of_a_class_is_omitted_when_it_was_removed
                }
            }
        }
    }

    #[test]
    fn planted_bugs_are_noticed() {
        for bug in Bug::ALL {
            assert_noticed(&[*bug], bug.noticing_test());
        }
    }
}
