//! Bugs that can be planted in the rules of openings, and the test that notices each.

pub(crate) use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the rules of openings.
    pub enum Bug {
        "K3" NonceIgnored "openings with the same number count as equal"
        "K3" AnyBase "a claim does not compare the last opening of the log with the record"
        "K3" RecordedPositionIgnored "the position in the record of the catalogue is not compared"
        "K3" PositionIgnored "the position that a witness saw is not compared"
        "K3" OldOpeningBelieved "a process believes an opening older than the one that it knows"
        "K3" LossNotAccepted "a log of which a repair gave up forced changes is opened"
        "K3" WitnessForgotten "a witness keeps the last position that it saw, not the highest"
        "K3" ComparedUnseen "a witness drops what it saw of a log while that was compared with what it saw before"
        "K3" EarlierOpeningForgotten "a witness that learns of a later opening drops what it saw before"
        "K3" WitnessNotKept "a brick does not keep what it witnessed over a restart"
        "K3" HistoryNotForced "a brick confirms its opening before its history is forced"
        "K3" ClaimUnchecked "a claim overwrites the record of the catalogue without comparing it"
        "K3" WitnessesNotAsked "an opening brick does not ask the witnesses"
        "K3" NotAnnounced "an opening is not announced before it serves"
        "K3" ServesUnconfirmed "a brick serves although its opening could not be confirmed"
    }
}
