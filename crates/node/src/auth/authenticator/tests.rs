use model::planted_bug::assert_noticed;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use meta::catalog::{CatalogEditor, Follower, Grantee, Parameters, Permission};
use meta::{Embedded, MetaStore};
use model::ErrorKind;
use tokio::task::JoinSet;
use wire::transport::PeerAddress;
use wire::transport::tls::Subject;

use super::super::Secret;
use super::*;

struct World {
    editor: CatalogEditor,
    follower: Follower,
    secret: Secret,
}

impl World {
    async fn new() -> Self {
        let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(store.clone());
        editor.set_up(&Parameters::generate()).await.unwrap();
        let follower = Follower::start(store).await.unwrap();
        Self { editor, follower, secret: Secret::generate() }
    }

    async fn with_users() -> Self {
        let world = Self::new().await;
        for name in ["root", "ann"] {
            let added = world.editor.create_user(name, Some("right one"), &[]).await.unwrap();
            world.follower.wait_for_revision(added.revision).await.unwrap();
        }
        world
    }

    fn authenticator(&self) -> Authenticator {
        Authenticator::new(
            ClusterCredentials { secret: Some(self.secret.clone()), ..ClusterCredentials::default() },
            None,
            false,
        )
    }

    async fn admit(&self, guard: &Authenticator, hello: Hello, peer: &RemoteEndpoint) -> Result<Principal> {
        guard.admit(Some(self.follower.catalog()), &hello, peer).await
    }
}

fn hello(role: Role, user: &str, password: &str) -> Hello {
    Hello { role: role.into(), user: user.to_owned(), password: password.to_owned(), ..Hello::default() }
}

fn peer_without_certificate() -> RemoteEndpoint {
    RemoteEndpoint {
        address: Some(PeerAddress::Ip(SocketAddr::from(([127, 0, 0, 1], 1)))),
        subject: None,
        is_private: true,
    }
}

fn endpoint_with_certificate(name: &str) -> RemoteEndpoint {
    let subject = Subject { name: format!("CN={name}"), common_name: Some(name.to_owned()) };
    RemoteEndpoint { subject: Some(subject), ..peer_without_certificate() }
}

impl World {
    /// A user that came with a certificate.
    async fn user(&self, name: &str) -> Principal {
        self.admit(&self.authenticator(), hello(Role::Client, "", ""), &endpoint_with_certificate(name)).await.unwrap()
    }
}

/// The name of the user that was let in.
fn name(who: &Principal) -> &str {
    let Principal::User(login) = who else { panic!("{who:?} is no user") };
    login.name()
}

#[tokio::test]
async fn anonymous_callers_are_admitted_until_there_is_a_user_and_never_from_other_machines() {
    let world = World::new().await;
    let guard = world.authenticator();
    for hello in [hello(Role::Client, "", ""), hello(Role::Brick, "", ""), hello(Role::Client, "ann", "x")] {
        assert_eq!(world.admit(&guard, hello, &peer_without_certificate()).await.unwrap(), Principal::Anonymous);
    }
    let exposed = Authenticator::new(ClusterCredentials::default(), None, true);
    let refused = world.admit(&exposed, hello(Role::Client, "", ""), &peer_without_certificate()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    let before = world.follower.catalog();
    assert!(Principal::Anonymous.check(Some(&before)).is_ok());
    let first = world.editor.create_user("root", Some("right one"), &[]).await.unwrap();
    let after = world.follower.wait_for_revision(first.revision).await.unwrap();
    let refused = world.admit(&guard, hello(Role::Client, "", ""), &peer_without_certificate()).await.unwrap_err();
    assert!(refused.message().contains("USER@"), "{refused}");
    assert!(Principal::Anonymous.check(Some(&after)).is_err(), "an anonymous caller is not admitted any more");
    assert_eq!(Principal::Anonymous.permission(Some(&after), "main"), None);
}

#[tokio::test]
async fn a_password_lets_its_user_in_and_refusals_do_not_tell_who_exists() {
    let world = World::with_users().await;
    let guard = world.authenticator();
    let who = world.admit(&guard, hello(Role::Client, "ann", "right one"), &peer_without_certificate()).await.unwrap();
    assert_eq!(name(&who), "ann");
    let wrong =
        world.admit(&guard, hello(Role::Client, "ann", "wrong"), &peer_without_certificate()).await.unwrap_err();
    let unknown_user =
        world.admit(&guard, hello(Role::Client, "unknown", "wrong"), &peer_without_certificate()).await.unwrap_err();
    assert_eq!((wrong.kind(), wrong.message()), (ErrorKind::Denied, unknown_user.message()));
    assert!(world.admit(&guard, hello(Role::Client, "ann", ""), &peer_without_certificate()).await.is_err());
}

async fn a_disabled_user_learns_it_only_by_the_right_password() {
    let world = World::with_users().await;
    let (guard, ann) = (world.authenticator(), world.user("ann").await);
    let disabled = world.editor.set_disabled("ann", true).await.unwrap();
    let catalog = world.follower.wait_for_revision(disabled.revision).await.unwrap();
    let refused =
        world.admit(&guard, hello(Role::Client, "ann", "right one"), &peer_without_certificate()).await.unwrap_err();
    assert!(refused.message().contains("disabled"), "{refused}");
    let untold =
        world.admit(&guard, hello(Role::Client, "ann", "wrong"), &peer_without_certificate()).await.unwrap_err();
    assert_eq!(untold.message(), wrong_credentials_error().message());
    assert!(world.admit(&guard, hello(Role::Client, "", ""), &endpoint_with_certificate("ann")).await.is_err());
    assert!(ann.check(Some(&catalog)).is_err(), "a disabled user is not admitted any more");
}

async fn connections_end_when_the_password_of_their_user_changes() {
    let world = World::with_users().await;
    let guard = world.authenticator();
    let by_password =
        world.admit(&guard, hello(Role::Client, "ann", "right one"), &peer_without_certificate()).await.unwrap();
    let (by_certificate, root) = (world.user("ann").await, world.user("root").await);
    assert!(!format!("{by_password:?}").contains("argon2"), "{by_password:?}");
    assert!(by_password.check(Some(&world.follower.catalog())).is_ok());
    // Setting the same password again also ends the connections that used it.
    let changed = world.editor.set_password("ann", Some("right one")).await.unwrap();
    let catalog = world.follower.wait_for_revision(changed.revision).await.unwrap();
    let out = by_password.check(Some(&catalog)).unwrap_err();
    assert_eq!(out.kind(), ErrorKind::Denied);
    assert!(out.message().contains("was changed"), "{out}");
    assert!(by_password.check_administrator(Some(&catalog)).is_err());
    assert!(by_certificate.check(Some(&catalog)).is_ok() && root.check(Some(&catalog)).is_ok());
    // A new user of the same name is another user.
    let again =
        world.admit(&guard, hello(Role::Client, "ann", "right one"), &peer_without_certificate()).await.unwrap();
    world.editor.remove_user("ann").await.unwrap();
    let added = world.editor.create_user("ann", Some("right one"), &[]).await.unwrap();
    assert!(again.check(Some(&world.follower.wait_for_revision(added.revision).await.unwrap())).is_err());
}

#[tokio::test]
async fn a_certificate_stands_for_its_user_and_for_no_other() {
    let world = World::with_users().await;
    let guard = world.authenticator();
    let ann = endpoint_with_certificate("ann");
    for user in ["", "ann"] {
        assert_eq!(name(&world.admit(&guard, hello(Role::Client, user, ""), &ann).await.unwrap()), "ann");
    }
    assert!(world.admit(&guard, hello(Role::Client, "root", ""), &ann).await.is_err());
    let by_password = world.admit(&guard, hello(Role::Client, "root", "right one"), &ann).await.unwrap();
    assert_eq!(name(&by_password), "root");
    assert!(world.admit(&guard, hello(Role::Client, "", ""), &endpoint_with_certificate("unknown")).await.is_err());
    assert!(world.admit(&guard, hello(Role::Peer, "", ""), &ann).await.is_err(), "a user is no process of the cluster");
}

async fn processes_show_the_secret_or_a_certificate() {
    let world = World::with_users().await;
    let guard = world.authenticator();
    let secret = world.secret.primary();
    for role in [Role::Brick, Role::Peer, Role::Client] {
        let who = world.admit(&guard, hello(role, "", &secret), &peer_without_certificate()).await.unwrap();
        assert_eq!(who, Principal::Member);
    }
    let who = world
        .admit(&guard, hello(Role::Brick, "", ""), &endpoint_with_certificate(NODE_CERTIFICATE_NAME))
        .await
        .unwrap();
    assert_eq!(who, Principal::Member);
    for wrong in ["", "x", &secret[1..], &secret[..secret.len() - 1], &format!("{secret}0")] {
        let refused =
            world.admit(&guard, hello(Role::Brick, "", wrong), &peer_without_certificate()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(!refused.message().contains(&secret));
    }
    let without = Authenticator::new(ClusterCredentials::default(), None, false);
    let refused =
        world.admit(&without, hello(Role::Brick, "", &secret), &peer_without_certificate()).await.unwrap_err();
    assert!(refused.message().contains("--cluster-secret"), "{refused}");
    // A wrong secret is refused even without users, because the process would be refused later.
    let open = World::new().await;
    assert!(
        open.admit(&open.authenticator(), hello(Role::Brick, "", &secret), &peer_without_certificate()).await.is_err()
    );
}

async fn permissions_are_those_of_the_catalogue_as_it_is_now() {
    let world = World::with_users().await;
    let brick =
        world.editor.add_brick(&["127.0.0.1:1".to_owned()], meta::catalog::Storage::Memory).await.unwrap().value;
    let session = world.editor.store().open_session(std::time::Duration::from_secs(10)).await.unwrap();
    let start = world.editor.start_number().await.unwrap();
    world.editor.announce_brick(brick.id, start, session.id).await.unwrap();
    world.editor.create_space("main", Default::default()).await.unwrap();
    let (ann, root) = (world.user("ann").await, world.user("root").await);
    let may = async |permission| {
        let granted = world.editor.grant("main", Grantee::User("ann"), permission).await.unwrap();
        let catalog = world.follower.wait_for_revision(granted.revision).await.unwrap();
        let all = [Permission::Read, Permission::Write, Permission::Admin];
        assert!(ann.check_administrator(Some(&catalog)).is_err());
        assert!(root.check_administrator(Some(&catalog)).is_ok());
        assert!(all.iter().all(|needed| root.check_permission(*needed, Some(&catalog), "main").is_ok()));
        assert!(ann.check_permission(Permission::Read, Some(&catalog), "other").is_err());
        all.map(|needed| ann.check_permission(needed, Some(&catalog), "main").is_ok())
    };
    assert_eq!(may(None).await, [false, false, false]);
    assert_eq!(may(Some(Permission::Read)).await, [true, false, false]);
    assert_eq!(may(Some(Permission::Write)).await, [true, true, false]);
    assert_eq!(may(Some(Permission::Admin)).await, [true, true, true]);
    // A permission in one space does not count in another.
    world.editor.create_space("other", Default::default()).await.unwrap();
    let granted = world.editor.grant("main", Grantee::User("ann"), Some(Permission::Admin)).await.unwrap();
    let catalog = world.follower.wait_for_revision(granted.revision).await.unwrap();
    assert_eq!(ann.permission(Some(&catalog), "other"), None);
    assert!(!ann.is_privileged(Some(&catalog)) && root.is_privileged(Some(&catalog)));
}

fn at(number: u32) -> RemoteEndpoint {
    let address = SocketAddr::from((IpAddr::from(number.to_be_bytes()), 1));
    RemoteEndpoint { address: Some(PeerAddress::Ip(address)), subject: None, is_private: true }
}

/// Runs all tasks that are ready.
async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_logs_in_at_once_while_others_guess() {
    let world = World::with_users().await;
    let guard = Arc::new(world.authenticator());
    let right = || hello(Role::Client, "ann", "right one");
    world.admit(&guard, right(), &at(1)).await.unwrap();
    // 200 guesses at the same time, half of them at her name, each from an address of its own. None is checked yet.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut permits = Vec::new();
    for number in 0..(processors / 2).max(1) {
        permits.push(guard.queue.acquire(ConnectionSource::Uid(number as u32), true).await.unwrap());
    }
    let (mut guesses, checked) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for number in 0..200 {
        let name = if number % 2 == 0 { "ann".to_owned() } else { format!("nobody{number}") };
        let (guard, catalog, checked) = (guard.clone(), world.follower.catalog(), checked.clone());
        guesses.spawn(async move {
            let error = guard.admit(Some(catalog), &hello(Role::Client, &name, "wrong"), &at(1_000 + number)).await;
            let kind = error.unwrap_err().kind();
            checked.fetch_add(usize::from(kind == ErrorKind::Denied), Ordering::Relaxed);
            kind
        });
    }
    settle().await;
    let begun = tokio::time::Instant::now();
    let (owner_guard, catalog) = (guard.clone(), world.follower.catalog());
    let owner = tokio::spawn(async move {
        let who = owner_guard.admit(Some(catalog), &right(), &at(1)).await;
        (who, checked.load(Ordering::Relaxed))
    });
    settle().await;
    drop(permits);
    let (who, checked_before) = owner.await.unwrap();
    assert_eq!(name(&who.unwrap()), "ann");
    assert!(begun.elapsed().is_zero(), "no time passes");
    assert_eq!(checked_before, 0, "the owner is served before all that wait");
    let kinds = guesses.join_all().await;
    let unchecked = kinds.iter().filter(|kind| **kind == ErrorKind::Unavailable).count();
    assert!(unchecked >= 100, "most guesses are not checked at all: {unchecked}");
}

#[tokio::test(start_paused = true)]
async fn an_attacker_that_finds_the_password_late_does_not_get_in() {
    let world = World::with_users().await;
    let guard = world.authenticator();
    for number in 0..10 {
        let refused = world.admit(&guard, hello(Role::Client, "ann", "wrong"), &at(number)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
    }
    // The eleventh guess is right and is not checked.
    let refused = world.admit(&guard, hello(Role::Client, "ann", "right one"), &at(11)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.message().contains("try again in 6 s"), "{refused}");
    // The refusal is the same for a name that no user has.
    for number in 0..10 {
        world.admit(&guard, hello(Role::Client, "unknown", "wrong"), &at(100 + number)).await.unwrap_err();
    }
    let unknown_user = world.admit(&guard, hello(Role::Client, "unknown", "x"), &at(200)).await.unwrap_err();
    assert_eq!(unknown_user.message(), refused.message());
    // A client with a certificate or an earlier login is admitted all the time, and any other client after some seconds.
    let certified = RemoteEndpoint { address: at(300).address, ..endpoint_with_certificate("laptop") };
    world.admit(&guard, hello(Role::Client, "ann", "right one"), &certified).await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    world.admit(&guard, hello(Role::Client, "ann", "right one"), &at(11)).await.unwrap();
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// Tests, each with the planted bug that it notices.
const DIRECTED: [(Bug, fn()); 5] = [
    (Bug::DisabledLogsIn, || run(a_disabled_user_learns_it_only_by_the_right_password())),
    (Bug::OldPasswordStays, || run(connections_end_when_the_password_of_their_user_changes())),
    (Bug::SecretComparedPartly, || run(processes_show_the_secret_or_a_certificate())),
    (Bug::PermissionOfAnotherSpace, || run(permissions_are_those_of_the_catalogue_as_it_is_now())),
    (Bug::SpaceAdminIsAdministrator, || run(permissions_are_those_of_the_catalogue_as_it_is_now())),
];

#[test]
fn planted_bugs_are_noticed() {
    for (bug, test) in DIRECTED {
        assert_noticed(&[bug], test);
    }
}
