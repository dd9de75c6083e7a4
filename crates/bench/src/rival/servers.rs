//! Redis and memcached, started for one benchmark.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::process::{Address, Server, find_program};

/// Starts Redis without persistence, on TCP and a Unix socket at once.
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

/// Starts memcached on one address: with a Unix socket it serves nothing else.
pub(crate) fn memcached(directory: &Path, address: &Address) -> Result<Server> {
    let mut command = Command::new(find_program("memcached")?);
    command.args(["-t", "2", "-m", "1024", "-c", "1024", "-U", "0"]);
    if rustix::process::geteuid().is_root() {
        // It refuses to run as root unless told so.
        command.args(["-u", "root"]);
    }
    match address {
        Address::Tcp(tcp) => command.args(["-l", "127.0.0.1", "-p", &tcp.port().to_string()]),
        Address::Unix(path) => command.arg("-s").arg(path),
    };
    Server::start("memcached", &mut command, &directory.join("memcached.log"), std::slice::from_ref(address))
}
