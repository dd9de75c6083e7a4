//! Bugs that can be planted in authentication and in the limits of connections.

pub(crate) use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in authentication or in the limits of connections.
    pub(crate) enum Bug {
        AddressNotCounted "the connections of one address are not counted"
        NoReserve "administrators cannot use the reserve"
        StaysPrivileged "a connection stays privileged after its user has lost that"
        PlaceNotReturned "a connection that ends does not return its place"
        StateEvictedFirst "a connection that holds state is evicted like one that does not"
        GuessNotCounted "a guess takes no token"
        KnownClientsThrottled "known clients share the buckets of all others"
        SuccessKeepsFailures "a login does not forget the failures before it"
        UnknownClientsFirst "clients that are not known go first"
        LoginQueueUnbounded "any number of logins may wait"
        SecretComparedPartly "only the beginning of the cluster's secret is compared"
        OldPasswordStays "a user stays although its password was changed"
        DisabledLogsIn "a user that is disabled may log in"
        PermissionOfAnotherSpace "a right that a user has in any space counts in all"
        SpaceAdminIsAdministrator "whoever administers one space may do everything"
    }
}
