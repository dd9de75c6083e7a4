//! Measures round trips of one byte through a relay, and its throughput.
//!
//! `cargo run --release -p mortar-relay --example round_trips -- 20` has a delay of 20 ms.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use relay::{Address, Config, LinkConfig, Relay};

const ROUND_TRIPS: usize = 200;
const BULK_BYTES: usize = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let delay_ms: f64 = std::env::args().nth(1).map_or(Ok(20.0), |text| text.parse())?;
    let delay = Duration::from_secs_f64(delay_ms / 1000.0);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = Address::Tcp(listener.local_addr()?.to_string());
    thread::spawn(move || serve(&listener));

    let mut direct = TcpStream::connect(target.to_string())?;
    report("without relay", round_trips(&mut direct)?);
    let link = LinkConfig { delay, ..LinkConfig::default() };
    let relay = Relay::start(Config { link, ..Config::new("127.0.0.1:0".parse()?, target) })?;
    let mut relayed = TcpStream::connect(relay.address().to_string())?;
    report(&format!("with a delay of {delay:?}"), round_trips(&mut relayed)?);
    println!("throughput without relay {:.2} GB/s, with relay {:.2} GB/s", bulk(&mut direct)?, bulk(&mut relayed)?);
    Ok(())
}

/// Answers each byte 0 with a byte. A byte 1 begins bulk data, which is answered once.
fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            let _ = stream.set_nodelay(true);
            while let Ok(1) = stream.read(&mut buffer[..1]) {
                let mut left = if buffer[0] == 0 { 0 } else { BULK_BYTES };
                while left > 0 {
                    match stream.read(&mut buffer) {
                        Ok(count @ 1..) => left = left.saturating_sub(count),
                        _ => return,
                    }
                }
                if stream.write_all(&[0]).is_err() {
                    return;
                }
            }
        });
    }
}

fn round_trips(stream: &mut TcpStream) -> std::io::Result<Vec<Duration>> {
    stream.set_nodelay(true)?;
    let mut round_trip = || {
        let start = Instant::now();
        stream.write_all(&[0])?;
        stream.read_exact(&mut [0])?;
        Ok(start.elapsed())
    };
    // The first ones include the handshake.
    for _ in 0..3 {
        round_trip()?;
    }
    (0..ROUND_TRIPS).map(|_| round_trip()).collect()
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let [shortest, median, p99, longest] =
        [0, times.len() / 2, times.len() * 99 / 100, times.len() - 1].map(|at| times[at]);
    println!("round trip {name}: shortest {shortest:?}, median {median:?}, p99 {p99:?}, longest {longest:?}");
}

/// Gigabytes per second of one connection.
fn bulk(stream: &mut TcpStream) -> std::io::Result<f64> {
    let chunk = vec![0; 1 << 20];
    let start = Instant::now();
    stream.write_all(&[1])?;
    for _ in 0..BULK_BYTES / chunk.len() {
        stream.write_all(&chunk)?;
    }
    stream.read_exact(&mut [0])?;
    Ok(BULK_BYTES as f64 / 1e9 / start.elapsed().as_secs_f64())
}
