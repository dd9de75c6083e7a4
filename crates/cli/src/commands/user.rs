//! `mortar user`, `mortar group`, and the permissions of `mortar space`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use meta::Embedded;
use meta::catalog::{ADMINISTRATORS, CatalogEditor, Parameters, hash_password};
use node::purpose::Purpose;
use serde::Serialize;
use store::Options;
use wire::proto::account::administer::Action as Wanted;
use wire::proto::account::grant::To;
use wire::proto::account::{self, Accounts};

use super::dev::open_for;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, Report, warn};
use crate::password;

const EXAMPLES: &str = "\
Examples:
  mortar user add ann                      the first user is an administrator; then every connection must authenticate
  mortar user add ann --data mortar-meta   before the meta-server starts: no server is asked
  MORTAR_NEW_PASSWORD=... mortar user add indexer --group programs
  mortar user add backup --no-password     authenticates by certificate
  mortar -s mortars://ann@db1/main --ca ca.pem user passwd          one's own password
  mortar user disable bob
  mortar user list

Passwords are asked for. Scripts set MORTAR_PASSWORD (one's own) and MORTAR_NEW_PASSWORD, or name files.";

/// Add, change and list the users of a cluster
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct User {
    #[command(subcommand)]
    action: UserAction,
}

#[derive(Args)]
struct NewPasswordArgs {
    /// The file with the new password on its first line, for its owner alone to read
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
    /// No password: the user authenticates by a certificate with its name. The last administrator with a password keeps it, unless
    /// the command is run by an administrator with a certificate
    #[arg(long, conflicts_with = "new_password_file")]
    no_password: bool,
}

#[derive(Subcommand)]
enum UserAction {
    /// Add a user; the first of a cluster becomes an administrator
    #[command(after_help = EXAMPLES)]
    Add {
        /// Its name
        name: String,
        /// A group that it is a member of, such as administrators; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        #[command(flatten)]
        new: NewPasswordArgs,
        /// Add it to the meta-server's data in this directory, while no meta-server runs
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Change a password: one's own, or as an administrator that of another user
    #[command(after_help = EXAMPLES)]
    Passwd {
        /// The user [default: oneself]
        name: Option<String>,
        #[command(flatten)]
        new: NewPasswordArgs,
    },
    /// Disable a user and end its connections
    #[command(after_help = EXAMPLES)]
    Disable {
        /// The user
        name: String,
    },
    /// Enable a disabled user
    #[command(after_help = EXAMPLES)]
    Enable {
        /// The user
        name: String,
    },
    /// Remove a user without permissions of its own
    #[command(after_help = EXAMPLES)]
    Remove {
        /// The user
        name: String,
    },
    /// List users with their groups
    #[command(alias = "ls", after_help = EXAMPLES)]
    List,
}

const GROUP_EXAMPLES: &str = "\
Examples:
  mortar group add staff
  mortar group join staff ann
  mortar group join administrators ann
  mortar space grant main write --to-group staff
  mortar group list";

/// Add, change and list the groups of a cluster
#[derive(Args)]
#[command(after_help = GROUP_EXAMPLES)]
pub(crate) struct Group {
    #[command(subcommand)]
    action: GroupAction,
}

#[derive(Subcommand)]
enum GroupAction {
    /// Add a group
    #[command(after_help = GROUP_EXAMPLES)]
    Add {
        /// Its name
        name: String,
    },
    /// Remove a group without members and permissions
    #[command(after_help = GROUP_EXAMPLES)]
    Remove {
        /// The group
        name: String,
    },
    /// Make a user a member
    #[command(after_help = GROUP_EXAMPLES)]
    Join {
        /// The group
        group: String,
        /// The user
        member: String,
    },
    /// Remove a user from the group
    #[command(after_help = GROUP_EXAMPLES)]
    Leave {
        /// The group
        group: String,
        /// The user
        member: String,
    },
    /// List groups with their members
    #[command(alias = "ls", after_help = GROUP_EXAMPLES)]
    List,
}

/// A permission in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Permission {
    /// Read objects, and query
    Read,
    /// Create, change and delete objects
    Write,
    /// Change classes, indexes and permissions
    Admin,
}

/// The user or group that gets a permission.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Grantee {
    /// A user
    #[arg(long = "to-user", value_name = "NAME")]
    to_user: Option<String>,
    /// All members of a group
    #[arg(long = "to-group", value_name = "NAME")]
    to_group: Option<String>,
}

impl Grantee {
    fn into_recipient(self) -> Option<To> {
        self.to_user.map(To::User).or(self.to_group.map(To::Group))
    }
}

#[derive(Serialize)]
struct UserLine {
    name: String,
    groups: Vec<String>,
    disabled: bool,
    password: bool,
}

impl From<account::User> for UserLine {
    fn from(user: account::User) -> Self {
        let account::User { name, groups, disabled, has_password } = user;
        Self { name, groups, disabled, password: has_password }
    }
}

impl Report for UserLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{:<20} {}", Printable(&self.name).to_string(), self.groups.join(" "))?;
        if !self.password {
            write!(out, " (by certificate)")?;
        }
        writeln!(out, "{}", if self.disabled { " (disabled)" } else { "" })
    }
}

#[derive(Serialize)]
struct GroupLine {
    name: String,
    members: Vec<String>,
}

impl Report for GroupLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{:<20} {}", Printable(&self.name).to_string(), self.members.join(" "))
    }
}

/// The removed account.
#[derive(Serialize)]
#[serde(tag = "removed", content = "name", rename_all = "snake_case")]
enum RemovedAccount {
    User(String),
    Group(String),
}

impl Report for RemovedAccount {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::User(name) => writeln!(out, "removed user {}", Printable(name)),
            Self::Group(name) => writeln!(out, "removed group {}", Printable(name)),
        }
    }
}

#[derive(Serialize)]
struct GrantLine {
    space: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    permission: &'static str,
}

impl Report for GrantLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (what, name) = match (&self.user, &self.group) {
            (Some(user), _) => ("user", user.as_str()),
            (None, group) => ("group", group.as_deref().unwrap_or_default()),
        };
        writeln!(out, "{:<6} {:<6} {}", self.permission, what, Printable(name))
    }
}

impl From<account::Grant> for GrantLine {
    fn from(grant: account::Grant) -> Self {
        let permission = match grant.permission() {
            account::Permission::None => "none",
            account::Permission::Read => "read",
            account::Permission::Write => "write",
            account::Permission::Admin => "admin",
        };
        let (user, group) = match grant.to {
            Some(To::User(name)) => (Some(name), None),
            Some(To::Group(name)) => (None, Some(name)),
            None => (None, None),
        };
        Self { space: grant.space, user, group, permission }
    }
}

async fn ask(wanted: Wanted, session: &CommandContext) -> Result<Accounts> {
    Ok(session.connect_to_cluster().await?.administer(wanted).await?)
}

fn print_users(accounts: Accounts, session: &mut CommandContext) -> Result {
    accounts.users.into_iter().try_for_each(|user| session.output.print(&UserLine::from(user)))
}

/// The hash of a new password.
fn new_hash(user: &str, new: &NewPasswordArgs) -> Result<Option<String>> {
    if new.no_password {
        return Ok(None);
    }
    let password = password::read_new(user, new.new_password_file.as_deref())?;
    Ok(Some(hash_password(&password).map_err(model::Error::from)?))
}

pub(crate) async fn run(args: User, session: &mut CommandContext) -> Result {
    let named = |name| account::Name { name };
    let wanted = match args.action {
        UserAction::Add { name, groups, new, data } => return add(name, groups, &new, data.as_deref(), session).await,
        UserAction::Passwd { name, new } => {
            let shown = name.clone().or_else(|| session.user());
            let hash = new_hash(shown.as_deref().unwrap_or("yourself"), &new)?;
            Wanted::SetPassword(account::SetPassword { user: name.unwrap_or_default(), hash })
        }
        UserAction::Disable { name } => Wanted::SetDisabled(account::SetDisabled { user: name, disabled: true }),
        UserAction::Enable { name } => Wanted::SetDisabled(account::SetDisabled { user: name, disabled: false }),
        UserAction::Remove { name } => {
            ask(Wanted::RemoveUser(named(name.clone())), session).await?;
            return session.output.print(&RemovedAccount::User(name));
        }
        UserAction::List => Wanted::List(account::List {}),
    };
    let accounts = ask(wanted, session).await?;
    print_users(accounts, session)
}

async fn add(
    name: String,
    groups: Vec<String>,
    new: &NewPasswordArgs,
    data: Option<&Path>,
    session: &mut CommandContext,
) -> Result {
    if let Some(data) = data {
        let hash = new_hash(&name, new)?;
        return add_offline(data, &name, hash.as_deref(), &groups, session).await;
    }
    let client = session.connect_to_cluster().await?;
    let is_first = client.administer(Wanted::List(account::List {})).await?.users.is_empty();
    let hash = new_hash(&name, new)?;
    let added = client.administer(Wanted::AddUser(account::AddUser { name: name.clone(), hash, groups })).await?;
    if is_first {
        warn_first_user(&name, session);
    }
    print_users(added, session)
}

/// Adds a user in the data directory of a meta-server that is not running.
async fn add_offline(
    data: &Path,
    name: &str,
    hash: Option<&str>,
    groups: &[String],
    session: &mut CommandContext,
) -> Result {
    let store = open_for(data, Purpose::Catalogue, Options { allow_loose_permissions: true, ..Options::default() })?;
    let editor = CatalogEditor::new(Arc::new(Embedded::open(&store)?));
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let added = async {
        editor.set_up(&Parameters::generate()).await?;
        editor.create_user_hashed(name, hash, &groups).await
    };
    let added = added.await.map_err(model::Error::from);
    store.close()?;
    let user = added?.value;
    if user.groups.contains(ADMINISTRATORS) {
        warn_first_user(name, session);
    }
    let groups = user.groups.iter().cloned().collect();
    session.output.print(&UserLine { name: user.name, groups, disabled: false, password: user.password.is_some() })
}

/// Explains what the first user changes.
fn warn_first_user(name: &str, session: &CommandContext) {
    let message = format!(
        "{name} is an administrator, and access control is on: every connection must authenticate from now on, and processes of the \
         cluster that have neither the cluster's secret nor a certificate are refused"
    );
    warn(session.output.json(), "access_closed", &message);
}

pub(crate) async fn run_group(args: Group, session: &mut CommandContext) -> Result {
    let named = |name| account::Name { name };
    let set_member = |group, user, is_member| Wanted::SetMember(account::SetMember { group, user, is_member });
    let wanted = match args.action {
        GroupAction::Add { name } => {
            ask(Wanted::AddGroup(named(name.clone())), session).await?;
            return session.output.print(&GroupLine { name, members: Vec::new() });
        }
        GroupAction::Remove { name } => {
            ask(Wanted::RemoveGroup(named(name.clone())), session).await?;
            return session.output.print(&RemovedAccount::Group(name));
        }
        GroupAction::Join { group, member } => set_member(group, member, true),
        GroupAction::Leave { group, member } => set_member(group, member, false),
        GroupAction::List => {
            let accounts = ask(Wanted::List(account::List {}), session).await?;
            let names = [ADMINISTRATORS.to_owned()].into_iter().chain(accounts.groups);
            return names.into_iter().try_for_each(|name| {
                let members = accounts.users.iter().filter(|user| user.groups.contains(&name));
                let members = members.map(|user| user.name.clone()).collect();
                session.output.print(&GroupLine { name, members })
            });
        }
    };
    let accounts = ask(wanted, session).await?;
    print_users(accounts, session)
}

/// Grants or revokes a permission for a space.
pub(crate) async fn grant(
    space: String,
    permission: Option<Permission>,
    to: Grantee,
    session: &mut CommandContext,
) -> Result {
    let permission = match permission {
        None => account::Permission::None,
        Some(Permission::Read) => account::Permission::Read,
        Some(Permission::Write) => account::Permission::Write,
        Some(Permission::Admin) => account::Permission::Admin,
    };
    let to =
        to.into_recipient().ok_or_else(|| Failure::usage("name the user or the group: --to-user or --to-group"))?;
    let grant = account::Grant { space, to: Some(to), permission: permission.into() };
    let accounts = ask(Wanted::Grant(grant), session).await?;
    print_grants(accounts, session)
}

/// Shows the permissions of a space.
pub(crate) async fn grants(space: String, session: &mut CommandContext) -> Result {
    let accounts = ask(Wanted::ListGrants(account::Name { name: space }), session).await?;
    print_grants(accounts, session)
}

fn print_grants(accounts: Accounts, session: &mut CommandContext) -> Result {
    accounts.grants.into_iter().try_for_each(|grant| session.output.print(&GrantLine::from(grant)))
}
