//! Bugs that can be planted. Each breaks one rule in one plausible way, and shows that the simulator's checkers detect
//! it.
//!
//! Bugs can be planted only with the feature `planted-bugs`, which the simulator enables for itself. Without it
//! [`planted`] is `false` at compile time, and the compiler removes all code of the bugs.

macro_rules! bugs {
    ($($rule:literal $bug:ident $what:literal)*) => {
        /// A mistake that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $(#[doc = concat!($rule, ": ", $what, ".")] $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug),*];

            /// The rule that it breaks.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$bug => $rule),* }
            }

            /// What it does wrong.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$bug => $what),* }
            }

            /// Whether the bug is in replica groups. Without them it has no effect.
            #[must_use]
            pub fn is_of_groups(self) -> bool {
                self.rule() == "M1"
            }
        }
    };
}

bugs! {
    "L1" NoLearning "clocks do not learn from others"
    "L1" ShownBeforeForce "a change is shown before its record is durable"
    "V1" StaleReads "reads are not validated"
    "V1" NoFloor "what is not in the window counts as never changed"
    "V1" VersionIsTimestamp "the version of a page is the timestamp of the last transaction"
    "V2" HeldReads "a transaction may write what a prepared one has read"
    "V2" HeldWrites "a transaction may read what a prepared one writes"
    "V1" TouchUnseen "a touch leaves no entry in the window and sends no invalidation"
    "V2" TouchUnchecked "a transaction may touch what a prepared one has read"
    "V2" TouchUnheld "a prepared transaction does not hold what it touches"
    "V2" LocksForgotten "prepared transactions hold nothing after a restart"
    "V2" ReleasedEarly "a transaction lets go of what it holds before its outcome is durable"
    "V3" WindowDropsEntries "a window that is full drops its oldest entry and leaves the floor"
    "V3" RetiredUnheard "entries are retired although an acknowledgement is pending"
    "V4" BoundForgotten "the bound of what was promised is not in the log"
    "V4" PromiseIgnored "a check promises nothing"
    "C1" VoteBeforeForce "a vote is sent before the prepared record is durable"
    "C1" OneVoteForAll "one vote is taken for all"
    "C1" FirstProposal "the timestamp is the first proposal, not the largest"
    "C1" GivenUpIsAborted "an abandoned commit is aborted although participants have prepared it"
    "C2" NoAbortMark "a participant that knows nothing of a transaction refuses it without an abort mark"
    "C2" VolatileRefusal "a refusal is not recorded"
    "C2" MarksForgotten "abort marks are lost by a restart"
    "C3" PrepareTwice "a repeated prepare is taken for a new one"
    "C3" OutcomeForgotten "an outcome is forgotten as soon as it is applied"
    "C3" ExecutedTwice "a repeated commit is executed again"
    "C3" BusyIsRefused "a call that is not taken, for too much waits, is answered as refused"
    "C3" AnyRound "votes of an earlier round count"
    "C3" TooOldIsWritten "a write that is too old is called written"
    "C4" PreparedForgotten "prepared transactions are lost by a restart"
    "C4" SegmentFreed "a segment of the log is freed with a prepared record in it"
    "C4" OutcomeAlone "the record of an outcome does not say what is written"
    "C4" NobodyFinishes "the transactions of a dead coordinator are never finished"
    "V2" CheckIgnoresPrepared "a read-only check ignores prepared transactions whose proposal is later"
    "G1" ClosedAbovePrepared "the closed timestamp ignores what is prepared"
    "G1" ClosedOvertakes "the closed timestamp overtakes invalidations"
    "G2" BeyondClosed "a group snapshot is taken beyond what is closed"
    "G3" EvictionForgotten "evicting a page leaves its reads' intervals open"
    "W1" NobodyWounds "an older transaction waits for a younger one"
    "W1" PreparedWounded "a prepared transaction is wounded"
    "W1" LocksOutlive "locks of vanished transactions are kept"
    "W1" PrepareIgnoresWaiters "a prepare passes transactions that wait for the lock"
    "W1" AnyModeGranted "the answer to a weaker lock is taken for that to a stronger one"
    "W1" GuardShared "a guard is locked for reading and for touching at the same time"
    "W1" RaisedAnew "a transaction that upgrades a lock forgets its read under the weaker one"
    "N1" NextWriteAtOnce "the next write to another brick does not wait"
    "N1" LastWriteSettles "the next write to another brick waits for the last one only, not for those before it"
    "N1" NotWrittenAgain "a write that may not have arrived is not sent again in the next session"
    "N1" AnyLeaseOpens "the answer to an earlier renewal opens a session"
    "N1" SettledAtRestart "a restarted brick forgets that old copies may be about"
    "N1" ReplyBeforeInvalidation "the reply to a write overtakes its invalidation"
    "N1" OpenedUnsynced "a session is opened by a node in the middle that may be behind what the holder has seen elsewhere"
    "D1" LateListing "a holder is listed when its page has been read"
    "D1" EvictionEndsLaterFetch "an eviction ends a later fetch of the page"
    "D2" AcknowledgedAtOnce "a node in the middle acknowledges before those below have"
    "D2" OneAcknowledgesAll "the acknowledgement of one change counts for those after it"
    "D3" NoCrossingLog "messages that arrive during a fetch are forgotten"
    "D3" AnyReply "the reply to an old fetch is taken for the answer to a new one"
    "D4" LeaseFromAnswer "a lease counts from when its answer came"
    "D4" GrantBeyondOwn "a node grants leases that are longer than its own"
    "D4" UsedBeyondLease "copies are used beyond the lease"
    "D4" SessionNotReset "copies are kept over the end of a session without being validated"
    "D4" HolderNeverExpires "a holder whose lease has run out is waited for"
    "D4" SilentRenewed "a holder that leaves an invalidation unanswered gets another lease"
    "D4" NoDrift "clocks are believed to run equally fast"
    "P2" GapsIgnored "a message that does not follow the copy's version advances it"
    "P2" OldUpdates "an update that comes late is put over a newer one"
    "P3" NoDoom "a message that names what was read does not doom the transaction"
    "P3" VersionAtCommit "the version of a read is that of the copy at the commit"
    "P4" OwnWriteBlind "own writes are put over whatever copy there is"
    "P4" AnyWriterAccepted "validation accepts any TxnId for a read"
    "R1" HoleCalledComplete "a page with a hole is helped with, as if the object did not exist"
    "R1" NewerCalledComplete "a page with objects newer than its version is called complete"
    "R1" LateJoiner "a holder that joins a fetch does not receive earlier messages"
    "R1" PatienceWithHelpers "a helper that does not answer is waited for"
    "R2" UpdateAtCommit "updates are sent on when the commit passes, before anything proves it"
    "R2" FetchersNotTold "a fetching holder is not notified of a change"
    "R3" PendingIsStale "a change with a pending acknowledgement makes reads of all clients stale"
    "R4" GoneHelperAsked "a holder that is gone is still asked to help"
    "R4" UnlistedRevalidation "a holder that validates a copy is not listed for it"
    "R4" StaleCalledCurrent "a copy is called current whatever its version"
    "M1" DurableByMajority "a record counts as durable when most members hold it"
    "M1" AckOfAnyEpoch "what a member acknowledged in another epoch counts"
    "M1" AppendOfAnyEpoch "records count that were sent in another epoch, or by one that is not the first any more"
    "M1" AnyoneFirst "the next first member may lack what was told durable"
    "M1" JoinerHoldsAtOnce "a joining member counts as a holder at once"
    "M1" TailKept "a member keeps the tail that the first member does not have"
    "M1" LeaseNotWaitedFor "half a lease is waited for"
    "M1" LeaseWithoutDrift "clocks of members are believed to run as fast as the meta-server's"
    "M1" SealedServes "a sealed group serves"
    "M1" GoesOnAfterHandOver "a first member goes on after it has handed over"
    "M1" RestartUnnoticed "a restarted member takes part in the epoch of its life before"
    "M1" LeaseWithoutNews "a lease is taken up without what was decided meanwhile"
    "M1" LeaseOfLifeBefore "a lease counts that was granted to the life before"
    "M1" AckBeforeForce "a member acknowledges what it has not forced"
    "M1" LeadsBeforeStarted "a first member leads before the epoch has started"
    "M1" ReadsBeforeStarted "a member serves reads before the epoch has started"
    "M1" TellsWithoutLease "a first member tells something durable without a lease"
    "M1" ServesWithoutLease "a member serves without a lease"
    "M1" LeasesForgotten "a restarted meta-server does not wait for the leases that it has granted before"
    "M1" HoldersForgotten "a restarted meta-server takes all members for holders"
    "M1" TellsUnforced "a member takes for held what it has not forced itself"
    "M1" HandOverIncomplete "a group hands over although a new member has not reported yet"
    "M1" CommonIgnoresEpochs "two logs have in common what is in the shorter one, whatever it is"
    "M1" FollowersToldMore "the first member lets others show what it has not told itself"
    "M1" PreviousUnchecked "records are appended behind any record at the right position"
    "M1" MovesNotCounted "a move does not count into the versions"
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug in the machines of this thread, or removes it.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this mistake is planted.
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

/// Whether a test fails with this bug planted, as it should.
#[cfg(all(test, feature = "planted-bugs"))]
pub(crate) fn is_noticed(bug: Bug, test: fn()) -> bool {
    plant(Some(bug));
    let result = std::panic::catch_unwind(test);
    plant(None);
    result.is_err()
}

#[cfg(feature = "planted-bugs")]
pub use switch::{plant, planted};

/// Whether this mistake is planted: never.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
pub const fn planted(_: Bug) -> bool {
    false
}
