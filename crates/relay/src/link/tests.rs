use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn with_rate(rate: u64, delay: Duration) -> Link {
    Link::new(LinkConfig { delay, rate: NonZeroU64::new(rate), ..LinkConfig::default() }, 0)
}

#[test]
fn a_chunk_arrives_exactly_one_delay_after_it_entered() {
    let mut link = Link::new(LinkConfig { delay: ms(20), ..LinkConfig::default() }, 0);
    for now in [0, 1, 1, 7] {
        assert_eq!(link.transmit(ms(now), 64 << 10), Transmission { arrives_at: ms(now + 20), losses: 0 });
    }
}

#[test]
fn a_link_without_properties_adds_nothing() {
    let mut link = Link::new(LinkConfig::default(), 0);
    assert_eq!(link.transmit(ms(3), 1000).arrives_at, ms(3));
    assert_eq!(link.accepts_at(), Duration::ZERO);
}

#[test]
fn a_changed_delay_holds_for_later_chunks() {
    let mut link = Link::new(LinkConfig { delay: ms(20), jitter: ms(5), ..LinkConfig::default() }, 0);
    link.set_delay(ms(1));
    for _ in 0..100 {
        assert!(link.transmit(ms(0), 1).arrives_at <= ms(6));
    }
}

#[test]
fn chunks_wait_until_the_line_is_free() {
    // 1 MB/s: 1000 bytes take 1 ms.
    let mut link = with_rate(1_000_000, ms(20));
    assert_eq!(link.transmit(ms(0), 1000).arrives_at, ms(21));
    assert_eq!(link.transmit(ms(0), 1000).arrives_at, ms(22));
    // The line was idle from 2 ms on, and has not saved that time.
    assert_eq!(link.transmit(ms(5), 3000).arrives_at, ms(28));
}

#[test]
fn the_buffer_takes_one_round_trip_of_bytes() {
    let mut link = with_rate(1_000_000, ms(20));
    assert_eq!(link.accepts_at(), ms(0));
    link.transmit(ms(0), 40_000);
    assert_eq!(link.accepts_at(), ms(0));
    link.transmit(ms(0), 1000);
    assert_eq!(link.accepts_at(), ms(1));
}

#[test]
fn chunks_of_slow_links_are_small() {
    assert_eq!(Link::new(LinkConfig::default(), 0).chunk_bytes(), MAX_CHUNK_BYTES);
    for (rate, bytes) in [(1, 1460), (1_000_000, 1460), (10_000_000, 10_000), (1_000_000_000, MAX_CHUNK_BYTES)] {
        assert_eq!(with_rate(rate, ms(20)).chunk_bytes(), bytes, "{rate}");
    }
}

#[test]
fn a_lost_chunk_arrives_a_round_trip_later_and_at_least_200_ms() {
    for (delay, retransmission) in [(ms(1), ms(200)), (ms(150), ms(300))] {
        let mut link = Link::new(LinkConfig { delay, loss: 0.5, ..LinkConfig::default() }, 1);
        for _ in 0..100 {
            let Transmission { arrives_at, losses } = link.transmit(ms(0), 1);
            assert_eq!(arrives_at, delay + losses * retransmission);
        }
    }
}

#[test]
fn as_many_chunks_are_lost_as_the_probability_says() {
    let mut link = Link::new(LinkConfig { loss: 0.1, ..LinkConfig::default() }, 7);
    let lost = (0..10_000).filter(|_| link.transmit(ms(0), 1).losses > 0).count();
    assert!((900..1100).contains(&lost), "{lost}");
}

#[test]
fn equal_seeds_give_equal_times() {
    let config = LinkConfig { delay: ms(20), jitter: ms(5), loss: 0.3, ..LinkConfig::default() };
    let times = |seed| {
        let mut link = Link::new(config.clone(), seed);
        (0..50).map(|now| link.transmit(ms(now), 100)).collect::<Vec<_>>()
    };
    assert_eq!(times(3), times(3));
    assert_ne!(times(3), times(4));
}

proptest! {
    #[test]
    fn jitter_stays_within_its_bounds(seed: u64, delay in 0_u64..100, part in 0_u64..=100, now in 0_u64..1000) {
        let (delay, jitter) = (ms(delay), ms(delay * part / 100));
        let mut link = Link::new(LinkConfig { delay, jitter, ..LinkConfig::default() }, seed);
        let arrives_at = link.transmit(ms(now), 1).arrives_at;
        prop_assert!(arrives_at >= ms(now) + delay - jitter);
        prop_assert!(arrives_at <= ms(now) + delay + jitter);
    }

    /// Within any time from the first chunk on, no more bytes leave than the rate allows.
    #[test]
    fn no_bytes_leave_faster_than_the_rate(
        rate in 1_u64..100_000_000,
        chunks in prop::collection::vec((0_u64..5000, 1_usize..65536), 1..40),
    ) {
        let mut link = with_rate(rate, ms(20));
        let mut now = Duration::ZERO;
        let mut left: Vec<(Duration, u128)> = Vec::new();
        for (pause_us, bytes) in chunks {
            now += Duration::from_micros(pause_us);
            let arrives_at = link.transmit(now, bytes).arrives_at;
            prop_assert!(arrives_at >= now + ms(20));
            left.push((arrives_at, bytes as u128));
        }
        for (first, (start, _)) in left.iter().enumerate() {
            let mut bytes = 0;
            for (end, more) in &left[first + 1..] {
                bytes += more;
                prop_assert!(bytes * 1_000_000_000 <= u128::from(rate) * (*end - *start).as_nanos());
            }
        }
    }

    /// A sender that enters whenever it is accepted uses the whole rate.
    #[test]
    fn a_busy_line_is_never_idle(rate in 10_000_u64..100_000_000, chunks in 1_u32..200) {
        let mut link = with_rate(rate, ms(20));
        let bytes = link.chunk_bytes();
        let mut last = Duration::ZERO;
        for _ in 0..chunks {
            last = link.transmit(link.accepts_at(), bytes).arrives_at;
        }
        let ideal = ms(20).as_nanos() + u128::from(chunks) * bytes as u128 * 1_000_000_000 / u128::from(rate);
        // Each chunk is rounded up to a nanosecond.
        prop_assert!(last.as_nanos() <= ideal + u128::from(chunks));
    }
}
