//! Users of etcd: passwords, permissions, and tokens that expire.

use super::certificates::Authority;
use super::servers::MemberTls;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_log_in_with_their_password() {
    let mut servers = Servers::start(1).await;
    servers.require_users("secret").await;
    let with = |user: Option<EtcdUser>| Etcd::new(&EtcdConfig { user, ..servers.config() }).unwrap();
    let store = with(Some(servers.user_with("root", "secret")));
    assert!(is_done(store.write(vec![], vec![KeyChange::put(key("a"), "1")]).await));
    let mut watch = store.watch(Prefix::all(), Revision(0)).await.unwrap();
    assert!(matches!(watch.next().await.unwrap(), crate::WatchEvent::Changed(_)));
    let missing = (None, "give etcd_user");
    let wrong = (Some(servers.user_with("root", "wrong")), "invalid user ID or password");
    for (user, words) in [missing, wrong] {
        let store = with(user);
        let mut watch = store.watch(Prefix::all(), Revision(0)).await.unwrap();
        let read = store.read(Prefix::all()).await.unwrap_err();
        let write = store.write(vec![], vec![KeyChange::put(key("a"), "2")]).await.unwrap_err();
        assert_eq!(watch.next().await.unwrap_err().kind(), ErrorKind::Denied, "{words}");
        for error in [read, write] {
            assert!(error.kind() == ErrorKind::Denied && error.message().contains(words), "{error}");
        }
    }
}

/// The documentation names these permissions, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_for_the_prefix_of_the_namespace_is_enough() {
    let mut servers = Servers::start(1).await;
    servers.require_users("secret").await;
    let user = servers.add_user("mortar", "word", "test/").await;
    conformance::run(&Namespaces { servers: &servers, user: Some(user.clone()), given: 1.into() }).await;
    // Everything else is refused to this user.
    let other = Etcd::new(&EtcdConfig { namespace: "other".into(), user: Some(user), ..servers.config() }).unwrap();
    let read = other.read(Prefix::all()).await.unwrap_err();
    let write = other.write(vec![], vec![KeyChange::put(key("a"), "1")]).await.unwrap_err();
    let mut watch = other.watch(Prefix::all(), Revision(0)).await.unwrap();
    for error in [read, write, watch.next().await.unwrap_err()] {
        assert!(error.kind() == ErrorKind::Denied && error.message().contains("permission denied"), "{error}");
    }
}

/// etcd's gateway knows no users by certificates, and refuses requests that look so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_beside_a_user_has_no_common_name() {
    let authority = Authority::new();
    let client = |identity| authority.client(Some(identity));
    let (identity, client_ca) = (authority.issue("127.0.0.1"), Some(authority.ca()));
    let tls = MemberTls { identity, client_ca, client: client(authority.issue_unnamed("unnamed")) };
    let mut servers = Servers::start_with(1, Some(tls)).await;
    servers.require_users("secret").await;
    let store = Etcd::new(&servers.config()).unwrap();
    assert!(is_done(store.write(vec![], vec![KeyChange::put(key("a"), "1")]).await));
    let named = EtcdConfig { tls: Some(client(authority.issue("named"))), ..servers.config() };
    let error = Etcd::new(&named).unwrap().read(Prefix::all()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.message().contains("common name"), "{error}");
}

/// Members keep tokens in memory, so all of them expire at a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_tokens_and_replaced_passwords_are_renewed() {
    let mut servers = Servers::start(1).await;
    servers.require_users("secret").await;
    let user = servers.add_user("mortar", "word", "mortar/").await;
    let store = Etcd::new(&EtcdConfig { user: Some(user.clone()), ..servers.config() }).unwrap();
    let start = store.read(Prefix::all()).await.unwrap().revision;
    let mut watch = store.watch(Prefix::all(), start).await.unwrap();
    let put = async |value: &'static str| is_done(store.write(vec![], vec![KeyChange::put(key("a"), value)]).await);
    assert!(put("1").await);
    let session = store.open_session(Duration::from_secs(60)).await.unwrap();
    servers.kill(0);
    servers.run(0);
    assert!(put("2").await);
    store.renew_session(session.id).await.unwrap();
    servers.change_password("mortar", "new-word").await;
    std::fs::write(&user.password_file, "new-word\n").unwrap();
    assert!(put("3").await);
    // Any other change of users makes the token old, too.
    servers.add_user("another", "word", "another/").await;
    assert!(put("4").await);
    assert_eq!(value(&store, "a").await.as_deref(), Some("4"));
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let next = time::timeout(Duration::from_secs(60), watch.next()).await.expect("the watch goes on");
        let crate::WatchEvent::Changed(batch) = next.unwrap() else { panic!("the history is known") };
        seen.extend(batch.changes.into_iter().map(|one| one.entry.unwrap().value));
    }
    assert_eq!(seen, ["1", "2", "3", "4"]);
}
