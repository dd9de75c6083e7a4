//! Encrypted archives, in the format of age (<https://age-encryption.org/v1>): each 64 KiB are authenticated, and so are their order and the
//! end. docs/decisions/encrypted-backups.md says why.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::iter;
use std::path::{Path, PathBuf};

use age::secrecy::SecretString;
use age::{DecryptError, Decryptor, EncryptError, Encryptor, IdentityFile};
use clap::Args;
use model::{Error, ErrorKind};

use super::read_failure;
use crate::failure::{Exit, Failure, Result};
use crate::password;

/// The first bytes of an encrypted archive.
const MAGIC: &[u8] = b"age-encryption.org/";
/// How archives begin that are not encrypted, of all formats.
const PLAIN: &[u8] = b"mort";
/// How the last line of its header begins, and most bytes of the header.
const LAST_LINE: &[u8] = b"--- ";
const MAX_HEADER: u64 = 64 << 10;
/// How a secret key begins, which is no recipient.
const SECRET_KEY: &str = "AGE-SECRET-KEY";
/// Most bytes of a file with keys or a passphrase.
const MAX_KEY_FILE: u64 = 64 << 10;
/// The work of a passphrase in steps, as a power of 2: a quarter of a GiB of memory and about a second. By itself age measures what this machine does in a
/// second, so an archive of a busy machine would be weak, and a busy or slow one would refuse that of another.
const WORK_FACTOR: u8 = 18;
/// The most work that an archive may demand: 1 GiB of memory.
const MAX_WORK_FACTOR: u8 = 20;

/// For whom an archive is encrypted
#[derive(Args, Default)]
pub(crate) struct EncryptArgs {
    /// Encrypt the archive for this public key of age (age1…); repeat it for more than one
    #[arg(long, value_name = "RECIPIENT", conflicts_with = "passphrase_file")]
    encrypt_to: Vec<String>,
    /// Encrypt the archive with the passphrase in the first line of this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// How an encrypted archive is read
#[derive(Args, Clone, Default)]
pub(crate) struct DecryptArgs {
    /// Decrypt the archive with the secret keys in this file (AGE-SECRET-KEY-1…); an archive that is not encrypted is refused
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file")]
    identity: Option<PathBuf>,
    /// Decrypt the archive with the passphrase in the first line of this file; an archive that is not encrypted is refused
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// What an archive is written to.
pub(super) enum ArchiveOutput {
    Plain(Box<dyn Write + Send>),
    Encrypted(Box<age::stream::StreamWriter<Box<dyn Write + Send>>>),
}

impl ArchiveOutput {
    /// Writes what is left. Without it an encrypted archive is incomplete.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut out) => out.flush(),
            Self::Encrypted(out) => out.finish()?.flush(),
        }
    }
}

impl Write for ArchiveOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Encrypted(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Encrypted(out) => out.flush(),
        }
    }
}

impl EncryptArgs {
    /// Reads the keys. It does so before anything is asked of a cluster.
    pub(super) fn encryptor(&self) -> Result<Option<Encryptor>> {
        if let Some(file) = &self.passphrase_file {
            let mut recipient = age::scrypt::Recipient::new(read_passphrase(file)?);
            recipient.set_work_factor(WORK_FACTOR);
            let encryptor = Encryptor::with_recipients(iter::once(&recipient as _));
            return encryptor.map(Some).map_err(|error| Failure::usage(format!("--passphrase-file: {error}")));
        }
        if self.encrypt_to.is_empty() {
            return Ok(None);
        }
        let recipients = self.encrypt_to.iter().map(|text| parse_recipient(text)).collect::<Result<Vec<_>>>()?;
        let encryptor = Encryptor::with_recipients(recipients.iter().map(|recipient| recipient as _));
        encryptor.map(Some).map_err(|error: EncryptError| Failure::usage(format!("--encrypt-to: {error}")))
    }
}

/// What an archive is written to, encrypted if there is an encryptor.
pub(super) fn wrap_archive_output(
    out: Box<dyn Write + Send>,
    encryptor: Option<Encryptor>,
) -> io::Result<ArchiveOutput> {
    match encryptor {
        None => Ok(ArchiveOutput::Plain(out)),
        Some(encryptor) => Ok(ArchiveOutput::Encrypted(Box::new(encryptor.wrap_output(out)?))),
    }
}

fn parse_recipient(text: &str) -> Result<age::x25519::Recipient> {
    if text.to_ascii_uppercase().starts_with(SECRET_KEY) {
        // It is not shown: errors are logged and sent by mail.
        return Err(Failure::usage(
            "--encrypt-to: this is a secret key, and users of this machine may have seen it in the list of processes",
        )
        .hint("Make another key. --encrypt-to takes its public key, which begins with age1."));
    }
    text.parse().map_err(|why: &str| {
        Failure::usage(format!("--encrypt-to {text}: {why}")).hint(
            "A recipient is a public key of age, which begins with age1: `age-keygen -o KEY` makes a pair of keys.",
        )
    })
}

impl DecryptArgs {
    /// For the base of a backup that is encrypted like it.
    pub(super) fn of_base(identity: Option<PathBuf>, encryption: &EncryptArgs) -> Self {
        Self { identity, passphrase_file: encryption.passphrase_file.clone() }
    }

    /// The bytes of an archive, decrypted if it is encrypted.
    pub(super) fn open(&self, mut archive: Box<dyn Read + Send>) -> Result<OpenedArchive> {
        let mut head = Vec::new();
        let read = (&mut archive).take(MAGIC.len() as u64).read_to_end(&mut head);
        read.map_err(|error| read_failure("cannot read the archive", &error))?;
        if head.len() < MAGIC.len() && MAGIC.starts_with(&head) {
            return Err(damage_failure(if head.is_empty() { "it is empty" } else { "it ends in its header" }));
        }
        let is_encrypted = head == MAGIC;
        let is_plain = head.starts_with(PLAIN);
        let archive = io::Cursor::new(head).chain(archive);
        match (is_encrypted, self.identities()?) {
            (false, None) => Ok(OpenedArchive { bytes: Box::new(archive), is_encrypted }),
            (true, None) => Err(Failure::with(Exit::Denied, "denied", "the archive is encrypted")
                .hint("Name the file with the secret key with --identity, or that with the passphrase with --passphrase-file.")),
            // With a key, the user expects an encrypted archive; one that is not encrypted may come from another writer.
            (false, Some(_)) if is_plain => {
                Err(Failure::usage("the archive is not encrypted, and a key for it was given")
                    .hint("Use it without a key if it is the right one."))
            }
            (false, Some(_)) => Err(damage_failure("it does not begin as an encrypted archive does")),
            (true, Some(identities)) => {
                let mut archive = BufReader::with_capacity(1 << 18, archive);
                let header = read_header(&mut archive)?;
                let archive = io::Cursor::new(header).chain(archive);
                let decryptor = Decryptor::new_buffered(archive).map_err(explain)?;
                let bytes = decryptor.decrypt(identities.iter().map(|identity| &**identity)).map_err(explain)?;
                Ok(OpenedArchive { bytes: Box::new(Authenticated(bytes)), is_encrypted })
            }
        }
    }

    /// The bytes of an archive that [`open`](Self::open) has accepted, of which any can be read without those before.
    pub(super) fn open_at_any_place(&self, file: File) -> Result<Box<dyn ReadSeek>> {
        let Some(identities) = self.identities()? else { return Ok(Box::new(file)) };
        let mut archive = BufReader::new(file);
        read_header(&mut archive)?;
        archive.rewind().map_err(|error| read_failure("cannot read the archive", &error))?;
        let decryptor = Decryptor::new_buffered(archive).map_err(explain)?;
        let bytes = decryptor.decrypt(identities.iter().map(|identity| &**identity)).map_err(explain)?;
        Ok(Box::new(bytes))
    }

    fn identities(&self) -> Result<Option<Vec<Box<dyn age::Identity>>>> {
        if let Some(file) = &self.passphrase_file {
            let mut identity = age::scrypt::Identity::new(read_passphrase(file)?);
            identity.set_max_work_factor(MAX_WORK_FACTOR);
            return Ok(Some(vec![Box::new(identity)]));
        }
        let Some(file) = &self.identity else { return Ok(None) };
        let text = read_key_file(file)?;
        let refuse = |why: String| Failure::usage(format!("{}: {why}", file.display()));
        let parsed = IdentityFile::from_buffer(text.as_bytes()).map_err(|error| refuse(error.to_string()))?;
        let identities = parsed.into_identities().map_err(|error| refuse(error.to_string()))?;
        match identities.is_empty() {
            true => Err(refuse("it has no secret key of age (AGE-SECRET-KEY-1…)".to_owned())),
            false => Ok(Some(identities)),
        }
    }
}

/// The bytes of an archive, and whether they were encrypted.
pub(super) struct OpenedArchive {
    pub(super) bytes: Box<dyn Read + Send>,
    pub(super) is_encrypted: bool,
}

/// Bytes of which any can be read.
pub(super) trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Reads the header of an encrypted archive up to its last line, or as much of it as an archive may have: its parser has no limit of its own.
fn read_header(archive: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut header = Vec::new();
    loop {
        let line = header.len();
        let room = MAX_HEADER.saturating_sub(line as u64);
        let read = archive.by_ref().take(room).read_until(b'\n', &mut header);
        let read = read.map_err(|error| explain(DecryptError::Io(error)))?;
        if read == 0 && room == 0 {
            return Err(damage_failure("the header of its encryption is too long"));
        }
        if read == 0 || header[line..].starts_with(LAST_LINE) {
            return Ok(header);
        }
    }
}

/// Bytes of an encrypted archive. Nothing that was not authenticated is returned.
struct Authenticated<R>(R);

impl<R: Read> Read for Authenticated<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                let what =
                    "it was altered or cut off, or bytes follow after its end: its encrypted bytes are not authentic";
                io::Error::new(io::ErrorKind::InvalidData, what)
            }
            _ => error,
        })
    }
}

fn explain(error: DecryptError) -> Failure {
    let denied = |what: &str| Failure::with(Exit::Denied, "denied", what);
    match error {
        DecryptError::NoMatchingKeys => denied("the archive is encrypted for other keys"),
        DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed => {
            denied("the archive is encrypted with another passphrase or key, or its header was altered")
        }
        DecryptError::ExcessiveWork { .. } => denied("the archive demands far too much work for its passphrase"),
        DecryptError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            damage_failure("it ends in the header of its encryption")
        }
        DecryptError::Io(error) => read_failure("cannot read the archive", &error),
        _ => damage_failure("the header of its encryption is damaged, or has an unknown format"),
    }
}

fn damage_failure(what: &str) -> Failure {
    Failure::local(Error::new(ErrorKind::Corrupt, format!("the archive is damaged: {what}; use another backup")))
}

fn read_key_file(path: &Path) -> Result<String> {
    password::check_private(path, "the key or passphrase")?;
    let read = || {
        let mut text = String::new();
        File::open(path)?.take(MAX_KEY_FILE + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error: io::Error| Failure::file(format!("cannot read {}", path.display()), &error))?;
    match text.len() as u64 > MAX_KEY_FILE {
        true => Err(Failure::usage(format!("{} has more than 64 KiB: it has no keys", path.display()))),
        false => Ok(text),
    }
}

fn read_passphrase(path: &Path) -> Result<SecretString> {
    let text = read_key_file(path)?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(SecretString::from(line.to_owned())),
        None => Err(Failure::usage(format!("{}: its first line has no passphrase", path.display()))),
    }
}
