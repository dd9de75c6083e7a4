//! Redis, memcached and PostgreSQL, started for one benchmark.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Uid, chown};
use tempfile::TempDir;

use crate::Result;
use crate::process::{Address, Server, find_program};

/// Starts Redis without persistence, on TCP and a Unix socket.
pub(crate) fn redis(directory: &Path) -> Result<(Server, Address, Address)> {
    let (tcp, unix) = (Address::free_tcp()?, Address::Unix(directory.join("redis.sock")));
    let mut command = Command::new(find_program("redis-server")?);
    command.current_dir(directory);
    if let (Address::Tcp(tcp), Address::Unix(unix)) = (&tcp, &unix) {
        command.args(["--bind", "127.0.0.1", "--port", &tcp.port().to_string(), "--unixsocket"]).arg(unix);
    }
    command.args(["--save", "", "--appendonly", "no", "--maxclients", "1000", "--tcp-backlog", "511"]);
    let addresses = [tcp, unix];
    let server = Server::start("redis-server", &mut command, &directory.join("redis.log"), &addresses)?;
    let [tcp, unix] = addresses;
    Ok((server, tcp, unix))
}

/// Starts memcached on one address, because with a Unix socket it serves nothing else.
pub(crate) fn memcached(directory: &Path, address: &Address) -> Result<Server> {
    let mut command = Command::new(find_program("memcached")?);
    command.args(["-t", "2", "-m", "1024", "-c", "1024", "-U", "0"]);
    if rustix::process::geteuid().is_root() {
        // It refuses to run as root without this option.
        command.args(["-u", "root"]);
    }
    match address {
        Address::Tcp(tcp) => command.args(["-l", "127.0.0.1", "-p", &tcp.port().to_string()]),
        Address::Unix(path) => command.arg("-s").arg(path),
    };
    Server::start("memcached", &mut command, &directory.join("memcached.log"), std::slice::from_ref(address))
}

/// Whether PostgreSQL is installed.
pub(crate) fn has_postgres() -> bool {
    postgres_program("initdb").is_ok() && postgres_program("postgres").is_ok()
}

/// A temporary directory that the user of PostgreSQL can enter, if it cannot enter this one. As this one should be, it is on a disk.
pub(crate) fn enterable_instead_of(directory: &Path) -> Result<Option<TempDir>> {
    if postgres_user()?.is_none() || check_enterable(&std::path::absolute(directory)?).is_ok() {
        return Ok(None);
    }
    let temporary = tempfile::Builder::new().prefix("mortar-bench-").tempdir_in("/var/tmp")?;
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o711))?;
    Ok(Some(temporary))
}

/// Creates a database in a directory and starts PostgreSQL for it, on TCP, with its default durability: a transaction is on disk
/// when it is answered.
pub(crate) fn postgres(directory: &Path) -> Result<(Server, Address)> {
    let (tcp, base) = (Address::free_tcp()?, std::path::absolute(directory)?);
    let data = base.join("postgres");
    let user = postgres_user()?;
    if let Some(user) = user {
        // It refuses to run as root, so it runs as its own user, who must be able to reach its directory.
        for above in data.ancestors().skip(1).take_while(|above| above.starts_with(&base)) {
            fs::set_permissions(above, fs::Permissions::from_mode(0o711))?;
        }
        check_enterable(&base)?;
        fs::create_dir(&data)?;
        chown(&data, Some(Uid::from_raw(user)), None)?;
    }
    let as_user = |command: &mut Command| {
        if let Some(user) = user {
            command.uid(user);
        }
        command.current_dir("/");
    };
    let mut init = Command::new(postgres_program("initdb")?);
    init.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
    as_user(&mut init);
    let made = init.output()?;
    if !made.status.success() {
        return Err(format!("initdb ended with {}: {}", made.status, String::from_utf8_lossy(&made.stderr)).into());
    }
    let mut command = Command::new(postgres_program("postgres")?);
    command.arg("-D").arg(&data);
    let mut settings = POSTGRES.map(str::to_owned).to_vec();
    if let Address::Tcp(tcp) = &tcp {
        settings.push(format!("port={}", tcp.port()));
    }
    command.args(settings.iter().flat_map(|setting| ["-c", setting]));
    as_user(&mut command);
    let addresses = [tcp];
    let server = Server::start("postgres", &mut command, &directory.join("postgres.log"), &addresses)?;
    let [tcp] = addresses;
    Ok((server, tcp))
}

/// The settings of PostgreSQL that are not its defaults.
pub(crate) const POSTGRES: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    // A quarter of a small machine, as its manual advises, and no checkpoint within a run.
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=1h",
    "autovacuum=off",
    "jit=off",
    "wal_compression=off",
];

/// The path of a program of PostgreSQL, which Debian installs in a directory for each version.
fn postgres_program(name: &str) -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            Some((version.file_name().to_str()?.parse().ok()?, version.path().join("bin").join(name)))
        })
        .filter(|(_, program)| program.is_file())
        .collect();
    found.sort();
    match found.pop() {
        Some((_, program)) => Ok(program),
        None => find_program(name),
    }
}

/// Checks that other users can enter a directory.
fn check_enterable(directory: &Path) -> Result<()> {
    for above in directory.ancestors() {
        if fs::metadata(above)?.mode() & 0o001 == 0 {
            let what = format!(
                "PostgreSQL does not run as root, and its user cannot enter {}: give --out a directory that all users can enter",
                above.display()
            );
            return Err(what.into());
        }
    }
    Ok(())
}

/// The user that PostgreSQL runs as: none unless this process is root.
fn postgres_user() -> Result<Option<u32>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let user = ["postgres", "nobody"].into_iter().find_map(|name| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    });
    Ok(Some(user.ok_or("there is no user postgres that PostgreSQL could run as")?))
}
