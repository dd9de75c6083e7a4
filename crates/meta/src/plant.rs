//! Bugs that can be planted in the catalogue, and the test that notices each.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the catalogue.
    pub enum Bug {
        GivenUpCloneKept "the logical nodes of a clone that was given up stay"
        LoadIgnored "new logical nodes go to the first bricks, whatever these serve already"
        SpreadIgnoresMoves "spreading counts a moving logical node at its old brick"
        DrainingBrickAssigned "a new space gets logical nodes at a brick that is being drained"
        RefusedBrickAssigned "a brick that refuses to serve gets logical nodes"
        SealKeepsEpoch "sealing does not change the epoch, so that the old brick admits requests from before the seal"
        StaleSealFinishes "a move is finished with the copy of an earlier seal"
        MoveNotCounted "a finished move does not raise the move count, which page versions contain"
        DrainNotRecorded "a request to drain a brick moves its nodes away, but new ones may be assigned"
        OldProgramAdopted "a program whose field is narrower than the class's is accepted"
        MissingNotFixed "an added field does not record its default for older records"
        FieldNumberReused "the number of a removed field is reused"
        RenamedFieldRenumbered "a renamed field gets a new number"
        IndexedFieldChanged "a field that an index uses is removed or widened"
        DisabledUserPermitted "a disabled user keeps permissions"
        LastPasswordLost "the last administrator with a password can lose it without a certificate"
        RemovalMarkIgnored "a removal is finished although it was taken back or begun again"
        OlderCatalogueFollowed "a follower does not compare a catalogue with what it saw of it"
        SealIgnored "a catalogue that was moved accepts writes"
        CopyWithoutOpening "the copy of a moved catalogue has the same openings as the original"
        CopyRestartsRevisions "the copy of a moved catalogue begins with new revisions"
        SessionsCopied "the copy of a moved catalogue has the entries of sessions, which nothing removes any more"
        FollowerSkipsChanges "a follower reaches a revision without applying its changes"
        EndedJobChanged "a job that has ended is resumed or worked on"
        PausedJobClaimed "a process begins to work on a paused job"
        ClaimedFromLiving "a process takes over a part of a job from one that is alive"
        ClaimForgetsPlace "a process that takes over a part of a job begins at its beginning"
        LostPartRecorded "a process records the progress of a part that another one has taken over"
        PartEndsJob "a job is done when the first of its parts has ended"
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::{PlantedBug, assert_noticed};

    use super::Bug;
    use crate::catalog::account;
    use crate::catalog::catalog_editor::tests as editor;
    use crate::catalog::{follower, job, placement};
    use crate::catalogue_move::tests as catalogue_move;

    impl Bug {
        /// The test that notices the bug.
        fn noticing_test(self) -> fn() {
            match self {
                Self::GivenUpCloneKept => {
                    editor::clones::logical_nodes_of_a_clone_that_is_given_up_are_those_of_a_removed_space
                }
                Self::LoadIgnored => placement::tests::new_nodes_go_round_and_begin_where_there_is_least,
                Self::SpreadIgnoresMoves => {
                    editor::spaces::spreading_gives_new_bricks_their_part_and_empties_those_that_leave
                }
                Self::DrainingBrickAssigned => editor::spaces::a_space_is_spread_evenly_over_the_bricks_that_live,
                Self::RefusedBrickAssigned => editor::spaces::brick_that_refuses_to_serve_gets_no_logical_nodes,
                Self::SealKeepsEpoch => editor::spaces::a_logical_node_moves_step_by_step_and_counts_it,
                Self::StaleSealFinishes => editor::spaces::a_hand_over_counts_only_for_the_seal_that_it_belongs_to,
                Self::MoveNotCounted => editor::spaces::a_logical_node_moves_step_by_step_and_counts_it,
                Self::DrainNotRecorded => {
                    editor::members::a_brick_that_is_to_be_empty_gets_nothing_however_it_is_asked_for
                }
                Self::OldProgramAdopted => editor::adopt::a_program_that_is_older_takes_nothing_away,
                Self::MissingNotFixed | Self::RenamedFieldRenumbered => {
                    editor::classes::records_of_all_versions_are_read_through_the_newest
                }
                Self::IndexedFieldChanged => editor::classes::invalid_evolution_is_refused_as_a_whole_with_a_reason,
                Self::FieldNumberReused => editor::classes::a_number_is_never_used_again,
                Self::DisabledUserPermitted => {
                    editor::accounts::permissions_come_from_users_and_groups_and_the_largest_counts
                }
                Self::LastPasswordLost => account::tests::an_administrator_who_can_come_in_always_stays,
                Self::RemovalMarkIgnored => editor::removals::only_the_last_removal_that_was_not_taken_back_removes,
                Self::OlderCatalogueFollowed => follower::tests::older_catalogue_is_not_followed,
                Self::SealIgnored => catalogue_move::moved_catalogue_refuses_writes_until_the_move_is_cancelled,
                Self::CopyWithoutOpening => catalogue_move::original_is_not_believed_after_its_copy,
                Self::CopyRestartsRevisions => catalogue_move::process_that_followed_the_original_follows_the_copy,
                Self::SessionsCopied => catalogue_move::copy_has_everything_but_sessions,
                Self::FollowerSkipsChanges => follower::tests::following_gives_the_same_as_reading,
                Self::EndedJobChanged
                | Self::PausedJobClaimed
                | Self::ClaimedFromLiving
                | Self::ClaimForgetsPlace
                | Self::LostPartRecorded
                | Self::PartEndsJob => job::tests::two_workers_that_crash_do_all_of_a_job,
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
