//! The model of throughput.

use sim::cost::{Costs, Load, Setting, measure};

fn rate(bricks: usize, load: Load) -> f64 {
    let setting = Setting { bricks, clients: 256, load, length_ms: 100, costs: Costs::default() };
    measure(setting).unwrap().rate
}

#[test]
fn throughput_grows_with_the_bricks() {
    for load in [Load::Reads, Load::Local] {
        let (one, four) = (rate(1, load), rate(4, load));
        assert!((four / one / 4.0 - 1.0).abs() < 0.1, "{load:?}: {one} a second with one brick, {four} with four");
    }
    let (two, eight) = (rate(2, Load::Distributed), rate(8, Load::Distributed));
    assert!((eight / two / 4.0 - 1.0).abs() < 0.1, "{two} a second with two bricks, {eight} with eight");
}

#[test]
fn what_all_share_shows() {
    // All transactions of one client at a time: the way there and back is all that counts.
    let setting = |bricks| Setting {
        bricks,
        clients: 1,
        load: Load::Local,
        length_ms: 100,
        costs: Costs { hop_us: 1_000.0, ..Costs::default() },
    };
    let one = measure(setting(1)).unwrap().rate;
    // Four hops and a force: about 240 a second.
    assert!((200.0..250.0).contains(&one), "{one}");
}

#[test]
fn the_costs_are_what_bounds_it() {
    let cheap = Costs { record_us: 6.0, ask_us: 2.0, peer_us: 4.0, ..Costs::default() };
    let setting = |costs| Setting { bricks: 2, clients: 256, load: Load::Local, length_ms: 100, costs };
    let (dear, cheap) = (measure(setting(Costs::default())).unwrap(), measure(setting(cheap)).unwrap());
    assert!(dear.bricks_busy > 0.9, "{dear:?}");
    assert!(cheap.rate > dear.rate * 1.3, "{dear:?} {cheap:?}");
}
