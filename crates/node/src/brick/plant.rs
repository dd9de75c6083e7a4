//! Bugs that can be planted in the driver of a logical node and in moves.

pub(super) use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the driver of a logical node or in moves.
    pub enum Bug {
        "L1" DurableWhenSubmitted "rows count as durable when the store has them"
        "L1" LimitNotRaised "the limit of positions is not raised: a restart uses positions again"
        "L1" SequenceNotKept "rows behind refused ones are written"
        "L1" OldLifeCounts "a result of a submission from before a refusal counts"
        "L1" RefusedRowsLost "the first rows that the store has refused are not submitted again"
        "L1" RefusedRowsBehindLater "refused rows are submitted again behind later ones"
        "L1" TakenWithoutRoom "transactions are taken in though the store takes no rows"
        "C2" DeferredIsMarked "a transaction that is deferred is aborted for good"
        "C3" OldPiecesKept "a record that shrinks leaves pieces of the one before"
        "D1" FirstConnectionKept "a holder is sent messages over its first connection for ever"
        "D2" ShownBeforeTold "a page is sent before holders are told of its last change"
        "V4" NewestHeadForgotten "the timestamp of a page is computed from its last durable head"
        "P1" PagesTakenForNew "every page that changes is taken for new, and its slots for free"
        "P1" ChangingPagesForgotten "pages are forgotten while changes of them are under way"
        "P1" OutdatedReplacedUsed "what a prepared transaction replaces is not computed again when indexes have changed"
        "G" GuardsNotRead "a scan returns no guards"
        "G" ClassNotTouched "a change does not touch the guard of its class"
        "G" OldEntriesNotTouched "a change does not touch the guards of the entries that it removes"
        "G" BucketNotTouched "a change does not touch the guards of equal first fields"
        "G" DroppedIndexTrusted "a transaction may rely on guards of an index that was dropped"
        "G" UniquenessUnchecked "values that are to be unique are taken from transactions that have not asked who has them"
        "I" ExtentKeepsRemoved "an object that is removed stays in the extent of its class"
        "I" OldEntriesKept "entries of the value before stay in an index"
        "I" EntersBeforeDecided "objects are entered in an index before transactions from before it are decided"
        "I" BuildingTakenForComplete "an index that was being built at a restart is taken for complete"
        "I" PartialIndexUsed "an index is scanned though it does not have all objects"
        "I" RemovalOvertakesEntries "the entries of a dropped index are removed before all that were made are durable"
        "F" ReservationReused "page numbers are reserved from what is durable"
        "F" ReservationsNotMoved "reservations made while a node is copied do not move with it"
        "M" ClosedWithRowsInFlight "a node counts as closed while rows of it are with the store"
        "M" ChangesForgotten "what changes while a node is copied is not sent"
        "M" LateQuestionCounts "a question that comes late counts, and takes away what was not received"
        "M" AnswersCountUnheard "rows count as received when they were sent"
        "M" RestForgotten "changed rows that do not fit an answer are not sent"
        "M" OldCopyKept "an attempt to take a node over keeps the rows of the one before"
        "M" LastBeforeAll "the last rows are said to be the last though there are more"
        "M" ToldUnsealed "the last rows are sent while the node is still served"
        "M" SealNotWritten "the old brick does not write down that it has handed a node over"
        "M" ServedUnsealed "a brick serves an incomplete copy if a map says that it serves the node"
    }
}
