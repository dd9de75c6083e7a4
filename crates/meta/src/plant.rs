//! Mistakes that tests plant in this crate, to show that a test notices each of them.
//!
//! Outside of tests [`planted`] is the constant `false`.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// New logical nodes go to the first bricks, whatever these serve already.
    LoadIgnored,
    /// Spreading counts a moving logical node at its old brick.
    SpreadIgnoresMoves,
    /// A new space gets logical nodes at a brick that is being drained.
    DrainingBrickAssigned,
    /// Sealing does not change the epoch, so that the old brick admits requests of before.
    SealKeepsEpoch,
    /// A move is finished by a hand-over of an earlier seal.
    StaleSealFinishes,
    /// A finished move does not raise the move count, which page versions contain.
    MoveNotCounted,
    /// A request to drain a brick moves its nodes away, and new ones may come.
    DrainNotRecorded,
    /// A program whose field is narrower than the class's is accepted.
    OldProgramAdopted,
    /// An added field does not record its default for older records.
    MissingNotFixed,
    /// The number of a removed field is given again.
    FieldNumberReused,
    /// A disabled user keeps permissions.
    DisabledUserPermitted,
    /// The last administrator with a password can lose it without a certificate.
    LastPasswordLost,
    /// A follower reaches a revision without applying its changes.
    FollowerSkipsChanges,
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
    use crate::catalog::account;
    use crate::catalog::catalog_editor::tests as editor;
    use crate::catalog::{follower, placement};

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this thread has planted a mistake.
    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    impl Bug {
        const ALL: [Self; 13] = [
            Self::LoadIgnored,
            Self::SpreadIgnoresMoves,
            Self::DrainingBrickAssigned,
            Self::SealKeepsEpoch,
            Self::StaleSealFinishes,
            Self::MoveNotCounted,
            Self::DrainNotRecorded,
            Self::OldProgramAdopted,
            Self::MissingNotFixed,
            Self::FieldNumberReused,
            Self::DisabledUserPermitted,
            Self::LastPasswordLost,
            Self::FollowerSkipsChanges,
        ];

        /// The test that notices the mistake.
        fn noticed_by(self) -> fn() {
            match self {
                Self::LoadIgnored => placement::tests::new_nodes_go_round_and_begin_where_there_is_least,
                Self::SpreadIgnoresMoves => {
                    editor::spaces::spreading_gives_new_bricks_their_part_and_empties_those_that_leave
                }
                Self::DrainingBrickAssigned => editor::spaces::a_space_is_spread_evenly_over_the_bricks_that_live,
                Self::SealKeepsEpoch => editor::spaces::a_logical_node_moves_step_by_step_and_counts_it,
                Self::StaleSealFinishes => editor::spaces::a_hand_over_counts_only_for_the_seal_that_it_belongs_to,
                Self::MoveNotCounted => editor::spaces::a_logical_node_moves_step_by_step_and_counts_it,
                Self::DrainNotRecorded => {
                    editor::members::a_brick_that_is_to_be_empty_gets_nothing_however_it_is_asked_for
                }
                Self::OldProgramAdopted => editor::adopt::a_program_that_is_older_takes_nothing_away,
                Self::MissingNotFixed => editor::classes::records_of_all_versions_are_read_through_the_newest,
                Self::FieldNumberReused => editor::classes::a_number_is_never_used_again,
                Self::DisabledUserPermitted => {
                    editor::accounts::permissions_come_from_users_and_groups_and_the_largest_counts
                }
                Self::LastPasswordLost => account::tests::an_administrator_who_can_come_in_always_stays,
                Self::FollowerSkipsChanges => follower::tests::following_gives_the_same_as_reading,
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
