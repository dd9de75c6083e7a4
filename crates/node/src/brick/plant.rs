//! Bugs that can be planted in the driver of a logical node and in moves.

pub(super) use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the driver of a logical node or in moves.
    pub enum Bug {
        "L1" DurableWhenSubmitted "rows count as durable when the store has them"
        "L1" LimitNotRaised "the limit of positions is not raised: positions are reused after a restart"
        "L1" SequenceNotKept "rows after refused ones are written"
        "L1" OldLifeCounts "a result of a submission from before a refusal counts"
        "L1" RefusedRowsLost "the first rows that the store has refused are not submitted again"
        "L1" RefusedRowsBehindLater "refused rows are submitted again after later ones"
        "L1" TakenWithoutRoom "transactions are accepted although the store accepts no rows"
        "C2" DeferredIsMarked "a deferred transaction is aborted durably"
        "C3" OldPiecesKept "a record that shrinks leaves pieces of the previous one"
        "D1" FirstConnectionKept "a holder is sent messages over its first connection for ever"
        "D2" ShownBeforeTold "a page is sent before the invalidation of its last change"
        "V4" NewestHeadForgotten "the timestamp of a page is computed from its last durable head"
        "P1" PagesTakenForNew "every page that changes is treated as new, and its slots as free"
        "P1" ChangingPagesForgotten "pages are forgotten while their changes are in flight"
        "P1" OutdatedReplacedUsed "what a prepared transaction replaces is not computed again when indexes have changed"
        "G" GuardsNotRead "a scan returns no guards"
        "G" ClassNotTouched "a change does not touch the guard of its class"
        "G" OldEntriesNotTouched "a change does not touch the guards of the entries that it removes"
        "G" BucketNotTouched "a change does not touch the guards of equal first fields"
        "G" DroppedIndexTrusted "a transaction may rely on guards of an index that was dropped"
        "G" UniquenessUnchecked "unique values are accepted from transactions that have not searched for them"
        "I" ExtentKeepsRemoved "an object that is removed stays in the extent of its class"
        "I" OldEntriesKept "entries of the previous value stay in an index"
        "I" EntersBeforeDecided "objects are entered in an index before transactions from before it are decided"
        "I" BuildingTakenForComplete "an index that was being built at a restart is treated as complete"
        "I" PartialIndexUsed "an index is scanned although it is not complete"
        "I" RemovalOvertakesEntries "the entries of a dropped index are removed before all its entries are durable"
        "F" ReservationReused "page numbers are reserved from what is durable"
        "F" ReservationsNotMoved "reservations made while a node is copied do not move with it"
        "M" ClosedWithRowsInFlight "a node counts as closed while its rows are in flight"
        "M" ChangesForgotten "rows that change while a node is copied are not sent"
        "M" LateQuestionCounts "a late request for rows counts and drops keys that were not received"
        "M" AnswersCountUnheard "rows count as received when they are sent"
        "M" RestForgotten "changed rows that do not fit an answer are not sent"
        "M" OldCopyKept "an attempt to take a node over keeps the rows of the previous attempt"
        "M" LastBeforeAll "rows are marked as the last although there are more"
        "M" ToldUnsealed "the last rows are sent while the node is still served"
        "M" SealNotWritten "the old brick does not record that it has handed a node over"
        "M" ServedUnsealed "a brick serves an incomplete copy if a map assigns the node to it"
    }
}
