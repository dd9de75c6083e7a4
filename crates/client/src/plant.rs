//! Planted bugs: each switch breaks one duty of the client in one plausible way, so that a test can show that it is noticed.
//!
//! A bug can be planted only in the tests of this crate, or with the feature `planted-bugs`. Otherwise [`planted`] is a
//! constant `false`.

macro_rules! bugs {
    ($($bug:ident $what:literal)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = concat!("The client ", $what, ".")] $bug,)*
        }

        impl Bug {
            /// All bugs.
            pub const ALL: &[Self] = &[$(Self::$bug),*];

            /// What the client does wrong.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$bug => $what),* }
            }
        }
    };
}

bugs! {
    AnswerToWrongCall "gives the object that one call waits for to all calls that wait for its page"
    DoomedGoesOn "lets a doomed transaction read on"
    WriteLostOverReconnect "forgets the calls that wait for a write when its connection ends"
    LeasedPageReused "gives the pages of a committed transaction back as they were before it"
    PageNumberReused "hands out a reserved page number twice"
    WrongTryBelieved "takes the outcome of one transaction for that of another one that is being committed"
    UnknownIsConflict "reports an unknown outcome as a conflict"
    UniqueConflictMissed "commits a value of a unique index that another object has"
    EventsLostOverReconnect "forgets the status of the space when its connection ends"
    StoppedSpaceServes "serves a space that is stopped"
    RefusalIsConflict "reports a commit that was refused for good as a conflict"
    RefusalOfAnotherWrite "attributes the refusal of one write to a later one"
    CancelKeepsCommit "goes on with a commit whose caller has gone"
    DeadlineIgnored "never ends a call that is not answered"
    RequestNotRepeated "does not repeat a request whose connection has ended"
    RequestSentTwice "sends a request again while its answer is outstanding"
    OutcomeNotKept "drops an outcome that no call waits for yet"
    ClassIgnored "takes an object of another class for the one that is read"
    NothingEvicted "keeps all pages, however large the cache gets"
    StatusNotWatched "does not ask a new peer server for the status of the space"
    LocksKeptAtClose "keeps its locks when it is closed"
    LeaseNewsIgnored "does not try again what waits for a logical node when its session opens"
    DeniedWaits "waits for the whole timeout once no peer server admits it"
    StalledBrickWaitedForAnew "restarts the timeout of a query each time the peer server says that it waits for a brick"
}

#[cfg(any(test, feature = "planted-bugs"))]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug in the clients of this thread, or removes it.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this bug is planted.
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

/// Whether a test fails with this bug planted, as it should.
#[cfg(test)]
pub(crate) fn is_noticed(bug: Bug, test: fn()) -> bool {
    plant(Some(bug));
    let result = std::panic::catch_unwind(test);
    plant(None);
    result.is_err()
}

#[cfg(any(test, feature = "planted-bugs"))]
pub use switch::{plant, planted};

/// Whether this bug is planted: never.
#[cfg(not(any(test, feature = "planted-bugs")))]
#[must_use]
pub const fn planted(_: Bug) -> bool {
    false
}
