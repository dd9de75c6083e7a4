//! Mistakes that can be planted in authentication and in the limits of connections: each breaks one rule, and a test shows that
//! the tests of that rule notice. They exist in the unit tests of this crate only.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The connections of one address are not counted.
    AddressNotCounted,
    /// Administrators cannot use the reserve.
    NoReserve,
    /// A connection stays privileged after its user has lost that.
    StaysPrivileged,
    /// A connection that ends does not return its place.
    PlaceNotReturned,
    /// A connection that holds state is evicted like one that does not.
    StateEvictedFirst,
    /// A guess takes no token.
    GuessNotCounted,
    /// Known clients share the buckets of all others.
    KnownClientsThrottled,
    /// A login does not forget the failures before it.
    SuccessKeepsFailures,
    /// Clients that are not known go first.
    UnknownClientsFirst,
    /// Any number of logins may wait.
    LoginQueueUnbounded,
    /// Only the beginning of the cluster's secret is compared.
    SecretComparedPartly,
    /// A user stays although its password was changed.
    OldPasswordStays,
    /// A user that is disabled may log in.
    DisabledLogsIn,
    /// A right that a user has in any space counts in all.
    PermissionOfAnotherSpace,
    /// Whoever administers one space may do everything.
    SpaceAdminIsAdministrator,
}

#[cfg(test)]
pub(crate) use switch::{plant, planted};

/// Whether this mistake is planted: never.
#[cfg(not(test))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a mistake in what this thread does, or takes it out again.
    pub(crate) fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this mistake is planted.
    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
