//! Members that speak TLS, and members and clients whose certificates do not fit.

use super::certificates::Authority;
use super::servers::MemberTls;
use super::*;

/// How long a failure may take that no repetition helps: less than the time limit of an operation.
const PROMPTLY: Duration = Duration::from_secs(15);

/// Members with this certificate, reached by a client that trusts its authority and shows `host`'s certificate.
fn member_tls(authority: &Authority, identity: tls::Identity, client_ca: bool) -> MemberTls {
    let client = authority.client(Some(authority.issue("client")));
    MemberTls { identity, client_ca: client_ca.then(|| authority.ca()), client }
}

async fn check_refused(config: EtcdConfig, kind: ErrorKind, words: &str) {
    let store = Etcd::new(&config).unwrap();
    let within = |error: Result<Error, time::error::Elapsed>| error.expect("the failure comes late");
    let read = time::timeout(PROMPTLY, async { store.read(Prefix::all()).await.unwrap_err() });
    let write =
        time::timeout(PROMPTLY, async { store.write(vec![], vec![KeyChange::put(key("a"), "1")]).await.unwrap_err() });
    let watch = time::timeout(PROMPTLY, async {
        store.watch(Prefix::all(), Revision(0)).await.unwrap().next().await.unwrap_err()
    });
    for error in [within(read.await), within(write.await), within(watch.await)] {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(words), "{words:?} is not in {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms_over_tls_with_client_certificates() {
    let authority = Authority::new();
    let tls = member_tls(&authority, authority.issue("127.0.0.1"), true);
    let servers = Servers::start_with(1, Some(tls)).await;
    conformance::run(&Namespaces { servers: &servers, user: None, given: 1.into() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_do_not_fit_are_named_promptly() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = member_tls(&authority, authority.issue("127.0.0.1"), true);
    let servers = Servers::start_with(2, Some(tls)).await;
    let with = |client: tls::Client| EtcdConfig { tls: Some(client), ..servers.config() };
    let own = || Some(authority.issue("client"));
    check_refused(with(other.client(own())), ErrorKind::Denied, "authority that is not trusted").await;
    check_refused(with(authority.client(None)), ErrorKind::Denied, "requires a client certificate").await;
    let foreign = authority.client(Some(other.issue("client")));
    check_refused(with(foreign), ErrorKind::Denied, "received this client's certificate").await;
    let expired = authority.client(Some(authority.issue_expired("old-client")));
    check_refused(with(expired), ErrorKind::Denied, "received this client's certificate").await;
    let by_name = servers.urls().iter().map(|url| url.replace("127.0.0.1", "localhost")).collect();
    let config = EtcdConfig { endpoints: by_name, ..servers.config() };
    check_refused(config, ErrorKind::Denied, "connect by one of these names").await;
    let plain = servers.urls().iter().map(|url| url.replace("https", "http")).collect();
    let config = EtcdConfig { endpoints: plain, operation_timeout: Duration::from_secs(2), ..servers.config() };
    check_refused_without_watch(config, "https://").await;
}

/// A watch waits while no member is available.
async fn check_refused_without_watch(config: EtcdConfig, words: &str) {
    let store = Etcd::new(&config).unwrap();
    for error in [
        store.read(Prefix::all()).await.unwrap_err(),
        store.write(vec![], vec![KeyChange::put(key("a"), "1")]).await.unwrap_err(),
    ] {
        assert!(error.message().contains(words), "{words:?} is not in {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_certificate_of_a_member_is_named() {
    let authority = Authority::new();
    let tls = member_tls(&authority, authority.issue_expired("127.0.0.1"), false);
    let (client, mut servers) = (tls.client.clone(), Servers::prepare(1, Some(tls)));
    servers.run(0);
    servers.wait_listening(0).await;
    let config = EtcdConfig { tls: Some(client), ..servers.config() };
    check_refused(config, ErrorKind::Denied, "has expired").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_without_tls_is_named_and_another_one_is_used() {
    let authority = Authority::new();
    let (plain, secured) = (
        Servers::start(1).await,
        Servers::start_with(1, Some(member_tls(&authority, authority.issue("127.0.0.1"), false))).await,
    );
    let wrong = plain.urls()[0].replace("http", "https");
    let short = Duration::from_secs(2);
    let config = EtcdConfig { endpoints: vec![wrong.clone()], operation_timeout: short, ..secured.config() };
    check_refused_without_watch(config, "give its address as http://").await;
    // One member that does not fit is no reason to fail.
    let store =
        Etcd::new(&EtcdConfig { endpoints: vec![wrong, secured.urls()[0].clone()], ..secured.config() }).unwrap();
    assert!(is_done(store.write(vec![], vec![KeyChange::put(key("a"), "1")]).await));
    assert_eq!(value(&store, "a").await.as_deref(), Some("1"));
}
