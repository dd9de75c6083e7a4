//! What may be a name.
//!
//! Names are parts of keys, of paths on the command line and of query texts, so none has a slash, a space or a control
//! character. Classes and fields may be anything that Java calls an identifier, and qualified: `com.example.Point$Inner`.

use super::account::MEMBER;
use super::error::CatalogError;
use super::limits;

/// Checks the name of a space, by the rule that stores have for it.
pub(super) fn space(name: &str) -> Result<(), CatalogError> {
    plain("the name of a space", name, model::limits::SPACE_NAME)
}

/// Checks the name of a user.
pub(super) fn user(name: &str) -> Result<(), CatalogError> {
    let what = "the name of a user";
    if name == MEMBER {
        return Err(CatalogError::invalid(what, name, "it stands for the processes of the cluster"));
    }
    account(what, name)
}

/// Checks the name of a group.
pub(super) fn group(name: &str) -> Result<(), CatalogError> {
    account("the name of a group", name)
}

/// Checks the name of an index.
pub(super) fn index(name: &str) -> Result<(), CatalogError> {
    plain("the name of an index", name, limits::NAME)
}

/// Checks the name of a counter.
pub(super) fn counter(name: &str) -> Result<(), CatalogError> {
    plain("the name of a counter", name, limits::NAME)
}

/// Checks the name of a class.
pub(super) fn class(name: &str) -> Result<(), CatalogError> {
    let what = "the name of a class";
    bounded(what, name, limits::NAME)?;
    if name.split('.').all(is_identifier) {
        return Ok(());
    }
    Err(CatalogError::invalid(
        what,
        name,
        "it is made of identifiers with dots between them, such as com.example.Point",
    ))
}

/// Checks the name of a field.
pub(super) fn field(name: &str) -> Result<(), CatalogError> {
    let what = "the name of a field";
    bounded(what, name, limits::FIELD_NAME)?;
    if is_identifier(name) {
        return Ok(());
    }
    Err(CatalogError::invalid(what, name, "it begins with a letter, '_' or '$'; letters, digits, '_' and '$' follow"))
}

/// Checks the addresses of a server.
pub(super) fn addresses(addresses: &[String]) -> Result<(), CatalogError> {
    let what = "the addresses of a server";
    if addresses.is_empty() || addresses.len() > limits::ADDRESSES {
        let why = format!("there have to be 1 to {}", limits::ADDRESSES);
        return Err(CatalogError::invalid(what, format!("{} addresses", addresses.len()), why));
    }
    for address in addresses {
        bounded(what, address, limits::ADDRESS)?;
        if address.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(CatalogError::invalid(what, address, "an address has no spaces"));
        }
    }
    Ok(())
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = |c: char| c.is_alphabetic() || matches!(c, '_' | '$');
    chars.next().is_some_and(begins) && chars.all(|c| begins(c) || c.is_alphanumeric())
}

fn account(what: &'static str, name: &str) -> Result<(), CatalogError> {
    bounded(what, name, limits::NAME)?;
    let valid = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+');
    if name.chars().all(valid) {
        return Ok(());
    }
    Err(CatalogError::invalid(what, name, "letters, digits, '-', '_', '.', '@' and '+' please"))
}

fn plain(what: &'static str, name: &str, limit: usize) -> Result<(), CatalogError> {
    bounded(what, name, limit)?;
    if name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        return Ok(());
    }
    Err(CatalogError::invalid(what, name, "letters of ASCII, digits, '-', '_' and '.' please"))
}

fn bounded(what: &'static str, name: &str, limit: usize) -> Result<(), CatalogError> {
    if (1..=limit).contains(&name.len()) {
        return Ok(());
    }
    Err(CatalogError::invalid(what, name, format!("it has 1 to {limit} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_their_users_need_and_no_more() {
        for name in ["Point", "com.example.Point$Inner", "größe", "_x1"] {
            assert!(class(name).is_ok(), "{name}");
        }
        for name in ["", ".", "a..b", "1a", "a/b", "a b", "a\u{0}", &"x".repeat(256)] {
            assert!(class(name).is_err(), "{name}");
        }
        assert!(field("x").is_ok() && field("a.b").is_err());
        assert!(user("ann@example.org").is_ok() && user("a/b").is_err() && user("").is_err());
        assert!(user(MEMBER).is_err());
        assert!(space("main").is_ok() && space("größe").is_err() && space(&"x".repeat(65)).is_err());
        assert!(addresses(&["127.0.0.1:7000".into()]).is_ok() && addresses(&[]).is_err());
        assert!(addresses(&["a b".into()]).is_err());
    }
}
