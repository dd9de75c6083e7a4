//! The etcd that keeps the catalogue of a meta-server: its members, and how they are reached.

use std::net::IpAddr;
use std::path::PathBuf;

use meta::{EtcdConfig, EtcdUser};
use wire::transport::tls::{Client, ClientFiles, Identity};

use super::{PartialSettings, SettingLine, comment_unless, line, toml_list, toml_string};
use crate::failure::{Failure, Result};

/// An etcd that keeps the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct EtcdSettings {
    /// The URLs of its members.
    members: Vec<String>,
    /// The prefix of all keys, if not the default.
    namespace: Option<String>,
    /// The authorities that are trusted for members with `https`.
    ca: Option<PathBuf>,
    /// The client certificate and its key, if etcd requires one.
    identity: Option<Identity>,
    /// The user, if etcd requires one.
    user: Option<EtcdUser>,
}

/// A member in the file of a meta-server that does not use etcd.
const EXAMPLE_MEMBER: &str = "http://127.0.0.1:2379";
/// The default prefix of all keys.
const NAMESPACE: &str = "mortar";

/// Whether the host of a URL is this machine.
fn is_on_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl EtcdSettings {
    /// The given settings of etcd; `None` without any.
    pub(super) fn of(given: &PartialSettings) -> Result<Option<Self>> {
        let PartialSettings { etcd_ca, etcd_cert, etcd_key, etcd_user, etcd_password_file, .. } = given;
        let Some(members) = given.etcd.clone() else {
            let files = [etcd_ca, etcd_cert, etcd_key, etcd_password_file];
            let others = [&given.etcd_namespace, etcd_user];
            return match files.iter().any(|one| one.is_some()) || others.iter().any(|one| one.is_some()) {
                true => Err(Failure::usage("settings of etcd need its members").hint("Give --etcd http://HOST:PORT.")),
                false => Ok(None),
            };
        };
        let is_secure = |url: &String| url.starts_with("https://");
        if etcd_cert.is_some() != etcd_key.is_some() {
            return Err(Failure::usage("etcd_cert and etcd_key go together: a certificate, and its key"));
        }
        if etcd_user.is_some() != etcd_password_file.is_some() {
            return Err(Failure::usage(
                "etcd_user and etcd_password_file go together: a user, and a file with its password",
            ));
        }
        if members.iter().any(is_secure) && etcd_ca.is_none() {
            return Err(Failure::usage("members of etcd with https:// need the authorities of their certificates")
                .hint("Give --etcd-ca FILE."));
        }
        if !members.iter().any(is_secure) && (etcd_ca.is_some() || etcd_cert.is_some()) {
            return Err(Failure::usage(
                "etcd_ca and etcd_cert have no effect: no member of etcd has an address with https://",
            ));
        }
        let is_exposed = |url: &String| !is_secure(url) && !is_on_loopback(url);
        if etcd_user.is_some() && members.iter().any(is_exposed) && !given.insecure.unwrap_or(false) {
            return Err(Failure::usage("the password of etcd would go over the network in clear text")
                .hint("Use https:// for members on other machines, or allow it with --insecure."));
        }
        if (etcd_user.is_some() || etcd_cert.is_some())
            && members.iter().any(is_secure)
            && !members.iter().all(is_secure)
        {
            return Err(Failure::usage(
                "some members of etcd have https:// and others http://: credentials need one of them for all",
            ));
        }
        let identity = etcd_cert.clone().zip(etcd_key.clone());
        let user = etcd_user.clone().zip(etcd_password_file.clone());
        Ok(Some(Self {
            members,
            namespace: given.etcd_namespace.clone(),
            ca: etcd_ca.clone(),
            identity: identity.map(|(certificate, key)| Identity { certificate, key }),
            user: user.map(|(name, password_file)| EtcdUser { name, password_file }),
        }))
    }

    /// The same for the store of the catalogue. Reads the files.
    pub(crate) fn config(&self) -> Result<EtcdConfig> {
        let files = self.ca.clone().map(|ca| ClientFiles { ca, identity: self.identity.clone(), name: None });
        let defaults = EtcdConfig::new(self.members.iter().cloned());
        Ok(EtcdConfig {
            namespace: self.namespace.clone().unwrap_or(defaults.namespace),
            user: self.user.clone(),
            tls: files.map(Client::load).transpose()?,
            ..defaults
        })
    }

    /// Where the catalogue is, for a person: `etcd http://HOST:PORT, namespace mortar`.
    pub(crate) fn place(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or(NAMESPACE);
        format!("etcd {}, namespace {namespace}", self.members.join(" "))
    }

    /// The lines of a file, of which those that were not given are comments.
    pub(super) fn lines(given: Option<&Self>) -> Vec<SettingLine> {
        let member = vec![EXAMPLE_MEMBER.to_owned()];
        let members = toml_list(given.map_or(member, |given| given.members.clone()).into_iter());
        let about = "Keep the catalogue in this etcd, 3.4 or later, in place of data: URLs of its members.";
        let mut lines = vec![comment_unless(given.is_some(), line(about, "etcd", members))];
        let mut text = |about: &'static str, key: &str, value: Option<String>, example: &str| {
            let shown = toml_string(value.as_deref().unwrap_or(example));
            lines.push(comment_unless(value.is_some(), line(about, key, shown)));
        };
        let path = |path: &PathBuf| path.display().to_string();
        let identity = given.and_then(|given| given.identity.as_ref());
        let user = given.and_then(|given| given.user.as_ref());
        let namespace = given.and_then(|given| given.namespace.clone());
        text("Prefix of all keys in etcd, so that clusters can share one.", "etcd_namespace", namespace, NAMESPACE);
        let ca = given.and_then(|given| given.ca.as_ref()).map(path);
        text("The authorities that it trusts for members of etcd with https://.", "etcd_ca", ca, "etcd-ca.pem");
        let certificate = identity.map(|own| path(&own.certificate));
        text("The client certificate that it shows to etcd, in PEM.", "etcd_cert", certificate, "etcd-client.pem");
        text("The key of that certificate.", "etcd_key", identity.map(|own| path(&own.key)), "etcd-client.key");
        text("The user of etcd.", "etcd_user", user.map(|user| user.name.clone()), "mortar");
        let password = user.map(|user| path(&user.password_file));
        let about = "The file with the password of that user, readable only by its owner.";
        text(about, "etcd_password_file", password, "etcd.password");
        lines
    }
}
