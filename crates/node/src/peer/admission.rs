//! Whether a user is admitted to a space, when it connects and as long as it is connected.
//!
//! Both are functions of the caller and the catalogue. They do no I/O.
//!
//! 1. A connection to a space needs the permission to read there.
//! 2. A connection ends when its user may do less in the space than when it was admitted, and when the user may write and could not
//!    then: a redirector goes by what the user could do then.

use meta::catalog::{Catalog, Permission};
use model::{Error, ErrorKind, Result};
use wire::handshake;

use super::plant::{Bug, planted};
use crate::auth::{Principal, permission_to_proto};

/// Admits a caller to a space that exists. Returns what it may do there.
///
/// # Errors
/// [`ErrorKind::Denied`].
pub(super) fn admit_to_space(who: &Principal, catalog: Option<&Catalog>, space: &str) -> Result<handshake::Permission> {
    if !planted(Bug::AdmittedWithoutPermission) {
        who.check_permission(Permission::Read, catalog, space)?;
    }
    Ok(permission_to_proto(who.permission(catalog, space)))
}

/// Checks that a caller may do in a space what it could do there when it was admitted, and may not write if it could not.
///
/// # Errors
/// [`ErrorKind::Denied`]: its connection is closed.
pub(super) fn check_still_admitted(
    who: &Principal,
    catalog: Option<&Catalog>,
    space: &str,
    before: handshake::Permission,
) -> Result<()> {
    if planted(Bug::RevokedStaysConnected) {
        return Ok(());
    }
    let now = admit_to_space(who, catalog, space)?;
    if now < before && !planted(Bug::LowerPermissionStaysConnected) {
        return Err(Error::new(ErrorKind::Denied, "it may do less than when it was admitted"));
    }
    let writes = handshake::Permission::Write;
    if now >= writes && before < writes && !planted(Bug::ReaderStaysConnected) {
        return Err(Error::new(
            ErrorKind::Denied,
            "it may write, which it could not when it was admitted: it connects again",
        ));
    }
    Ok(())
}
