//! Requests and answers about users, groups and permissions.

use wire::frame::Flags;
use wire::proto;
use wire::proto::account::administer::Action;
use wire::proto::account::grant::To;
use wire::proto::account::{self, Permission};

use super::check;

/// Number of vectors in this file.
pub(crate) const VECTORS: usize = 11;

#[test]
fn messages_about_users_are_unchanged() {
    let name = |name: &str| account::Name { name: name.to_owned() };
    let (ann, staff) = (|| "ann".to_owned(), || "staff".to_owned());
    let grant = |to, permission: Permission| account::Grant {
        space: "main".to_owned(),
        to: Some(to),
        permission: permission.into(),
    };
    let hash = || Some("$argon2id$v=19".to_owned());
    for (file, action) in [
        ("list", Action::List(account::List {})),
        ("add-user", Action::AddUser(account::AddUser { name: ann(), hash: hash(), groups: vec![staff()] })),
        ("set-password", Action::SetPassword(account::SetPassword { user: ann(), hash: hash() })),
        ("set-disabled", Action::SetDisabled(account::SetDisabled { user: ann(), disabled: true })),
        ("remove-user", Action::RemoveUser(name("ann"))),
        ("add-group", Action::AddGroup(name("staff"))),
        ("remove-group", Action::RemoveGroup(name("staff"))),
        ("set-member", Action::SetMember(account::SetMember { group: staff(), user: ann(), is_member: true })),
        ("grant", Action::Grant(grant(To::User(ann()), Permission::Admin))),
        ("list-grants", Action::ListGrants(name("main"))),
    ] {
        // The hash of a password does not appear in logs.
        assert!(!format!("{action:?}").contains("argon2id"), "{action:?}");
        let administer = account::Administer { action: Some(action) };
        let request = Some(proto::request::Request::Administer(administer));
        check(&format!("request-account-{file}"), Flags::REQUEST, &proto::Request { request }, b"");
    }
    let user = account::User { name: ann(), groups: vec![staff()], disabled: true, has_password: true };
    let grants = vec![grant(To::Group(staff()), Permission::Read)];
    let accounts = account::Accounts { users: vec![user], groups: vec![staff()], grants };
    let response = Some(proto::response::Response::Accounts(accounts));
    check("response-accounts", Flags::RESPONSE, &proto::Response { response }, b"");
}
