//! Who may come in, and what they may do.
//!
//! ```text
//!   Hello, certificate ──▶ Guard ──▶ Who ──▶ the role: may they be here? ──▶ each request: may they do this?
//!                            │                         ▲
//!                        catalogue copy ───────────────┘  again, whenever it changes
//! ```
//!
//! 1. As long as the catalogue has no user, the doors are open: nobody has to say who it is. The first user closes them.
//! 2. A user comes in by its password or by a certificate, a process of the cluster by the cluster's secret or by a
//!    certificate for [`NODE_CERTIFICATE_NAME`](meta::catalog::NODE_CERTIFICATE_NAME).
//! 3. Who is in stays as long as it would be let in: whoever would not, as of the next change of the catalogue, is hung up on. Nobody
//!    stays by a password that is no longer the user's.
//! 4. Whoever is refused does not learn whether a user exists: neither by words nor by how long it takes.

mod accounts;
mod authenticator;
mod cluster_credentials;
mod login_throttle;
mod principal;
mod secret;
mod spaces;

pub(crate) use accounts::administer;
pub(crate) use authenticator::Authenticator;
pub use cluster_credentials::ClusterCredentials;
pub(crate) use principal::Principal;
pub use secret::Secret;
pub(crate) use spaces::{set_space, space_options};
