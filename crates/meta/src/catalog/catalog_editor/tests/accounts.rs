//! Users, groups and permissions.

use super::*;
use crate::catalog::{ADMINISTRATORS, Grantee, Permission};

#[tokio::test]
pub(crate) async fn permissions_come_from_users_and_groups_and_the_largest_counts() {
    let editor = with_space().await;
    editor.create_group("staff").await.unwrap();
    editor.create_user("first", Some("secret words"), &[]).await.unwrap();
    for (name, groups) in [("ann", &["staff"][..]), ("bob", &[]), ("root", &[ADMINISTRATORS])] {
        editor.create_user(name, Some("secret words"), groups).await.unwrap();
    }
    editor.grant("main", Grantee::Group("staff"), Some(Permission::Write)).await.unwrap();
    editor.grant("main", Grantee::User("ann"), Some(Permission::Read)).await.unwrap();
    let permissions = || async {
        let catalog = catalog(&editor).await;
        let space = catalog.space("main").unwrap().clone();
        ["ann", "bob", "root"].map(|name| catalog.permission(catalog.user(name).unwrap(), &space))
    };
    assert_eq!(permissions().await, [Some(Permission::Write), None, Some(Permission::Admin)]);
    editor.set_groups("ann", &[]).await.unwrap();
    assert_eq!(permissions().await[0], Some(Permission::Read));
    editor.set_disabled("ann", true).await.unwrap();
    assert_eq!(permissions().await[0], None, "a disabled user has no permission, not even as an administrator");
    editor.set_disabled("ann", false).await.unwrap();
    editor.grant("main", Grantee::User("ann"), None).await.unwrap();
    assert_eq!(permissions().await[0], None);
    editor.set_disabled("root", true).await.unwrap();
    assert_eq!(permissions().await[2], None);
    assert!(Permission::Read < Permission::Write && Permission::Write < Permission::Admin);
}

#[tokio::test]
async fn passwords_are_stored_as_hashes() {
    let editor = editor();
    editor.create_user("first", Some("secret words"), &[]).await.unwrap();
    let ann = editor.create_user("ann", Some("secret words"), &[]).await.unwrap().value;
    assert!(ann.has_password("secret words") && !ann.has_password("Secret"));
    let state = editor.store().read(Prefix::all()).await.unwrap();
    assert!(state.entries.iter().all(|(_, entry)| !entry.value.windows(12).any(|bytes| bytes == b"secret words")));
    assert!(!format!("{ann:?}").contains("argon2"), "{ann:?}");
    let changed = editor.set_password("ann", Some("other words")).await.unwrap().value;
    assert!(changed.has_password("other words") && !changed.has_password("secret words"));
    assert!(!editor.set_password("ann", None).await.unwrap().value.has_password(""));
    assert_eq!(kind(editor.set_password("ann", Some("")).await), ErrorKind::Invalid);
    assert_eq!(kind(editor.set_password("bob", Some("xxxxxxxx")).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn permissions_are_not_inherited_with_a_name() {
    let editor = with_space().await;
    editor.create_group("staff").await.unwrap();
    editor.create_user("first", Some("secret words"), &[]).await.unwrap();
    editor.create_user("ann", None, &["staff"]).await.unwrap();
    editor.grant("main", Grantee::User("ann"), Some(Permission::Read)).await.unwrap();
    editor.grant("main", Grantee::Group("staff"), Some(Permission::Read)).await.unwrap();
    assert!(matches!(editor.remove_user("ann").await, Err(CatalogError::InUse { .. })));
    assert!(matches!(editor.remove_group("staff").await, Err(CatalogError::InUse { .. })));
    editor.grant("main", Grantee::User("ann"), None).await.unwrap();
    editor.remove_user("ann").await.unwrap();
    assert!(matches!(editor.remove_group("staff").await, Err(CatalogError::InUse { .. })));
    editor.grant("main", Grantee::Group("staff"), None).await.unwrap();
    editor.remove_group("staff").await.unwrap();
    let catalog = catalog(&editor).await;
    assert_eq!((catalog.users().count(), catalog.groups().count()), (1, 0));
}

#[tokio::test]
async fn existing_and_missing_names_are_refused() {
    let editor = with_space().await;
    editor.create_user("ann", Some("secret words"), &[]).await.unwrap();
    assert!(matches!(editor.create_user("ann", None, &[]).await, Err(CatalogError::Exists { .. })));
    assert!(matches!(editor.create_group(ADMINISTRATORS).await, Err(CatalogError::Exists { .. })));
    assert_eq!(kind(editor.create_user("bob", None, &["none"]).await), ErrorKind::NotFound);
    assert_eq!(kind(editor.create_user("a/b", None, &[]).await), ErrorKind::Invalid);
    assert_eq!(kind(editor.set_groups("ann", &["none"]).await), ErrorKind::NotFound);
    let read = Some(Permission::Read);
    assert_eq!(kind(editor.grant("main", Grantee::User("bob"), read).await), ErrorKind::NotFound);
    assert_eq!(kind(editor.grant("main", Grantee::Group("none"), read).await), ErrorKind::NotFound);
    assert_eq!(kind(editor.grant("none", Grantee::User("ann"), read).await), ErrorKind::NotFound);
    assert_eq!(catalog(&editor).await.users().count(), 1);
}

/// Checks that no operation removes an administrator.
async fn assert_stays(editor: &CatalogEditor, user: &str) {
    let refusals = [
        editor.remove_user(user).await.map(drop),
        editor.set_disabled(user, true).await.map(drop),
        editor.set_groups(user, &[]).await.map(drop),
        editor.set_member(ADMINISTRATORS, user, false).await.map(drop),
    ];
    for refused in refusals {
        assert!(matches!(refused, Err(CatalogError::InUse { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn first_user_is_an_administrator_and_one_always_remains() {
    let editor = editor();
    assert!(catalog(&editor).await.allows_anonymous());
    let first = editor.create_user("first", Some("secret words"), &[]).await.unwrap().value;
    assert!(first.groups.contains(ADMINISTRATORS), "{first:?}");
    assert!(!catalog(&editor).await.allows_anonymous());
    let second = editor.create_user("second", Some("secret words"), &[]).await.unwrap().value;
    assert!(second.groups.is_empty(), "{second:?}");
    assert_stays(&editor, "first").await;
    editor.set_disabled("second", true).await.unwrap();
    editor.set_member(ADMINISTRATORS, "second", true).await.unwrap();
    assert!(editor.remove_user("first").await.is_err(), "the other administrator is disabled");
    editor.set_disabled("second", false).await.unwrap();
    editor.remove_user("first").await.unwrap();
}

#[tokio::test]
async fn administrators_without_a_password_need_a_certificate() {
    let editor = editor();
    let refused = editor.create_user("first", None, &[]).await;
    assert_eq!(kind(refused), ErrorKind::Invalid);
    assert!(catalog(&editor).await.allows_anonymous(), "nothing was changed");
    editor.create_user("first", Some("secret words"), &[]).await.unwrap();
    editor.create_user("second", None, &[ADMINISTRATORS]).await.unwrap();
    let refused = editor.set_password("first", None).await;
    assert!(matches!(refused, Err(CatalogError::InUse { .. })), "{refused:?}");
    assert_stays(&editor, "first").await;
    editor.with_certificate().remove_user("first").await.unwrap();
    assert!(editor.with_certificate().remove_user("second").await.is_err(), "the last administrator cannot be removed");
}

#[tokio::test]
async fn given_hashes_are_checked() {
    let editor = editor();
    let hash = crate::catalog::hash_password("secret words").unwrap();
    let ann = editor.create_user_hashed("ann", Some(&hash), &[]).await.unwrap().value;
    assert!(ann.has_password("secret words"));
    for dear in ["t=2000", "t=16"].map(|passes| hash.replace("t=2", passes)) {
        assert_eq!(kind(editor.set_password_hashed("ann", Some(&dear)).await), ErrorKind::Invalid);
        assert_eq!(kind(editor.create_user_hashed("bob", Some(&dear), &[]).await), ErrorKind::Invalid);
    }
    assert_eq!(kind(editor.create_user_hashed("bob", Some("secret words"), &[]).await), ErrorKind::Invalid);
}
