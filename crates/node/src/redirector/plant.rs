//! Bugs that can be planted in the driver of the redirector.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the driver of the redirector.
    pub enum Bug {
        MemberWriteUnchecked "a member without the permission to write may write outside of transactions"
        MemberUsesOthersTransaction "a member may use the transactions of another one"
        MemberCallUnchecked "a member may name pages of other spaces in its calls"
        CallOnOtherConnection "a call is forwarded on the connection of another member, by whose permissions it is judged"
        MemberCallTooLarge "a call of a member may have any size and any time"
        ReaderUpdates "the writes in a commit of a member that may not write are sent to others when an invalidation names the commit"
        MemberNotForgotten "a holder stays in the directory when its connection has ended"
        MemberClosesOthers "the end of a member's connection counts for all members"
        DeniedWriteHangs "a member is not told that its write has ended when it is denied"
        UpstreamLossIgnored "sessions go on when the connection to the server above has ended"
        UpstreamReturnIgnored "sessions are not opened when there is a connection to the server above"
        ReplyDropped "the reply to a call that has ended is not forwarded"
        DeferredToMember "the reason for the delay of a write of a redirector below goes to the member, on another connection than the end of the write"
        DeferredToNone "the reason for the delay of a write is not forwarded"
    }
}

model::planted_bugs! {
    /// A bug in the contents that a redirector keeps.
    pub(crate) enum ContentBug {
        StateIgnored "a range of another state of the content is returned"
        ClusterIgnored "a range of another cluster is returned"
        PlaceIgnored "a range from another place is returned"
        AskedAgain "a range that was asked for is asked for again"
        WaitersForgotten "members that wait for a range get no answer"
        FailureRemembered "a range is asked for no more after a failure"
        FailureKept "an answer without the range is returned to others"
        NeverEvicted "ranges are kept without a limit"
    }
}
