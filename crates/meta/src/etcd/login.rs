//! The user of etcd, whose password is in a file that only its owner can read.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::{Error, ErrorKind, Result};

/// Most bytes of a password and the end of its line.
const MAX_PASSWORD_FILE: u64 = 4096;

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The file with the password, on its first line. It is read at each login, so it can be replaced while processes run.
    pub password_file: PathBuf,
}

impl EtcdUser {
    /// Reads the password.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such file, [`ErrorKind::Denied`] if others can read it, [`ErrorKind::Invalid`] if it has no
    /// password, or more than one line.
    pub(super) fn password(&self) -> Result<String> {
        read_password(&self.password_file)
    }
}

fn read_password(path: &Path) -> Result<String> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
        Error::new(kind, format!("the file {shown} with etcd's password cannot be read")).with_source(error)
    };
    let invalid = |why: &str| Error::new(ErrorKind::Invalid, format!("the file {shown} with etcd's password {why}"));
    let file = fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        let what = format!("the file {shown} with etcd's password can be read by others: type `chmod 600 {shown}`");
        return Err(Error::new(ErrorKind::Denied, what));
    }
    let mut text = String::new();
    let read = file.take(MAX_PASSWORD_FILE + 1).read_to_string(&mut text);
    read.map_err(|_| invalid("has something else than a line of text"))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    match () {
        () if text.len() as u64 > MAX_PASSWORD_FILE => Err(invalid("is too long")),
        () if password.is_empty() => Err(invalid("is empty")),
        () if password.chars().any(char::is_control) => Err(invalid("has more than one line, or a control character")),
        () => Ok(password.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn password_is_one_line_of_a_file_that_others_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let user = EtcdUser { name: "mortar".to_owned(), password_file: path.clone() };
        assert_eq!(user.password().unwrap_err().kind(), ErrorKind::NotFound);
        for text in ["secret", "secret\n", "secret\r\n"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(user.password().unwrap(), "secret", "{text:?}");
        }
        for text in ["", "\n", "two\nlines\n", &"x".repeat(5000)] {
            fs::write(&path, text).unwrap();
            let error = user.password().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text:?}");
            assert!(!text.contains("two") || !error.to_string().contains("two"), "{error}");
        }
        fs::write(&path, "secret\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = user.password().unwrap_err();
        assert!(error.kind() == ErrorKind::Denied && error.message().contains("chmod 600"), "{error}");
    }
}
