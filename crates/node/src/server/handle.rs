//! What users of this crate have of a running server.

/// Defines the handle of a running server: its addresses and its end, which are the same for all roles.
macro_rules! server_handle {
    ($(#[$about:meta])* $Handle:ident serves $Role:ty) => {
        $(#[$about])*
        ///
        /// Dropping it does not stop the server: it serves until the process ends or `shutdown` is called.
        pub struct $Handle {
            server: $crate::server::Server<$Role>,
        }

        impl ::std::fmt::Debug for $Handle {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($Handle)).field("addresses", &self.addresses()).finish_non_exhaustive()
            }
        }

        impl $Handle {
            /// Starts the server. The code of its connections is compiled in this crate: see
            /// [`StartingServer`]($crate::server::StartingServer).
            #[inline(never)]
            fn start_server(role: $Role, config: $crate::server::Config) -> $crate::server::StartingServer<$Role> {
                Box::pin($crate::server::Server::start(role, config))
            }

            /// The addresses on which it listens, in the order of the configuration, with the ports that the system chose.
            #[must_use]
            pub fn addresses(&self) -> &[::wire::transport::Address] {
                &self.server.addresses
            }

            /// The address of `/metrics` and `/health`; `None` if HTTP is off.
            #[must_use]
            pub fn http(&self) -> Option<::std::net::SocketAddr> {
                self.server.http
            }

            /// Stops accepting connections, answers the requests that have arrived, and closes what it serves.
            ///
            /// # Errors
            /// If the server ends in disorder, or what it serves cannot be closed.
            pub async fn shutdown(self) -> ::model::Result<()> {
                self.server.shutdown().await
            }
        }
    };
}

pub(crate) use server_handle;
