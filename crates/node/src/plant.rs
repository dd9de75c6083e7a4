//! Bugs that can be planted in authentication and in the limits of connections.

pub(crate) use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in authentication or in the limits of connections.
    pub(crate) enum Bug {
        AddressNotCounted "the connections of an address are not counted"
        NoReserve "administrators cannot use the reserve"
        StaysPrivileged "a connection stays privileged after its user has lost the privilege"
        PlaceNotReturned "a connection that ends does not free its place"
        StateEvictedFirst "a connection that holds state is evicted like one that does not"
        GuessNotCounted "a guess takes no token"
        KnownClientsThrottled "known clients share the buckets of all others"
        SuccessKeepsFailures "a login does not forget the failures before it"
        UnknownClientsFirst "unknown clients are served first"
        LoginQueueUnbounded "any number of logins may wait"
        SecretComparedPartly "only the first bytes of the cluster's secret are compared"
        OldPasswordStays "a connection stays although the password of its user was changed"
        DisabledLogsIn "a user that is disabled may log in"
        PermissionOfAnotherSpace "a permission in one space counts in all spaces"
        SpaceAdminIsAdministrator "an administrator of one space may do everything"
    }
}
