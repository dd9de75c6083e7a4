//! Plans as text.

use sim::bug::Bug;
use sim::plan::{Action, Key, Operation, ProcessName, Step, Topology};
use sim::scenario::{ACTION_LIMIT, STEP_LIMIT, Scenario, TEXT_LIMIT};
use sim::workload::{Choice, plan};

fn error(text: &str) -> String {
    Scenario::read(text).unwrap_err().to_string()
}

#[test]
fn what_is_printed_is_read_as_the_same_plan() {
    for seed in 0..300 {
        let plan = plan(seed, Choice::default());
        let catches: Vec<Bug> = Bug::all().skip(seed as usize % 50).take(seed as usize % 3).collect();
        let expected = (seed % 2 == 0).then(|| vec!["right".to_owned()]);
        let scenario = Scenario { plan, catches, expected };
        assert_eq!(Scenario::read(&scenario.to_string()), Ok(scenario), "seed {seed}");
    }
}

#[test]
fn every_action_is_read_as_it_is_printed() {
    let text = "topology group\nbricks 2\n\
        c1 transact read 1.1.0 write 1.1.3 -7 move 1.1.0 2.1.0 5 rotate 1.1.0 count 1.2 insert 2.1 think 20 pause\nc1 lock append 1.1.0\n\
        c1 insist append 1.1.0\nc1 snapshot read 1.1.0 pause\nc1 put 1.1.3\nc1 get 1.1.3\nc1 go\n\
        crash b1 keep 2\ncrash c1\nrestart b1\ncut c1 r1\nblock c1 > r1 500\nhold b1 > c2\nrelease b1 > c2 1\n\
        release b1 > c2\ndrop b1 > c2\nfreeze c1 3000\ndisk b1 200\nstall b1 forces\nunstall b1 reads\n\
        clock b2 +300 20ppm\nmute c1\ndeceive c1 two-contents\nevict c1 1.1\ninstall b1\nwait 500\n@7 wait 1\n";
    let scenario = Scenario::read(text).unwrap();
    assert_eq!(scenario.plan.actions.len(), 27);
    assert_eq!(Scenario::read(&scenario.to_string()), Ok(scenario));
}

#[test]
fn what_is_not_said_has_a_sensible_value() {
    let scenario = Scenario::read("topology group # with one redirector\n\n@5 c1 transact append 2.1.0\n").unwrap();
    let cluster = scenario.plan.cluster;
    assert_eq!((cluster.topology, cluster.bricks, cluster.peers, cluster.redirectors), (Topology::Group, 2, 1, 1));
    let key = Key { node: 2, page: 1, slot: 0 };
    let operation = Operation::Transact(vec![Step::Append(key)]);
    assert_eq!(scenario.plan.actions, [(Some(5), Action::Do(1, operation))]);
    assert_eq!((scenario.catches, scenario.expected), (vec![], None));
}

#[test]
fn clocks_are_wrong_from_the_start() {
    let scenario = Scenario::read("clock b1 -5 7ppm\nclock c1 +2").unwrap();
    let set = [Action::Clock(ProcessName::Brick(1), -5, 7), Action::Clock(ProcessName::Client(1), 2, 0)];
    assert_eq!(scenario.plan.actions, set.map(|action| (Some(0), action)));
}

#[test]
fn an_error_names_the_line_what_is_wrong_and_what_would_be_right() {
    let cases = [
        ("bricks 2\n\nfly b1", "line 3: `fly` is neither of topology"),
        ("bricks 0", "line 1: `0` is not a number of bricks: a number from 1 to 64"),
        ("topology star", "line 1: `star` is no topology: direct, peer, group, site, mixed"),
        ("noise lots", "write loss=5"),
        ("noise delay=9..3", "the shortest way comes first"),
        ("noise loss=101", "`101` is not a percentage: a number from 0 to 100"),
        ("catches Everything", "`mortar-sim bugs` lists what can"),
        ("demand more", "none, bank 2, ring, solo"),
        ("wait 5\nbricks 2", "line 2: `bricks` belongs above the first action"),
        ("wait 5\nsnapshots", "line 2: `snapshots` belongs above the first action"),
        ("wait", "the line ends, and how long in milliseconds is missing"),
        ("wait 5 6", "`6` is too much on this line"),
        ("crash b3", "there is no b3: the cluster has 2 of these"),
        ("crash x1", "`x1` is no process: b1 is a brick"),
        ("crash é", "`é` is no process"),
        ("crash b1 hold", "`hold` should be `keep`"),
        ("hold b1 c1", "`c1` should be `>`"),
        ("disk c1 5", "c1 is no brick"),
        ("mute b1", "b1 is no client"),
        ("deceive c1 lies", "`lies` is no deceit: altered-copy, incomplete-copy"),
        ("stall b1 all", "forces, reads"),
        ("clock b1 fast", "`fast` is not how far it is off"),
        ("clock b1 +5 20", "such as 20ppm"),
        ("evict c1 1", "write node.page"),
        ("c1", "the line ends, and what the client does is missing"),
        ("c9 go", "there is no c9"),
        ("c1 dance", "transact, lock, insist, snapshot, put, get, go"),
        ("c1 transact jump 1.1.0", "`jump` is no step: read, append"),
        ("c1 transact read 1.1", "write node.page.slot"),
        ("c1 transact read 3.1.0", "`3` is not a logical node"),
        ("c1 transact read 1.0.0", "`0` is not a page"),
        ("c1 snapshot append 1.1.0", "a snapshot only reads"),
        ("@soon wait 5", "`soon` is not a time in milliseconds"),
        ("@5", "what happens then is missing"),
    ];
    for (text, part) in cases {
        let error = error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_scenario_is_bounded() {
    assert!(error(&"#".repeat(TEXT_LIMIT + 1)).contains("at most"));
    assert!(error(&"wait 1\n".repeat(ACTION_LIMIT + 1)).contains("more than"));
    assert!(error(&format!("c1 transact {}", "pause ".repeat(STEP_LIMIT + 1))).contains("more than"));
    assert!(error("wait 100000001").contains("a number from 0 to"));
}

#[test]
fn rewriting_leaves_comments_alone() {
    let text = "# a story\nbricks 1  # one\nwait 5\n----\nwrong: all of it\n";
    let rewritten = Scenario::rewrite(text, &["right".to_owned()]);
    assert_eq!(rewritten, "# a story\nbricks 1  # one\nwait 5\n----\nright\n");
    assert_eq!(Scenario::read(&rewritten).unwrap().expected, Some(vec!["right".to_owned()]));
}
