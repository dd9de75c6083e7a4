//! `mortar cert`: creates an authority and certificates, for trying TLS.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use meta::catalog::NODE_CERTIFICATE_NAME;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde::Serialize;

use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output, Report};

const EXAMPLES: &str = "\
Examples:
  mortar cert certs                         an authority, and a certificate for servers on this machine
  mortar cert certs --host db1 --host 10.0.0.7
  mortar cert certs --for-user ann          with which ann comes without a password

Files: ca.pem, which all programs trust; node.pem and node.key of the servers; ann.pem and ann.key; and ca.key, which signed \
all of them: its owner can impersonate everyone. Existing files are kept: with --host, an existing node.pem is a conflict. This is for \
trying: an organisation has an authority already, and its certificates expire.";

/// Make an authority and certificates for trying TLS
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cert {
    /// Where the files go; made if it does not exist
    dir: PathBuf,
    /// A name or an address by which the servers are dialled, beside those of this machine; may be repeated
    #[arg(long = "host", value_name = "HOST", value_parser = NonEmptyStringValueParser::new())]
    hosts: Vec<String>,
    /// Make a certificate for this user; may be repeated
    #[arg(long = "for-user", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    users: Vec<String>,
}

#[derive(Serialize)]
struct CertificateFiles {
    certificate: String,
    key: String,
}

impl Report for CertificateFiles {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  {}", self.certificate, self.key)
    }
}

/// Names and addresses of this machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

pub(crate) fn run(args: &Cert, output: &mut Output) -> Result {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&args.dir)
        .map_err(|e| Failure::file(format!("cannot make {}", args.dir.display()), &e))?;
    let authority = load_or_create_authority(&args.dir, output)?;
    let users: BTreeSet<&String> = args.users.iter().collect();
    users.into_iter().try_for_each(|user| {
        if user.contains('/') || user.starts_with('.') {
            return Err(Failure::usage(format!("{user:?} is not a valid user name")));
        }
        if !issue(&args.dir, (user, user), Vec::new(), &authority, output)? && !output.is_quiet() {
            output::warn(output.json(), "kept", &describe_kept(&args.dir, user, &format!("user {user}")));
        }
        Ok(())
    })?;
    let hosts = LOCAL_NAMES.iter().map(ToString::to_string).chain(args.hosts.iter().cloned());
    let is_made = issue(&args.dir, ("node", NODE_CERTIFICATE_NAME), hosts.collect(), &authority, output)?;
    if !is_made && !args.hosts.is_empty() {
        return Err(Failure::conflict(describe_kept(&args.dir, "node", &args.hosts.join(", "))));
    }
    Ok(())
}

/// Says that a certificate exists, and how to get one for what was asked for.
fn describe_kept(dir: &Path, file: &str, whom: &str) -> String {
    let certificate = dir.join(format!("{file}.pem"));
    format!("{} exists and was kept: remove {file}.pem and {file}.key to make one for {whom}", certificate.display())
}

/// The parameters of the authority's certificate. They are constant, so the certificate can be made again from the key.
fn authority_params() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new()).map_err(certificate_failure)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "Mortar authority for trying");
    Ok(params)
}

/// The authority of a directory, created if it does not exist.
fn load_or_create_authority(dir: &Path, output: &mut Output) -> Result<Issuer<'static, KeyPair>> {
    let (certificate, key) = (dir.join("ca.pem"), dir.join("ca.key"));
    let params = authority_params()?;
    if key.exists() {
        let pem = fs::read_to_string(&key).map_err(|e| Failure::file(format!("cannot read {}", key.display()), &e))?;
        return Ok(Issuer::new(params, KeyPair::from_pem(&pem).map_err(certificate_failure)?));
    }
    let pair = KeyPair::generate().map_err(certificate_failure)?;
    let signed = params.self_signed(&pair).map_err(certificate_failure)?;
    write((&certificate, &signed.pem()), (&key, &pair.serialize_pem()), output)?;
    Ok(Issuer::new(params, pair))
}

/// Creates a certificate unless it exists. Returns whether it did.
fn issue(
    dir: &Path,
    (file, name): (&str, &str),
    hosts: Vec<String>,
    authority: &Issuer<'static, KeyPair>,
    output: &mut Output,
) -> Result<bool> {
    let (certificate, key) = (dir.join(format!("{file}.pem")), dir.join(format!("{file}.key")));
    if key.exists() {
        return Ok(false);
    }
    let is_server = !hosts.is_empty();
    let mut params = CertificateParams::new(hosts).map_err(certificate_failure)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if is_server {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let pair = KeyPair::generate().map_err(certificate_failure)?;
    let signed = params.signed_by(&pair, authority).map_err(certificate_failure)?;
    write((&certificate, &signed.pem()), (&key, &pair.serialize_pem()), output)?;
    Ok(true)
}

/// Writes a certificate and its key, which only the owner can read.
fn write(certificate: (&Path, &str), key: (&Path, &str), output: &mut Output) -> Result {
    for ((path, text), mode) in [(certificate, 0o644), (key, 0o600)] {
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        made.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| Failure::file(format!("cannot write {}", path.display()), &e))?;
    }
    let (certificate, key) = (certificate.0.display().to_string(), key.0.display().to_string());
    output.print(&CertificateFiles { certificate, key })
}

fn certificate_failure(error: rcgen::Error) -> Failure {
    Failure::with(Exit::Usage, "certificate", format!("a certificate cannot be made: {error}"))
}
