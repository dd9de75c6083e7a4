//! Authentication and authorization: who a caller is, and what it may do.
//!
//! ```text
//!   Hello, certificate ──▶ Authenticator ──▶ Principal ──▶ the role: is it admitted? ──▶ each request: is it allowed?
//!                               │                            ▲
//!                         copy of the catalogue ─────────────┘  again at each change
//! ```
//!
//! 1. While the catalogue has no user, every caller is anonymous and may do everything. The first user ends that.
//! 2. A user authenticates by its password or by a certificate for its name. A process of the cluster authenticates by the
//!    cluster's secret or by a certificate for [`NODE_CERTIFICATE_NAME`](meta::catalog::NODE_CERTIFICATE_NAME).
//! 3. After each change of the catalogue, the server checks every connection again, and closes those that it would not admit. A
//!    connection by a password ends when the user's password is set again.
//! 4. A refusal does not tell whether a user exists, neither by its text nor by the time it takes.
//! 5. Guesses are bounded, and known clients do not wait for those of others (`login_throttle`, `login_queue`).

mod accounts;
mod authenticator;
mod cluster_credentials;
mod login_queue;
mod login_throttle;
mod principal;
mod secret;
mod spaces;

pub(crate) use accounts::{administer, check_space_admin, permission_to_proto};
pub(crate) use authenticator::{Authenticator, admit_by_certificate, is_member};
pub use cluster_credentials::ClusterCredentials;
pub(crate) use cluster_credentials::check_cluster;
pub(crate) use principal::Principal;
pub use secret::Secret;
pub(crate) use spaces::{check_writable, remove_space, set_space, space_options, space_to_proto};
