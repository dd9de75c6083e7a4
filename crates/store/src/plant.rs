//! Mistakes that can be planted: each breaks the store in one plausible way, so that a test can show that it is noticed.
//!
//! Only tests and the feature `planted-bugs` can plant one. Otherwise [`planted`] is `false` at compile time, and no trace
//! of a mistake is left.

macro_rules! bugs {
    ($($bug:ident $what:literal)*) => {
        /// A mistake that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $(#[doc = concat!($what, ".")] $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug),*];

            /// What it does wrong.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$bug => $what),* }
            }
        }
    };
}

bugs! {
    FirstChangeCounts "of several changes of one row in a batch the first one counts"
    SequenceIgnored "changes behind a failed one of their sequence are made"
    SequenceUnbroken "a sequence goes on behind changes that were rolled back"
    AppliedOutOfOrder "what waits is applied with the last first"
    WaitingOvertaken "changes that wait for room go behind those that came later"
    RepliedOutOfOrder "replies are given with the last first"
    ShownBeforeForce "changes are visible before they are forced"
    RollbackForgetsFrozen "a failed force leaves its changes in the buffer that is being installed"
    RollbackKeepsRows "a failed force leaves its changes in the buffer"
    RollbackKeepsChecksum "the frame behind a failed force names the checksum of a frame that was not written"
    ForcedTooHigh "a frame says that it was forced itself"
    SegmentNameNotForced "a new segment is used before its name is durable"
    SegmentFreedEarly "segments are recycled with changes that are not installed"
    SnapshotSeesLater "a snapshot shows changes that were made after it"
    SnapshotPruned "versions that a snapshot still shows are dropped"
    InstalledTooHigh "the B-tree says that one change more is installed than is"
    RemovalNotInstalled "removals are not installed"
    FullDiskStays "a disk that was full is taken for full ever after"
    ReplaySkipsFirst "recovery leaves out the first change behind the installed ones"
}

#[cfg(any(test, feature = "planted-bugs"))]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a mistake in the stores of this thread, or takes it out again.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this mistake is planted.
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(any(test, feature = "planted-bugs"))]
pub use switch::{plant, planted};

/// Whether this mistake is planted: never.
#[cfg(not(any(test, feature = "planted-bugs")))]
#[must_use]
pub const fn planted(_: Bug) -> bool {
    false
}
