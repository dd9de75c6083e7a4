//! A client in a process of its own, which can be killed.

use std::fs;
use std::process::Child;

use client::Bytes;
use mortar_tests::{Server, spawn};

/// Starts `mortar put`, which uploads these bytes and binds a path to them.
pub(crate) fn start_put(server: &Server, path: &str, bytes: &Bytes) -> Child {
    let file = server.dir().join("put");
    fs::write(&file, bytes).unwrap();
    let mut command = server.command(&["put", "--quiet", "--type", ""]);
    command.arg(file).arg(path).stdout(fs::File::create(server.dir().join("put.log")).unwrap());
    spawn(command).unwrap()
}
