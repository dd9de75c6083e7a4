//! Bugs that can be planted in the client.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the client.
    pub enum Bug {
        AnswerToWrongCall "gives the object that one call waits for to all calls that wait for its page"
        DoomedGoesOn "lets a doomed transaction continue to read"
        WriteLostOverReconnect "forgets the calls that wait for a write when its connection ends"
        LeasedPageReused "returns the pages of a committed transaction without its objects"
        PageNumberReused "assigns a reserved page number twice"
        WrongTryBelieved "takes the outcome of one transaction for that of another one that is being committed"
        UnknownIsConflict "reports an unknown outcome as a conflict"
        UniqueConflictMissed "commits a value of a unique index that another object has"
        EventsLostOverReconnect "forgets the status of the space when its connection ends"
        StoppedSpaceServes "serves a space that is stopped"
        RefusalIsConflict "reports a commit that was refused for good as a conflict"
        RefusalOfAnotherWrite "attributes the refusal of one write to a later one"
        CancelKeepsCommit "continues a commit whose caller has gone"
        DeadlineIgnored "never ends a call that is not answered"
        RequestNotRepeated "does not repeat a request whose connection has ended"
        RequestSentTwice "sends a request again while its answer is outstanding"
        OutcomeNotKept "drops an outcome that no call waits for yet"
        ClassIgnored "takes an object of another class for the one that is read"
        NothingEvicted "keeps all pages, however large the cache gets"
        DerivedValuesFree "does not count decoded structs in the limit of the cache"
        OldMappingTaken "takes a struct that was decoded before its class has changed"
        UnknownFieldsDropped "writes an object without the fields that its struct does not know"
        NewerFieldsDropped "writes an object without the fields that are newer than its copy of the classes"
        DefaultNotRead "reads null in an object that is older than a field, not its default"
        ReturnedSlotsForgotten "a closed client returns slots that it has taken as free"
        StatusNotWatched "does not ask a new peer server for the status of the space"
        LocksKeptAtClose "keeps its locks when it is closed"
        LeaseNewsIgnored "does not try again what waits for a logical node when its session opens"
        DeniedWaits "waits for the whole timeout once no peer server admits it"
        DeniedIsNotWritten "reports a write as denied that was sent before and may have been written"
        ChangeNotNoticed "does not look at watched objects when a change of their page arrives"
        DamagedPageFetchedAgain "fetches a damaged page again until the call has waited too long"
        EvictedPageNotWatched "forgets watched objects whose page it evicts"
        OwnEntriesNotFound "does not look entries of collections up among the changes of the transaction"
        OwnEntriesNotListed "does not list entries of collections that the transaction changes"
        CollectionNotRead "does not read the collection whose entry it changes"
        MovedBelowItself "moves a directory below itself"
        OldNameKept "keeps the former name of an object that it renames"
        StalledBrickWaitedForAnew "restarts the timeout of a query each time the peer server reports that it waits for a brick"
    }
}
