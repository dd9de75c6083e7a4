//! Which names are allowed.
//!
//! Names are parts of keys, of paths on the command line and of query texts, so they contain no slash, space or control character.
//! Classes and fields can have every name that is an identifier in Java; classes can be qualified: `com.example.Point$Inner`.

use super::account::NODE_CERTIFICATE_NAME;
use super::error::CatalogError;
use crate::limits;

/// Checks the name of a space, by the rule that stores have for it.
pub(super) fn check_space(name: &str) -> Result<(), CatalogError> {
    check_plain("the name of a space", name, model::limits::SPACE_NAME)
}

/// Checks the name of a user.
pub(super) fn check_user(name: &str) -> Result<(), CatalogError> {
    let what = "the name of a user";
    if name == NODE_CERTIFICATE_NAME {
        return Err(CatalogError::invalid(what, name, "it is the name of the cluster's processes"));
    }
    check_account(what, name)
}

/// Checks the name of a group.
pub(super) fn check_group(name: &str) -> Result<(), CatalogError> {
    check_account("the name of a group", name)
}

/// Checks the name of an index.
pub(super) fn check_index(name: &str) -> Result<(), CatalogError> {
    check_plain("the name of an index", name, limits::NAME)
}

/// Checks the name of a counter.
pub(super) fn check_counter(name: &str) -> Result<(), CatalogError> {
    check_plain("the name of a counter", name, limits::NAME)
}

/// Checks the name of a class.
pub(super) fn check_class(name: &str) -> Result<(), CatalogError> {
    let what = "the name of a class";
    check_len(what, name, limits::NAME)?;
    if model::is_class_name(name) {
        return Ok(());
    }
    Err(CatalogError::invalid(
        what,
        name,
        "it must consist of identifiers separated by dots, such as com.example.Point",
    ))
}

/// Checks the name of a field.
pub(super) fn check_field(name: &str) -> Result<(), CatalogError> {
    let what = "the name of a field";
    check_len(what, name, limits::FIELD_NAME)?;
    if model::is_identifier(name) {
        return Ok(());
    }
    Err(CatalogError::invalid(
        what,
        name,
        "it must begin with a letter, '_' or '$', and continue with letters, digits, '_' and '$'",
    ))
}

/// Checks the addresses of a server.
pub(super) fn check_addresses(addresses: &[String]) -> Result<(), CatalogError> {
    let what = "the addresses of a server";
    if addresses.is_empty() || addresses.len() > limits::ADDRESSES {
        let why = format!("there must be 1 to {}", limits::ADDRESSES);
        return Err(CatalogError::invalid(what, format!("{} addresses", addresses.len()), why));
    }
    for address in addresses {
        check_len(what, address, limits::ADDRESS)?;
        // Only the path of a socket may have spaces.
        let is_path = address.starts_with("unix:");
        if address.chars().any(|c| c.is_control() || c.is_whitespace() && !is_path) {
            let why = "an address has no control characters, and spaces only in the path of a Unix socket";
            return Err(CatalogError::invalid(what, address, why));
        }
    }
    Ok(())
}

fn check_account(what: &'static str, name: &str) -> Result<(), CatalogError> {
    check_len(what, name, limits::NAME)?;
    let valid = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+');
    if name.chars().all(valid) {
        return Ok(());
    }
    Err(CatalogError::invalid(what, name, "it may contain letters, digits, '-', '_', '.', '@' and '+'"))
}

fn check_plain(what: &'static str, name: &str, limit: usize) -> Result<(), CatalogError> {
    check_len(what, name, limit)?;
    if name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        return Ok(());
    }
    Err(CatalogError::invalid(what, name, "it may contain ASCII letters, digits, '-', '_' and '.'"))
}

fn check_len(what: &'static str, name: &str, limit: usize) -> Result<(), CatalogError> {
    if (1..=limit).contains(&name.len()) {
        return Ok(());
    }
    Err(CatalogError::invalid(what, name, format!("it must have 1 to {limit} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for name in ["Point", "com.example.Point$Inner", "größe", "_x1"] {
            assert!(check_class(name).is_ok(), "{name}");
        }
        for name in ["", ".", "a..b", "1a", "a/b", "a b", "a\u{0}", &"x".repeat(256)] {
            assert!(check_class(name).is_err(), "{name}");
        }
        assert!(check_field("x").is_ok() && check_field("a.b").is_err());
        assert!(check_user("ann@example.org").is_ok() && check_user("a/b").is_err() && check_user("").is_err());
        assert!(check_user(NODE_CERTIFICATE_NAME).is_err());
        assert!(check_space("main").is_ok() && check_space("größe").is_err() && check_space(&"x".repeat(65)).is_err());
        assert!(check_addresses(&["127.0.0.1:7000".into()]).is_ok() && check_addresses(&[]).is_err());
        assert!(check_addresses(&["unix:/srv/my data/mortar.sock".into()]).is_ok());
        assert!(check_addresses(&["a b".into()]).is_err() && check_addresses(&["unix:/srv/\n".into()]).is_err());
    }
}
