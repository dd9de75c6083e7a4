//! Each bug that can be planted in the tree is noticed by a test.

use model::planted_bug::{PlantedBug, is_noticed};

use super::*;
use crate::plant::TreeBug;

/// The test that notices a bug.
fn test_of(bug: TreeBug) -> fn() {
    match bug {
        TreeBug::HeaderBeforeData
        | TreeBug::HeaderNotMadeDurable
        | TreeBug::OlderHeaderCounts
        | TreeBug::NameNotForced
        | TreeBug::ReusedUnderReader
        | TreeBug::ReusedWithinBatch
        | TreeBug::ReplacedValueKept
        | TreeBug::MapNotWritten => || (0..4).for_each(|seed| crash::crash_after_every_change(seed, 8)),
        TreeBug::AbortKeepsPages => a_batch_that_fails_leaves_rows_and_space_as_they_were,
        TreeBug::FailedHeaderForgotten => || crash::fail_every_change(0),
        TreeBug::DamagedHeaderStays => || (0..5).for_each(crash::header_that_cannot_be_read_for_a_while),
        TreeBug::DividedKeyWrong | TreeBug::ScanBackEndsEarly => || {
            shape::change_ranges(1, 6);
        },
        TreeBug::JoinedKeyWrong => {
            shape::a_row_before_the_first_child_of_a_branch_is_found_after_a_join_with_the_branch_before
        }
        TreeBug::ReferenceNotChecked | TreeBug::ValueNotChecked | TreeBug::ChecksumOfPart => {
            || fuzz::damage_pages(0, 1500)
        }
        TreeBug::FailedCheckCounts => cache::what_a_scrub_finds_damaged_is_not_read_any_more,
        TreeBug::ChecksKept => cache::a_leaf_that_was_damaged_after_its_check_is_noticed_when_checks_were_forgotten,
        TreeBug::FaultsIgnored => cache::damage_is_noticed_after_a_wait,
        TreeBug::WriterTrustsChecks => {
            cache::a_change_in_a_leaf_that_was_damaged_after_its_check_gives_the_damage_no_new_checksum
        }
        TreeBug::EntrySizeNotChecked => fuzz::a_leaf_whose_row_is_larger_than_a_page_takes_counts_as_damaged,
        TreeBug::LostRowsAreAbsent => changes_in_a_damaged_page_are_kept_and_its_other_rows_stay_lost,
        TreeBug::UnreadableIsLost => {
            faults::a_page_that_cannot_be_read_stops_batches_for_a_while_and_then_counts_as_damaged
        }
        TreeBug::DamagedMapIsFree => a_damaged_map_of_used_pages_overwrites_nothing,
        TreeBug::GivenUpStaysIncomplete => || (0..8).for_each(give_up::give_up_damaged_pages),
        TreeBug::LeakedPagesKept => space::leaked_pages_come_back,
    }
}

#[test]
fn every_planted_bug_of_the_tree_is_noticed() {
    let unnoticed: Vec<_> = TreeBug::ALL.iter().filter(|bug| !is_noticed(**bug, test_of(**bug))).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
