//! Servers and clients that are killed while contents are uploaded, changed and freed.
//!
//! 1. A content that was committed has its bytes after each restart, and a change is there whole or not at all.
//! 2. When the leases of uploads have ended, no staged byte is left, and the blob files hold the chunks of committed contents and
//!    nothing else.
//!
//! `MORTAR_STAGING_ROUNDS=N` kills N times, `MORTAR_STAGING_SEED=N` repeats the random choices of a run; the timing of processes is not
//! deterministic.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "long runs report what was checked")]

mod client_process;
mod disk;
mod slots;
mod worker;
mod world;

use std::time::{Duration, Instant};

use client::{AdminClient, Client, ErrorKind};
use mortar_tests::{Server, TEST_TIMEOUT};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use world::World;

/// Kills of the suite, and kills between two checks of what is left.
const ROUNDS: u64 = 12;
const CHECK_EVERY: u64 = 64;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
fn kills_while_staging_lose_no_bytes_and_leave_none() {
    let rounds = env_number("MORTAR_STAGING_ROUNDS").unwrap_or(ROUNDS);
    let seed = env_number("MORTAR_STAGING_SEED").unwrap_or_else(rand::random);
    println!("seed {seed}");
    let (begun, mut world) = (Instant::now(), World::start(seed));
    for round in 1..=rounds {
        match round % 2 {
            0 => world.kill_client(),
            _ => world.kill_server(),
        }
        world.check_contents();
        if round % CHECK_EVERY == 0 || round == rounds {
            world.check_that_nothing_is_left();
            println!("{round} of {rounds} kills in {:.0?}: {}", begun.elapsed(), world.counts());
        }
    }
}

/// The transaction has read the object that it changes. Repeating it would not bring the bytes back.
#[test]
fn replacing_a_content_by_an_upload_that_has_ended_is_not_repeated_for_ever() {
    let server = Server::start(&["--upload-lease-s", "1"]);
    Runtime::new().unwrap().block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let bytes = vec![1; 100_000];
        let first = client.upload(None, &bytes[..]).await.unwrap();
        let create = async |t: client::Transaction| t.bind("blob", t.create_blob_from(first)?).await;
        client.transact(create).await.unwrap();
        let blob = client.resolve("blob").await.unwrap().unwrap();
        let second = client.upload(Some(first.node()), &bytes[..]).await.unwrap();
        let admin = AdminClient::connect(&server.url()).await.unwrap();
        while admin.space_usages(Some("main")).await.unwrap()[0].total().staged_bytes > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        let replaced = client.transact(async |t: client::Transaction| t.put_content(blob, second).await);
        let replaced = timeout(TEST_TIMEOUT, replaced).await.expect("it is repeated for ever");
        assert_eq!(replaced.unwrap_err().kind(), ErrorKind::NotFound);
    });
}
