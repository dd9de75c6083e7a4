//! Bugs that can be planted in the store.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the store.
    pub enum Bug {
        FirstChangeCounts "of several changes of one row the first one counts"
        SequenceIgnored "changes after a failed one of their sequence are applied"
        SequenceUnbroken "a sequence continues after changes that were rolled back"
        AppliedOutOfOrder "waiting transactions are applied in reverse order"
        WaitingOvertaken "changes that wait for room are overtaken by later ones"
        RepliedOutOfOrder "replies are sent in reverse order"
        ShownBeforeForce "changes are visible before they are forced"
        RollbackForgetsFrozen "a failed force leaves its changes in the buffer that is being installed"
        RollbackKeepsRows "a failed force leaves its changes in the buffer"
        RollbackKeepsChecksum "the frame after a failed force names the checksum of a frame that was not written"
        ForcedTooHigh "a frame says that it was itself forced"
        SegmentNameNotForced "a new segment is used before its name is durable"
        SegmentFreedEarly "segments are recycled with changes that are not installed"
        SnapshotSeesLater "a snapshot shows changes that were made after it"
        SnapshotPruned "versions that a snapshot still shows are dropped"
        InstalledTooHigh "the B-tree records one change too many as installed"
        RemovalNotInstalled "removals are not installed"
        FullDiskStays "a disk that was full once is considered full forever"
        ReplaySkipsFirst "recovery omits the first change after the installed ones"
    }
}

model::planted_bugs! {
    /// A bug in blob files, uploads, backup, restore or scrub.
    pub enum ContentBug {
        ChunksNotForced "a commit is acknowledged before its chunks are forced"
        BlobNameNotForced "the name of a new blob file is not forced"
        FailedFileReused "a blob file is used after a force of it failed"
        ChunkNotChecked "chunks of blob files are read without checking their checksums"
        ChunkFreedUnderReader "a chunk is freed while a snapshot shows it"
        SweepIgnoresBuffer "the sweep of earlier blob files frees chunks that are named only in the buffer"
        FreedChunksForgotten "chunks that were to be freed before a restart are never freed"
        UploadIsGarbage "the chunks of an unfinished upload are removed as garbage"
        UploadTakesLateBytes "an upload takes bytes after a change has taken it"
        FailedUploadContinues "an upload continues after a part of its bytes was lost"
        AbortedUploadKept "the chunks of an aborted upload are kept"
        PatchesNotBackedUp "a backup omits chunks that are changed and not installed"
        CutArchiveRestored "an archive that ends between two parts is restored"
        RestoredChunksNotForced "a restore ends before its chunks are forced"
        RestoredChunksNotUsed "a restore does not record that its chunks are used"
        ChangedRangesOmitted "an increment takes a range for unchanged if its length is the same"
        GoneRangesKept "an increment does not say that ranges of its base are gone"
        BufferNotCompared "an increment omits rows that are not installed"
        BaseNotChecked "a restore takes any archive for the base of an increment"
        ScrubTrustsChunks "a scrub does not read chunks of blob files"
        ScrubTrustsExtents "a scrub does not compare the records of used chunks with the chunks of contents"
    }
}

model::planted_bugs! {
    /// A bug in applying changes, or in reading what they changed.
    pub enum ChangeBug {
        StagedChunksLeak "the staged chunks of changes that are refused are kept"
        TruncatedTailKept "a truncated chunk keeps its bytes"
        ZeroedPartKept "the parts of chunks at the ends of a zeroed range keep their bytes"
        DataNumberReused "the chunks of two contents that are created together have the same number"
        ReplacedChunkKept "a chunk stays recorded as used when it is replaced or removed"
        DeletedContentKept "the further chunks of a deleted content are not recorded as garbage"
        BaseNotCut "a patch shows bytes of its base after the end of the base"
        InstalledWithoutBase "the installer writes a patch without its base"
        FrozenNotScanned "a scan does not see the rows of the frozen buffer"
        BackwardScanEnds "a backward scan ends after the first rows of the buffer"
    }
}

model::planted_bugs! {
    /// A bug in recovery, in repair, or in the recognition of directories.
    pub enum RecoveryBug {
        DamageIsTornTail "acknowledged frames that cannot be read are cut as a torn tail"
        TornTailKept "the frames of a torn tail are not cleared"
        TornSegmentsKept "the segments after the end of the log are not removed"
        ReplayedFramesNotForced "replayed frames are not forced"
        ReplayedFramesNotWritten "replayed frames of which a force failed are forced, and not written again"
        SalvageSkipsGap "a repair replays frames after a gap"
        SalvagedPositionsReused "the positions of lost transactions are assigned again"
        LostChunksKept "the chunks of lost transactions are not swept"
        HolesLeft "a repair leaves contents of which it gave up a part"
        LoggedNumbersReused "a new blob file gets the number of a missing one that only the log names"
        LossNotKept "a repair does not keep which rows it gave up"
        UsedExtentsForgotten "extents whose records a repair gave up are free"
        TailNotRecorded "the end of the log is not recorded"
        HistoryNotChecked "a log of another history than the B-tree's is accepted"
        BlobsOfAnyStore "blob files of another store are accepted"
        IdentityNotChecked "an identity file is accepted without its checksum"
        UsedStoreTakenForNew "a store without its B-tree is taken for a new one"
        InterruptedRestoreOpened "a store is created in the directory of an interrupted restore"
    }
}

model::planted_bugs! {
    /// A bug in the upkeep of a store, or in what it does after a fault.
    pub enum FaultBug {
        FreedExtentNotRecorded "an extent that no chunk uses is freed without a row that records it"
        FailedPunchForgotten "chunks that could not be freed are not freed later"
        PunchedRowsForgotten "the rows of freed chunks stay if the batch that removes them fails"
        UsedFileRemoved "a blob file is removed when one of its chunks is freed"
        RunsCrossFiles "chunks of two blob files are read as one run"
        RolledBackChunksKept "the chunks of a change are kept although the log was full"
        DamagedBlocksLost "the installer writes a damaged block as zeros with a valid checksum"
        LateRemovalKeepsChunks "a late removal of garbage leaves the chunks that were logged after it was prepared"
        RefusedUploadKept "an upload stays in the list of those being taken if its change is refused"
        LogFailureForgotten "the store accepts changes after its log has failed"
        RollbackEndsFirst "a buffer ends at what is durable before the changes of a failed force are removed from it"
        UnreadableChunkStops "a chunk that cannot be read stops the installer for ever"
        UploadsOfOneUser "one user may begin all uploads that may be unfinished"
        UploadsCountedAlone "each upload may fill a store in memory alone"
        FullMemoryIgnored "a full store in memory accepts any change"
        DirectoryNotLocked "a directory is opened twice"
    }
}

model::planted_bugs! {
    /// A bug in forces by threads that wait for their own changes.
    pub enum ForceBug {
        RepliesOvertaken "replies to a batch are sent before those to an earlier one"
        MarkerForgotten "the committer writes no marker after what other threads have forced"
        OthersIgnored "a thread forces although others commit, too"
    }
}

model::planted_bugs! {
    /// A bug in holding a store for a cut (K1).
    pub enum CutBug {
        LogNotHeld "changes become durable while the store is held"
    }
}

model::planted_bugs! {
    /// A bug in noting what changes, in archives of changes, or in rolling forward.
    pub enum TrackingBug {
        BeginsBeforeForce "a tracker does not wait for changes that were applied before it"
        ForgetsWhenFull "a tracker without room forgets what it has noted, and goes on"
        LaterChangesForgotten "changes after the position up to which is forgotten are forgotten, too"
        RemovalsNotNoted "the removal of a row is not noted"
        DeletedChunksNotNoted "the chunks of a deleted content are not noted, and it may be made again"
        TruncatedTailNotNoted "the chunks that a content loses when it is cut are not noted"
        ChunksNotCleared "changed chunks that are zeros now keep their bytes"
        RemovalsNotApplied "a removed row stays when a store is rolled forward"
    }
}

model::planted_bugs! {
    /// A bug in the B-tree.
    pub enum TreeBug {
        ReferenceNotChecked "a page is used without comparing it with the checksum of its reference"
        ValueNotChecked "a value on pages of its own is used without comparing it with its checksum"
        ChecksumOfPart "a checksum covers seven eighths of a page"
        FailedCheckCounts "a page stays checked after a check of it failed"
        ChecksKept "a page that was checked once is never checked again"
        WriterTrustsChecks "the writer takes over a page that was checked earlier without a check of its own"
        HeaderBeforeData "the meta page of a batch is written before the other pages are forced"
        HeaderNotMadeDurable "an opening does not force the meta page that it has chosen"
        DamagedHeaderStays "a meta page that an opening could not read may become valid again"
        OlderHeaderCounts "an opening chooses the older meta page"
        FailedHeaderForgotten "a batch follows one whose meta page could not be written"
        NameNotForced "a new tree is used before its name is durable"
        ReusedUnderReader "pages are used again while a reader has a state with them"
        ReusedWithinBatch "pages that a batch frees are used again within the batch"
        AbortKeepsPages "an aborted batch keeps the pages that it took"
        ReplacedValueKept "the pages of a value that is replaced or removed stay in use"
        MapNotWritten "changes of the map of used pages are not written"
        DamagedMapIsFree "a damaged part of the map of used pages counts as free"
        DividedKeyWrong "the key of a page that was divided is the key of its last entry"
        JoinedKeyWrong "a branch that is joined begins at the key of its second child"
        EntrySizeNotChecked "the writer takes over entries of a damaged page that fit into no page"
        LostRowsAreAbsent "rows that were lost with a damaged page are read as absent"
        UnreadableIsLost "the rows of a page are lost when the page cannot be read once"
        ScanBackEndsEarly "a backward scan omits the child in which its range ends"
        GivenUpStaysIncomplete "a page whose lost rows were given up still says that rows are lost"
        LeakedPagesKept "a repair does not free the pages to which nothing refers"
        FaultsIgnored "pages are not checked again after the system may have read them again"
    }
}
