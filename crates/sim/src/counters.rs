//! What happened in a run, counted: tests sum it up over many seeds, and fail if too little has happened to mean anything.

use std::ops::AddAssign;

/// Defines counters that can be added up.
macro_rules! counters {
    ($(#[$of_struct:meta])* pub struct $name:ident { $($(#[$of_counter:meta])* pub $counter:ident,)* }) => {
        $(#[$of_struct])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$of_counter])* pub $counter: u64,)*
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$counter += other.$counter;)*
            }
        }
    };
}

counters! {
    /// Counters of a run.
    pub struct RunCounters {
        /// Delivered messages, completed forces and wake-ups.
        pub events,
        /// The simulated time in milliseconds.
        pub simulated_ms,
        /// Calls that gateways rejected because of their backlog.
        pub turned_away,
        /// Cuts from which clusters were restored.
        pub cuts,
        /// Pages with which members of groups have helped each other.
        pub peer_fetches,
        /// Updates that redirectors have sent to members.
        pub peer_updates,
        /// Fetches of redirectors at redirectors above them.
        pub chained_fetches,
        /// Updates that redirectors have sent to redirectors below them.
        pub chained_updates,
        /// Copies and updates of wicked members that redirectors have noticed and dropped.
        pub forgeries,
        /// Messages of wicked members that redirectors have rejected.
        pub rejected,
        /// Connections that peer servers have closed because their users may do less.
        pub closed_for_users,
        /// Clients that were not admitted.
        pub refused_clients,
        /// Operations that were denied.
        pub denied,
        /// Statuses of stopped spaces, and of spaces that serve again, that clients were sent.
        pub stops,
        /// Operations that ended because the space was stopped.
        pub stopped,
        /// Members that lacked fields which the program knew that read them.
        pub old_members,
        /// Members that had fields which the program did not know that wrote them.
        pub kept_fields,
        /// Members that were rewritten in a newer version of their class.
        pub renewed,
        /// Members that queries found by an added field.
        pub sifted,
        /// Programs that were replaced because they were too old for their class.
        pub old_programs,
        /// Members that were removed or overwritten.
        pub replaced,
        /// Members in the places of removed ones.
        pub reused,
        /// Numbers that were read as another type than they were written.
        pub widened,
        /// Pages of B-trees that were damaged.
        pub damaged,
        /// Operations that ended because rows were damaged.
        pub stopped_by_damage,
        /// Starts of bricks that damage prevented.
        pub refused_starts,
    }
}
