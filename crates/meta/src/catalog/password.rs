//! Passwords: kept as argon2id, so that whoever reads the catalogue does not have them.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use model::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use super::account::User;
use super::error::CatalogError;
use super::limits;

/// KiB of memory that one check takes: what OWASP recommends at least with two passes.
const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
const PASSES: u32 = 2;
/// Nobody who writes into the catalogue makes a check take more than this.
const MOST_MEMORY_KIB: u32 = 256 * 1024;
const MOST_PASSES: u32 = 16;
const MOST_LANES: u32 = 4;
/// Bytes of a hash in its text form.
const HASH: usize = 512;

/// What passwords of users that do not exist are checked against, so that the time taken does not tell who exists. It has
/// the parameters of [`hash`], and is of no password that anybody knows.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn argon2() -> Argon2<'static> {
    // The constants are within what is allowed; if not, the defaults are the same.
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).unwrap_or_default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Checks what is to become a password.
pub(super) fn check(password: &str) -> Result<(), CatalogError> {
    if password.is_empty() || password.len() > limits::PASSWORD {
        let why = format!("a password has 1 to {} bytes", limits::PASSWORD);
        return Err(CatalogError::invalid("a password", format!("{} bytes", password.len()), why));
    }
    Ok(())
}

/// The text that a password is kept as, different each time. Takes as long as [`verify`].
pub(super) fn hash(password: &str) -> Result<String, CatalogError> {
    check(password)?;
    let salt: [u8; 16] = rand::random();
    let hash: PasswordHash = argon2()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .map_err(|cause| Error::new(ErrorKind::Internal, format!("a password cannot be hashed: {cause}")))?;
    Ok(hash.to_string())
}

/// Checks a text that [`hash`] gave, from the catalogue.
pub(super) fn check_hash(text: &str) -> Result<(), CatalogError> {
    let refuse = |why: &str| Err(CatalogError::invalid("the hash of a password", "what is there", why));
    if text.len() > HASH {
        return refuse("it is too long");
    }
    let Ok(hash) = PasswordHash::new(text) else { return refuse("it is not in PHC's form") };
    let Ok(params) = Params::try_from(&hash) else { return refuse("its parameters are not those of argon2") };
    if hash.algorithm.as_str() != "argon2id" {
        return refuse("it is not argon2id");
    }
    if params.m_cost() > MOST_MEMORY_KIB || params.t_cost() > MOST_PASSES || params.p_cost() > MOST_LANES {
        return refuse("checking it would take too long");
    }
    Ok(())
}

/// Whether a password is the one that was kept so; with `None`, no, after as long a time.
pub(super) fn verify(hash: Option<&str>, password: &str) -> bool {
    let Ok(parsed) = PasswordHash::new(hash.unwrap_or(NOBODY)) else { return false };
    let is_right = password.len() <= limits::PASSWORD && argon2().verify_password(password.as_bytes(), &parsed).is_ok();
    is_right && hash.is_some()
}

/// Checks passwords on threads that may be held up, a few at a time: each takes 19 MiB and some tens of milliseconds, and
/// strangers decide how many there are.
#[derive(Clone, Debug)]
pub struct Verifier {
    places: Arc<Semaphore>,
}

impl Verifier {
    /// One that checks so many passwords at a time; others wait.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(at_once.max(1))) }
    }

    /// Whether somebody is who it says. A user that does not exist is `None`, and takes as long.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] while the process ends.
    pub async fn verify(&self, user: Option<Arc<User>>, password: String) -> Result<bool> {
        let ending = || Error::new(ErrorKind::Unavailable, "the server is going away: log in elsewhere");
        let place = self.places.clone().acquire_owned().await.map_err(|_| ending())?;
        let checked = tokio::task::spawn_blocking(move || {
            let is_right = user.as_ref().map_or_else(|| verify(None, &password), |user| user.has_password(&password));
            drop(place);
            is_right
        });
        checked.await.map_err(|_| ending())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_known_again_and_no_other_is() {
        let kept = hash("correct horse").unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert!(check_hash(&kept).is_ok());
        assert!(verify(Some(&kept), "correct horse"));
        assert!(!verify(Some(&kept), "correct horses"));
        assert!(!verify(Some(&kept), ""));
        assert!(!verify(None, "correct horse"));
        assert_ne!(kept, hash("correct horse").unwrap(), "each has its own salt");
    }

    #[test]
    fn hashes_that_are_none_or_too_dear_are_refused() {
        assert!(check_hash(NOBODY).is_ok());
        for text in [
            "",
            "secret",
            "$argon2id$v=19$m=99999999,t=2,p=1$bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2i$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2id$v=19$m=19456,t=2000,p=1$bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(check_hash(text).is_err(), "{text}");
        }
        assert!(hash("").is_err() && hash(&"x".repeat(limits::PASSWORD + 1)).is_err());
    }

    #[tokio::test]
    async fn those_who_do_not_exist_or_are_disabled_are_not_let_in() {
        let verifier = Verifier::new(1);
        let user = |disabled| {
            let password = Some(hash("x").unwrap());
            Some(Arc::new(User { name: "ann".to_owned(), password, groups: [].into(), disabled }))
        };
        assert!(verifier.verify(user(false), "x".to_owned()).await.unwrap());
        assert!(!verifier.verify(user(true), "x".to_owned()).await.unwrap());
        assert!(!verifier.verify(None, "x".to_owned()).await.unwrap());
    }
}
