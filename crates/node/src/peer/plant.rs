//! Bugs that can be planted in the driver of the peer server.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the driver of the peer server.
    pub enum Bug {
        WriteUnchecked "a write outside of transactions needs no permission"
        CommitNeedsReadOnly "a commit that writes needs only the permission to read"
        TouchNeedsReadOnly "a commit that only touches guards needs only the permission to read"
        PermissionNotRefreshed "a permission is not checked again when the catalogue has changed"
        ForeignPage "pages of other spaces are served"
        ForeignNode "logical nodes of other spaces are served"
        ForeignSession "a client may use the sessions of another one"
        ForeignTransaction "a client may use the transactions of another one"
        ForeignReplacement "a session may take the place of another client's session"
        NumberOfOtherSpace "a client takes over the number of a client of another space"
        OwnNumberGiven "a client may have the number of the peer server itself"
        OlderConnectionKept "a client that connects again leaves its earlier connection open"
        LaterConnectionForgotten "the end of an earlier connection makes the peer server forget the later one"
        HolderNotForgotten "a holder stays in the directory when its connection has ended"
        FutureTime "a transaction may begin at any time in the future"
        FutureCheck "a check may have seen any time in the future"
        OversizedCommit "a commit may write any number of bytes"
        RefusedNotResolved "the outcome of a refused commit is not determined"
        StoppedSpaceServed "commits are accepted in a stopped space"
        StoppedSpaceDropsWrites "writes outside of transactions are refused in a stopped space"
        StaleMap "messages go to the brick that served a logical node before it moved"
        TreeNotClosed "a tree stays connected when its logical node has moved"
        TreeNotRetried "a tree that its brick did not serve is not reopened"
        FormerBrickBelieved "a brick that does not serve a logical node any more may close its tree"
        DeferredToAnyone "the reason for a delay goes to any client"
        CachedBeyondLease "a cached object is served after its lease"
        ReadWaitsForever "a read waits for its page for ever"
        StatusToAll "the status of a space goes to clients of other spaces"
        StatusNotRepeated "a change of a space's status is not sent to those who watch it"
        QuerySkipsNode "a query does not ask the last logical node of its space"
        QueryPageRepeated "a query asks for the same page of a logical node again"
        QueryGuardDropped "the guards of a later page are not returned"
        QueryGuardOfLastPage "a guard that is returned twice has the version of the later page"
        QueryStaleClasses "a query continues although a brick knows classes that it does not"
        QueryOwnWritesShadowed "objects that the transaction has written are also taken from bricks"
        QueryStaleEpoch "a query that is asked again uses the placement that it began with"
        QueryOldAnswer "an answer from before a restart of the query is accepted"
        QueryHangs "a query waits for a hanging brick for ever"
        QueryHangUnnamed "the error does not name the hanging brick"
        QueryFollowsForeign "a query follows references into other spaces"
    }
}
