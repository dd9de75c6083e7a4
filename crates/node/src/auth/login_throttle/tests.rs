use model::planted_bug::assert_noticed;
use std::net::IpAddr;

use super::*;

const PASSWORD: AttemptKind = AttemptKind::Password { user_exists: true };
const MINUTE: Duration = Duration::from_secs(60);

fn address(number: u32) -> ClientKey {
    ClientKey::Address(ConnectionSource::Network(IpAddr::from(number.to_be_bytes())))
}

/// Guesses a wrong password; returns false if the guess was not checked.
async fn guess(throttle: &LoginThrottle, client: ClientKey, name: &str) -> bool {
    match throttle.begin(client, name, PASSWORD).await {
        Ok(mut attempt) => {
            attempt.begin_check();
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.message().contains("try again in"), "{error}");
            false
        }
    }
}

async fn log_in(throttle: &LoginThrottle, client: ClientKey, name: &str) -> Result<()> {
    let mut attempt = throttle.begin(client, name, PASSWORD).await?;
    attempt.begin_check();
    attempt.succeed();
    Ok(())
}

/// Makes this many guesses at once, each from its own address. Returns how many are checked.
async fn guesses_from_anywhere(throttle: &LoginThrottle, count: u32) -> u32 {
    let mut attempts = Vec::new();
    for number in 0..count {
        // All at once: none has ended when the next begins.
        let begun = tokio::time::timeout(Duration::ZERO, throttle.begin(address(number), "ann", PASSWORD)).await;
        if let Ok(Ok(mut attempt)) = begun {
            attempt.begin_check();
            attempts.push(attempt);
        }
    }
    attempts.len() as u32
}

async fn an_attacker_has_so_many_guesses_a_minute() {
    let throttle = LoginThrottle::default();
    let mut looked_at = guesses_from_anywhere(&throttle, 1_000).await;
    assert_eq!(looked_at, NAME_RATE.burst);
    let minutes = 10;
    for number in 0..minutes * 60 {
        tokio::time::advance(Duration::from_secs(1)).await;
        looked_at += u32::from(guess(&throttle, address(10_000 + number), "ann").await);
    }
    assert_eq!(looked_at, NAME_RATE.burst + minutes * 10, "10 more in each minute");
}

async fn one_address_has_so_many_guesses_whatever_the_name() {
    let throttle = LoginThrottle::default();
    let mut looked_at = 0;
    for number in 0..1_000 {
        looked_at += u32::from(guess(&throttle, address(1), &format!("user{number}")).await);
    }
    assert_eq!(looked_at, ADDRESS_RATE.burst);
    assert!(guess(&throttle, address(2), "user1").await, "another address is another");
}

async fn a_known_client_is_not_locked_out_by_guesses_from_elsewhere() {
    let throttle = LoginThrottle::default();
    log_in(&throttle, address(7_000), "ann").await.unwrap();
    assert!(guesses_from_anywhere(&throttle, 200).await <= NAME_RATE.burst);
    let begun = Instant::now();
    for _ in 0..20 {
        log_in(&throttle, address(7_000), "ann").await.expect("a known client");
    }
    let certified = ClientKey::Certificate("CN=laptop".to_owned());
    log_in(&throttle, certified, "ann").await.expect("a client with a certificate");
    assert!(begun.elapsed().is_zero());
    assert!(!guess(&throttle, address(7_001), "ann").await, "an unknown one has to wait");
}

async fn success_forgets_the_failures_before_it() {
    let throttle = LoginThrottle::default();
    log_in(&throttle, address(1), "ann").await.unwrap();
    for _ in 0..5 {
        for _ in 0..KNOWN_RATE.burst - 1 {
            assert!(guess(&throttle, address(1), "ann").await);
        }
        log_in(&throttle, address(1), "ann").await.unwrap();
    }
    for _ in 0..KNOWN_RATE.burst {
        assert!(guess(&throttle, address(1), "ann").await);
    }
    assert!(!guess(&throttle, address(1), "ann").await, "a known client has no more guesses than others");
}

#[tokio::test(start_paused = true)]
async fn many_first_logins_of_one_user_at_once_all_succeed() {
    let throttle = LoginThrottle::default();
    let logins = (0..200).map(|number| {
        let throttle = &throttle;
        async move {
            let mut attempt = throttle.begin(address(number), "ann", PASSWORD).await.unwrap();
            attempt.begin_check();
            tokio::time::sleep(Duration::from_millis(20)).await;
            attempt.succeed();
        }
    });
    let mut set = Vec::new();
    for login in logins {
        set.push(Box::pin(login));
    }
    // Polls all of them by turns.
    std::future::poll_fn(|context| {
        set.retain_mut(|login| login.as_mut().poll(context).is_pending());
        if set.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    assert_eq!(throttle.state.lock().known_clients.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_were_not_checked_do_not_count() {
    let throttle = LoginThrottle::default();
    for _ in 0..1_000 {
        drop(throttle.begin(address(1), "ann", PASSWORD).await.unwrap());
        let mut attempt = throttle.begin(address(1), "ann", PASSWORD).await.unwrap();
        attempt.begin_check();
        attempt.forgive();
    }
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_the_cluster_is_counted_by_address_alone() {
    let throttle = LoginThrottle::default();
    for number in 0..1_000 {
        throttle.begin(address(number), "", AttemptKind::ClusterSecret).await.unwrap().begin_check();
    }
    let mut looked_at = 0;
    for _ in 0..1_000 {
        if let Ok(mut attempt) = throttle.begin(address(5_000), "", AttemptKind::ClusterSecret).await {
            attempt.begin_check();
            looked_at += 1;
        }
    }
    assert_eq!(looked_at, ADDRESS_RATE.burst);
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_users_keep_buckets_of_their_own() {
    let throttle = LoginThrottle::default();
    let unknown = AttemptKind::Password { user_exists: false };
    for number in 0..MAX_TRACKED as u32 + 1_000 {
        if let Ok(mut attempt) = throttle.begin(address(number), &format!("nobody{number}"), unknown).await {
            attempt.begin_check();
        }
    }
    assert!(throttle.state.lock().names.buckets.len() <= MAX_TRACKED);
    assert!(throttle.state.lock().addresses.buckets.len() <= MAX_TRACKED);
    // The bucket of addresses that have none of their own is empty, and fills up again.
    tokio::time::advance(MINUTE / 6).await;
    assert!(guess(&throttle, address(1_000_000), "ann").await, "the name of a user is not drained by others");
    tokio::time::advance(10 * MINUTE).await;
    assert!(guess(&throttle, address(1_000_001), "ann").await);
    assert!(throttle.state.lock().names.buckets.len() < 10, "buckets that are full are given up");
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test);
}

/// Tests, each with the planted bug that it notices.
const DIRECTED: [(Bug, fn()); 3] = [
    (Bug::GuessNotCounted, || {
        run(an_attacker_has_so_many_guesses_a_minute());
        run(one_address_has_so_many_guesses_whatever_the_name());
    }),
    (Bug::KnownClientsThrottled, || run(a_known_client_is_not_locked_out_by_guesses_from_elsewhere())),
    (Bug::SuccessKeepsFailures, || run(success_forgets_the_failures_before_it())),
];

#[test]
fn planted_bugs_are_noticed() {
    for (bug, test) in DIRECTED {
        assert_noticed(&[bug], test);
    }
}
