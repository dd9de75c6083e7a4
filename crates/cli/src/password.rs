//! Passwords: from the environment, from a file, or from the terminal. Never from an argument, which other users can see.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use meta::catalog::check_password;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};

use crate::failure::{Failure, Result};

/// The environment variable with the password of the user that connects.
const VARIABLE: &str = "MORTAR_PASSWORD";
/// The environment variable with a new password.
const NEW_VARIABLE: &str = "MORTAR_NEW_PASSWORD";

/// The password from the file that was named, or else from the environment.
pub(crate) fn read_given(file: Option<&Path>) -> Result<Option<String>> {
    match file {
        Some(file) => read(file).map(Some),
        None => Ok(std::env::var(VARIABLE).ok()),
    }
}

/// A new password: from the file that was named, else the environment, else the terminal, where it is typed twice.
pub(crate) fn read_new(user: &str, file: Option<&Path>) -> Result<String> {
    if let Some(file) = file {
        return validate(read(file)?);
    }
    if let Ok(password) = std::env::var(NEW_VARIABLE) {
        return validate(password);
    }
    let hint = format!("Set {NEW_VARIABLE}, or give --new-password-file FILE.");
    // A password that is too short is refused before it is repeated.
    let first = validate(prompt(&format!("New password of {user}: ")).map_err(|failure| failure.hint(hint))?)?;
    if prompt("Repeat it: ")? != first {
        return Err(Failure::usage("the two passwords differ; nothing was changed"));
    }
    Ok(first)
}

/// Checks the length of a new password.
fn validate(password: String) -> Result<String> {
    check_password(&password).map_err(model::Error::from)?;
    Ok(password)
}

fn read(file: &Path) -> Result<String> {
    check_private(file, "the password")?;
    let cannot = |error| Failure::file(format!("the password in {} cannot be read", file.display()), &error);
    let mut line = String::new();
    File::open(file).and_then(|file| BufReader::new(file).read_line(&mut line)).map_err(cannot)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Checks that only its owner can read a file with a secret.
pub(crate) fn check_private(file: &Path, what: &str) -> Result {
    let place = file.display();
    let about = fs::metadata(file);
    let about = about.map_err(|error| Failure::file(format!("{what} in {place} cannot be read"), &error))?;
    // Only regular files are checked: other users cannot read others, such as a descriptor of the shell.
    match about.is_file() && about.mode() & 0o077 != 0 {
        true => Err(Failure::usage(format!("users other than the owner can read {what} in {place}"))
            .hint("Run chmod 600 on it.")),
        false => Ok(()),
    }
}

/// Reads a password from the terminal without echo.
pub(crate) fn prompt(prompt: &str) -> Result<String> {
    let no_terminal = || {
        Failure::usage("a password is needed, and there is no terminal to ask for it")
            .hint(format!("Set {VARIABLE}, or give --password-file FILE."))
    };
    let mut terminal = File::options().read(true).write(true).open("/dev/tty").map_err(|_| no_terminal())?;
    let shown = termios::tcgetattr(&terminal).map_err(|_| no_terminal())?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    let cannot = |error: std::io::Error| Failure::file("the terminal cannot be read", &error);
    write!(terminal, "{prompt}").map_err(cannot)?;
    let reading = terminal.try_clone().map_err(cannot)?;
    termios::tcsetattr(&terminal, OptionalActions::Flush, &hidden).map_err(|error| cannot(error.into()))?;
    let restored = RestoreTerminal { terminal: &terminal, original: shown };
    let mut line = String::new();
    let read = BufReader::new(reading).read_line(&mut line);
    drop(restored);
    // The end of the line was not echoed either.
    let _ = writeln!(terminal);
    match read.map_err(cannot)? {
        0 => Err(Failure::usage("no password was given")),
        _ => Ok(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}

/// Restores the echo of a terminal.
struct RestoreTerminal<'a> {
    terminal: &'a File,
    original: Termios,
}

impl Drop for RestoreTerminal<'_> {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = termios::tcsetattr(self.terminal, OptionalActions::Flush, &self.original);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn password_is_the_first_line_of_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        fs::write(&file, "correct horse\nnot this\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&file).is_err());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&file).unwrap(), "correct horse");
        assert!(read(&dir.path().join("none")).is_err());
    }
}
