//! Mistakes that can be planted where logical nodes move: each breaks one thing that a move rests on, so that a test can show that
//! what judges moves would notice. Only in the tests of this crate is there anything to plant.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// What changes while a node is copied is not told.
    ChangesForgotten,
    /// A question that comes late counts, and takes away what nobody has got.
    LateQuestionCounts,
    /// The last rows are said to be the last though some are still to be told.
    LastBeforeAll,
    /// The last rows are told while the node is still served.
    ToldUnsealed,
    /// The old brick does not write down that it has handed a node over.
    SealNotWritten,
    /// A brick serves what has come in part only, if a map says that it serves the node.
    ServedUnsealed,
}

#[cfg(test)]
pub(super) use switch::{plant, planted};

/// Whether this mistake is planted: never.
#[cfg(not(test))]
pub(super) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    impl Bug {
        /// All of them.
        pub(in crate::brick) const ALL: [Self; 6] = [
            Self::ChangesForgotten,
            Self::LateQuestionCounts,
            Self::LastBeforeAll,
            Self::ToldUnsealed,
            Self::SealNotWritten,
            Self::ServedUnsealed,
        ];
    }

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a mistake in what this thread does, or takes it out again.
    pub(in crate::brick) fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this mistake is planted.
    pub(in crate::brick) fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
