//! Bugs that can be planted in the store.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the store.
    pub enum Bug {
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
}
