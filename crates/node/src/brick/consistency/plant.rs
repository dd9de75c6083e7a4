//! Bugs that can be planted in the checks of a scrub.

pub(crate) use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the checks of a scrub.
    pub(crate) enum Bug {
        SkipsExtents "objects are not looked up in the extents of their classes"
        TrustsSizes "the size that an object says is not compared with its content"
        SkipsUnique "neighbours in a unique index are not compared"
        ForgetsNeighbour "the first entry of a portion is not compared with the last one of the portion before"
        TrustsTotals "the number of entries of a collection is not compared"
        SplitsCollections "a collection that does not fit a portion is counted in parts"
        SkipsReverse "rows by target are not looked up among the entries"
        TrustsKeys "the record of a transaction is not compared with its key"
        ForgetsUploads "contents that are staged count as those of no object"
        RepairsInFlight "rows are put right although a change of them is on its way"
        TrustsMarks "an index that is being built counts as complete"
    }
}
