//! Backup, restore, scrub and repair on the command line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod archives;
mod damage;
mod damaged_rows;
mod scrubs;

use mortar_tests::Server;
use serde_json::Value;

fn filled_server() -> Server {
    let server = Server::start(&[]);
    for number in 0..50_u32 {
        server.run_with_input(&["put", "-", &format!("/small/{number}")], number.to_string()).ok();
    }
    server.run_with_input(&["put", "-", "/large", "--attr", "colour=red"], vec![5; 3 << 20]).ok();
    server.run(&["collection", "create", "/c"]).ok();
    server.run(&["collection", "add", "/c", "/large", "/small/7"]).ok();
    server
}

fn stat_all(server: &Server) -> Vec<Value> {
    let names = server.run(&["ls", "-r", "--json"]).json();
    let stats = names.iter().flat_map(|line| {
        let stat = server.run(&["stat", "--json", line["name"].as_str().unwrap()]);
        stat.ok();
        stat.json()
    });
    stats.collect()
}
