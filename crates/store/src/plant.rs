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

model::planted_bugs! {
    /// A bug in blob files, uploads, backup, restore or scrub.
    pub enum ContentBug {
        ChunksNotForced "a commit is acknowledged before its chunks are forced"
        BlobNameNotForced "the name of a new blob file is not forced"
        FailedFileReused "a blob file is used after a force of it failed"
        ChunkNotChecked "chunks of blob files are read without checking their checksums"
        SharedChunkFreed "a chunk is freed when the first of its users is removed"
        ChunkFreedUnderReader "a chunk is freed while a snapshot shows it"
        SweepIgnoresBuffer "the sweep of earlier blob files frees chunks that are named only in the buffer"
        FreedChunksForgotten "chunks that were to be freed before a restart are never freed"
        UploadIsGarbage "the chunks of an unfinished upload are removed as garbage"
        UploadTakesLateBytes "an upload takes bytes after a transaction has taken it"
        FailedUploadContinues "an upload continues after a part of its bytes was lost"
        AbortedUploadKept "the chunks of an aborted upload are kept"
        PatchesNotBackedUp "a backup omits chunks that are changed and not installed"
        CutArchiveRestored "an archive that ends between two parts is restored"
        RestoredChunksNotForced "a restore ends before its chunks are forced"
        RestoredUsersNotCounted "a restored chunk has one user, however many objects share it"
        RestoredPagesReused "a restored store assigns its page numbers again"
        ScrubTrustsChunks "a scrub does not read chunks of blob files"
        ScrubTrustsUserCounts "a scrub does not compare the counts of users with the users"
    }
}
