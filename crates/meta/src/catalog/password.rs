//! Passwords. The catalogue stores argon2id hashes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use blake2::{Blake2s256, Digest as _};
use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use wire::tasks;

use super::account::User;
use super::error::CatalogError;
use crate::limits;

/// KiB of memory for one check: OWASP's minimum for two passes.
const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
const PASSES: u32 = 2;
/// Most KiB of memory for one check, whatever the catalogue contains.
const MAX_MEMORY_KIB: u32 = 256 * 1024;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 4;
/// How many times as much as one of [`hash`] a hash may take that a user gives.
const MAX_MULTIPLE: u32 = 4;
/// Most bytes of a hash in its text form.
const MAX_HASH_BYTES: usize = 512;

/// The hash that passwords of unknown users are checked against, so that the time taken does not reveal which users exist. It
/// has the parameters of [`hash`], and its password is unknown.
const DUMMY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn argon2() -> Argon2<'static> {
    // The constants are within the allowed range; the defaults are equal.
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).unwrap_or_default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Checks the length of a new password. Any characters are allowed (NIST SP 800-63B).
///
/// # Errors
/// [`CatalogError::PasswordLength`]; the message does not contain the password.
pub fn check_password(password: &str) -> Result<(), CatalogError> {
    let (characters, bytes) = (password.chars().count(), password.len());
    if characters < limits::PASSWORD_CHARACTERS {
        let characters = format!("{characters} {}", if characters == 1 { "character" } else { "characters" });
        let needed = format!("at least {}; a few words are easy to remember", limits::PASSWORD_CHARACTERS);
        return Err(CatalogError::PasswordLength { length: characters, needed });
    }
    if bytes > limits::PASSWORD {
        let needed = format!("at most {}", limits::PASSWORD);
        return Err(CatalogError::PasswordLength { length: format!("{bytes} bytes"), needed });
    }
    Ok(())
}

/// Hashes a password with a random salt. Takes as long as [`verify`].
pub(super) fn hash(password: &str) -> Result<String, CatalogError> {
    check_password(password)?;
    let salt: [u8; 16] = rand::random();
    let hash: PasswordHash = argon2()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .map_err(|cause| Error::new(ErrorKind::Internal, format!("a password cannot be hashed: {cause}")))?;
    Ok(hash.to_string())
}

/// Checks a hash from the catalogue or from a request.
pub(super) fn check_hash(text: &str) -> Result<(), CatalogError> {
    let refuse = |why: &str| Err(CatalogError::invalid("the hash of a password", "the given text", why));
    if text.len() > MAX_HASH_BYTES {
        return refuse("it is too long");
    }
    let Ok(hash) = PasswordHash::new(text) else { return refuse("it is not in the PHC format") };
    let Ok(params) = Params::try_from(&hash) else { return refuse("its parameters are not those of argon2") };
    if hash.algorithm.as_str() != "argon2id" {
        return refuse("it is not argon2id");
    }
    if params.m_cost() > MAX_MEMORY_KIB || params.t_cost() > MAX_PASSES || params.p_cost() > MAX_LANES {
        return refuse("checking it would take too long");
    }
    Ok(())
}

/// The same of a hash that a user gives: checking it costs a few times as much as checking one of [`hash`], at most, since anybody who knows
/// the user's name can cause checks.
pub(super) fn check_new_hash(text: &str) -> Result<(), CatalogError> {
    check_hash(text)?;
    let params = PasswordHash::new(text).ok().and_then(|hash| Params::try_from(&hash).ok());
    let is_cheap = |params: Params| {
        let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
        params.m_cost() <= MAX_MULTIPLE * MEMORY_KIB && work <= u64::from(MAX_MULTIPLE * MEMORY_KIB * PASSES)
    };
    if params.is_some_and(is_cheap) {
        return Ok(());
    }
    let why = format!(
        "checking it would take too long: it may take {MAX_MULTIPLE} times what m={MEMORY_KIB},t={PASSES} takes, and {MAX_MULTIPLE} times \
         that memory"
    );
    Err(CatalogError::invalid("the hash of a password", "the given text", why))
}

/// Whether a password matches a hash. Without a hash the answer is no, after the same time.
pub(super) fn verify(hash: Option<&str>, password: &str) -> bool {
    let Ok(parsed) = PasswordHash::new(hash.unwrap_or(DUMMY_HASH)) else { return false };
    let is_right = password.len() <= limits::PASSWORD && argon2().verify_password(password.as_bytes(), &parsed).is_ok();
    is_right && hash.is_some()
}

/// Number of correct passwords that are remembered, so that reconnecting users are not checked again.
const MAX_RECENT: usize = 4096;
/// How long they are remembered.
const RECENT_TTL: Duration = Duration::from_secs(600);
/// Most waiting checks. Further ones are refused, because they would wait for minutes.
const MAX_WAITING: usize = 256;

/// Checks passwords on blocking threads, a few at a time: each check takes 19 MiB and some tens of milliseconds, and any client can
/// cause one. Clones share the limit.
#[derive(Clone)]
pub struct PasswordChecker {
    inner: Arc<Inner>,
}

struct Inner {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Random for each process.
    salt: [u8; 32],
    recent: Mutex<HashMap<Digest, Instant>>,
}

type Digest = [u8; 32];

impl std::fmt::Debug for PasswordChecker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("places", &self.inner.permits).finish_non_exhaustive()
    }
}

/// Counts a waiting check until it is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PasswordChecker {
    /// A checker that runs this many checks at a time; others wait.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        let places = Arc::new(Semaphore::new(at_once.max(1)));
        let (waiting, recent) = (AtomicUsize::new(0), Mutex::default());
        Self { inner: Arc::new(Inner { permits: places, waiting, salt: rand::random(), recent }) }
    }

    /// Whether a password is that of a user. The caller checks whether the user may log in. An unknown user is `None`, which takes
    /// as long as a wrong password.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if too many checks are waiting, or the process ends.
    pub async fn verify(&self, user: Option<Arc<User>>, password: String) -> Result<bool> {
        let digest = user.as_ref().and_then(|user| self.inner.digest(user, &password));
        if digest.is_some_and(|digest| self.inner.is_recent(&digest)) {
            return Ok(true);
        }
        let waiting = self.inner.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitingGuard(&self.inner.waiting);
        if waiting >= MAX_WAITING {
            return Err(Error::new(ErrorKind::Unavailable, "too many users log in at the same time: try again"));
        }
        let ending = || Error::new(ErrorKind::Unavailable, "the server is shutting down: connect to another one");
        let place = self.inner.permits.clone().acquire_owned().await.map_err(|_| ending())?;
        let checked = tasks::spawn_blocking(move || {
            let is_right = verify(user.as_ref().and_then(|user| user.password.as_deref()), &password);
            drop(place);
            is_right
        });
        let is_right = checked.await.map_err(|_| ending())?;
        if let Some(digest) = digest.filter(|_| is_right) {
            self.inner.remember(digest);
        }
        Ok(is_right)
    }
}

impl Inner {
    /// The digest by which a correct password is remembered. It depends on the password and its hash.
    fn digest(&self, user: &User, password: &str) -> Option<Digest> {
        let known = user.password.as_deref()?;
        let mut digest = Blake2s256::new();
        for part in [&self.salt[..], known.as_bytes(), password.as_bytes()] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Some(digest.finalize().into())
    }

    fn is_recent(&self, digest: &Digest) -> bool {
        self.recent.lock().get(digest).is_some_and(|at| at.elapsed() < RECENT_TTL)
    }

    fn remember(&self, digest: Digest) {
        let mut recent = self.recent.lock();
        if recent.len() >= MAX_RECENT {
            recent.retain(|_, at| at.elapsed() < RECENT_TTL);
        }
        if recent.len() >= MAX_RECENT {
            recent.clear();
        }
        recent.insert(digest, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_matches_its_hash_and_no_other() {
        let kept = hash("correct horse").unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert!(check_hash(&kept).is_ok());
        assert!(verify(Some(&kept), "correct horse"));
        assert!(!verify(Some(&kept), "correct horses"));
        assert!(!verify(Some(&kept), ""));
        assert!(!verify(None, "correct horse"));
        assert_ne!(kept, hash("correct horse").unwrap(), "each hash has its own salt");
    }

    #[test]
    fn invalid_and_expensive_hashes_are_refused() {
        assert!(check_hash(DUMMY_HASH).is_ok());
        for text in [
            "",
            "secret",
            "$argon2id$v=19$m=99999999,t=2,p=1$bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2i$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2id$v=19$m=19456,t=2000,p=1$bm9ib2R5bm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(check_hash(text).is_err(), "{text}");
        }
    }

    #[test]
    fn given_hash_takes_a_few_times_as_much_as_others_at_most() {
        for (m, t, is_allowed) in [
            (19_456, 2, true),
            (65_536, 2, true),
            (12_288, 3, true),
            (77_824, 2, true),
            (19_456, 8, true),
            (19_456, 9, false),
            (77_825, 1, false),
            (262_144, 16, false),
        ] {
            let text = DUMMY_HASH.replace("m=19456,t=2", &format!("m={m},t={t}"));
            assert_eq!(check_new_hash(&text).is_ok(), is_allowed, "{text}");
            assert!(check_hash(&text).is_ok(), "one that is in the catalogue is read");
        }
        assert!(check_new_hash("secret").is_err());
    }

    #[test]
    fn lengths_of_passwords_are_checked() {
        for right in ["correct horse", "12345678", "пароль йо", &"x".repeat(limits::PASSWORD)] {
            assert!(check_password(right).is_ok(), "{right}");
        }
        // Seven characters of two bytes each count as seven.
        for wrong in ["", "x", "1234567", "парольй", &"x".repeat(limits::PASSWORD + 1)] {
            let refused = hash(wrong).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            let message = refused.to_string();
            assert!(message.contains("at least") || message.contains("at most"), "{message}");
            assert!(wrong.len() < 2 || !message.contains(wrong), "{message}");
        }
        let refused = hash("short").unwrap_err().to_string();
        assert!(refused.starts_with("the password has 5 characters; it must have at least 8"), "{refused}");
    }

    fn user(password: &str) -> Option<Arc<User>> {
        let password = Some(hash(password).unwrap());
        Some(Arc::new(User { name: "ann".to_owned(), password, groups: [].into(), disabled: false }))
    }

    #[tokio::test]
    async fn correct_passwords_are_remembered_until_they_change() {
        let verifier = PasswordChecker::new(1);
        let ann = user("xxxxxxxx");
        assert!(!verifier.verify(ann.clone(), "y".to_owned()).await.unwrap());
        assert!(verifier.inner.recent.lock().is_empty(), "a wrong password is not remembered");
        assert!(verifier.verify(ann.clone(), "xxxxxxxx".to_owned()).await.unwrap());
        // No permit is free, so only a remembered password can succeed.
        let place = verifier.inner.permits.clone().acquire_owned().await.unwrap();
        assert!(verifier.verify(ann.clone(), "xxxxxxxx".to_owned()).await.unwrap());
        let waits = async |user, password: &str| {
            let checked = verifier.verify(user, password.to_owned());
            tokio::time::timeout(Duration::from_millis(50), checked).await.is_err()
        };
        assert!(waits(ann, "y").await, "another password is checked");
        assert!(waits(user("xxxxxxxx"), "xxxxxxxx").await, "another hash is checked");
        drop(place);
        assert!(!verifier.verify(None, "xxxxxxxx".to_owned()).await.unwrap());
    }

    #[tokio::test]
    async fn checks_beyond_the_limit_of_waiting_ones_are_refused() {
        let verifier = PasswordChecker::new(1);
        verifier.inner.waiting.store(MAX_WAITING, Ordering::Relaxed);
        let refused = verifier.verify(user("xxxxxxxx"), "xxxxxxxx".to_owned()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert_eq!(verifier.inner.waiting.load(Ordering::Relaxed), MAX_WAITING, "a refused check does not wait");
    }
}
