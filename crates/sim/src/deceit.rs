//! How a client may break the rules: it is *wicked* then. Its redirector, the other members of its group and the bricks must not be harmed.

/// How a wicked client breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deceit {
    /// An object is another one in the copies that it gives to other members.
    AlteredCopy,
    /// An object is missing in these copies.
    IncompleteCopy,
    /// These copies have the objects of an earlier version, and say that they are of the current one.
    OutdatedCopy,
    /// It gives an earlier version of the page.
    EarlierVersion,
    /// It gives the current page, and says that it is of a later version.
    LaterVersion,
    /// It gives the current page, and says that it was never changed by a transaction: its commit timestamp is 0.
    EarlierTime,
    /// It gives the objects of another page.
    OtherPage,
    /// It does not answer requests for copies.
    NoCopy,
    /// It answers the requests for copies that other members get, and says that it has none.
    CopyDenied,
    /// It sends each commit with different contents to its redirector and to another server, which passes its contents on to the brick.
    TwoContents,
    /// It says that it has holders below it.
    HoldersBelow,
    /// It sends messages in the sessions of other members.
    OtherSession,
    /// It has the transactions of other members resolved, which aborts them.
    OtherTransaction,
    /// Each time it chooses one of these, or follows the rules.
    Any,
}

impl Deceit {
    /// All of them, first those about copies.
    pub const ALL: [Self; 14] = [
        Self::AlteredCopy,
        Self::IncompleteCopy,
        Self::OutdatedCopy,
        Self::EarlierVersion,
        Self::LaterVersion,
        Self::EarlierTime,
        Self::OtherPage,
        Self::NoCopy,
        Self::CopyDenied,
        Self::TwoContents,
        Self::HoldersBelow,
        Self::OtherSession,
        Self::OtherTransaction,
        Self::Any,
    ];

    /// What it may do with a request for a copy: the first eight of all.
    pub(crate) const WITH_COPIES: &[Self] = Self::ALL.split_at(8).0;

    /// Its name in scenarios.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlteredCopy => "altered-copy",
            Self::IncompleteCopy => "incomplete-copy",
            Self::OutdatedCopy => "outdated-copy",
            Self::EarlierVersion => "earlier-version",
            Self::LaterVersion => "later-version",
            Self::EarlierTime => "earlier-time",
            Self::OtherPage => "other-page",
            Self::NoCopy => "no-copy",
            Self::CopyDenied => "copy-denied",
            Self::TwoContents => "two-contents",
            Self::HoldersBelow => "holders-below",
            Self::OtherSession => "other-session",
            Self::OtherTransaction => "other-transaction",
            Self::Any => "any",
        }
    }

    /// Whether a message like this is rejected and its connection ended.
    pub(crate) const fn is_rejected(self) -> bool {
        matches!(self, Self::HoldersBelow | Self::OtherSession | Self::OtherTransaction)
    }
}
