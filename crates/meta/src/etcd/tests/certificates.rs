//! Certificates for members and clients, in files that end with the test.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use tempfile::TempDir;
use wire::transport::tls::{Client, ClientFiles, Identity};

/// An authority and the files of what it has issued.
pub(super) struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A certificate for a host: a member's, or a client's.
    pub(super) fn issue(&self, host: &str) -> Identity {
        self.write(host, |_| {})
    }

    /// A certificate for a host that has expired.
    pub(super) fn issue_expired(&self, host: &str) -> Identity {
        self.write(host, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    /// A certificate of a client without a common name.
    pub(super) fn issue_unnamed(&self, host: &str) -> Identity {
        self.write(host, |params| params.distinguished_name = DistinguishedName::new())
    }

    fn write(&self, host: &str, change: impl Fn(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        // etcd's gateway is a client of its own member, with the member's certificate.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |name: String| self.dir.path().join(name);
        let identity = Identity { certificate: file(format!("{host}.pem")), key: file(format!("{host}.key")) };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    /// A client that trusts this authority, and shows a certificate.
    pub(super) fn client(&self, identity: Option<Identity>) -> Client {
        Client::load(ClientFiles { ca: self.ca(), identity, name: None }).unwrap()
    }
}
