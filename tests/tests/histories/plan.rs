//! The faults of a run, drawn from its seed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rustix::process::Signal;
use wire::proto::moves;
use wire::proto::moves::r#move::Request;

use crate::backups::Backups;
use crate::objects::Objects;
use crate::process_clients::ProcessClients;
use crate::relay::NetworkConditions;
use crate::test_cluster::{ServerId, TestCluster};
use crate::worker::spawn_dying_client;

/// Longer than a lease, which is 10 s.
const LONG_PAUSE_MS: Range<u64> = 10_500..13_000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Servers are killed and restarted.
    Kill,
    /// All servers are killed at once and restarted one after the other.
    KillAll,
    /// Servers are stopped for less than a lease, and continue.
    Pause,
    /// Servers are stopped for longer than a lease, and continue.
    LongPause,
    /// Connections are cut.
    Cut,
    /// Connections are slow.
    Delay,
    /// Bytes are held back, in one direction or in both, and may be lost.
    Hold,
    /// Connections are cut, and new ones are refused.
    Refuse,
    /// Disks of bricks are full.
    Fill,
    /// A client takes a lock and ends.
    ClientDies,
    /// A logical node moves to another brick.
    Move,
    /// A logical node moves, and its old or new brick is killed meanwhile.
    KillMoving,
    /// Moves are cancelled.
    CancelMoves,
    /// A client process is killed and replaced.
    KillClients,
    /// A client process is stopped, sometimes for longer than a lease, and continues.
    PauseClients,
    /// No fault: the cluster is backed up.
    Backup,
}

/// An event at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEvent {
    Kill,
    Launch,
    Signal(Signal),
    Cut(u64),
    SetConditions(NetworkConditions),
    Fill,
    MakeRoom,
    /// A client ends that has locked the list with this number.
    ClientDies(usize),
    /// A logical node begins to move to a brick.
    Move {
        node: u32,
        to: u32,
    },
    CancelMoves,
    /// The client process with this number is killed and replaced.
    KillClients(usize),
    /// The client process with this number is stopped, or continues.
    SignalClients(usize, Signal),
    Backup,
}

/// The events in order, with their times in milliseconds since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultPlan {
    pub(crate) events: Vec<(u64, ServerId, FaultEvent)>,
}

impl FaultPlan {
    /// Generates faults of these kinds for a given time, at one or several servers at a time, with a given average distance in
    /// milliseconds.
    pub(crate) fn generate(
        rng: &mut StdRng,
        servers: &[ServerId],
        faults: &[Fault],
        length_ms: u64,
        gap_ms: u64,
    ) -> Self {
        let mut plan = Self::default();
        let mut busy: BTreeMap<ServerId, u64> = BTreeMap::new();
        let mut at = 1_000;
        while at < length_ms && !faults.is_empty() {
            let (server, fault) = (*servers.choose(rng).unwrap(), *faults.choose(rng).unwrap());
            if fault == Fault::KillAll {
                for server in servers {
                    busy.insert(*server, plan.add(rng, at, (*server, servers), Fault::Kill));
                }
            } else if busy.get(&server).is_none_or(|until| *until < at) {
                busy.insert(server, plan.add(rng, at, (server, servers), fault));
            }
            at += rng.random_range(1..2 * gap_ms);
        }
        plan.events.sort_by_key(|(at, server, _)| (*at, *server));
        plan
    }

    /// Adds a move of a logical node, if each brick has one. Returns when it is over.
    fn add_move(&mut self, rng: &mut StdRng, at: u64, servers: &[ServerId], fault: Fault) -> u64 {
        let bricks = servers.iter().filter(|server| matches!(server, ServerId::Brick(_))).count() as u64;
        let node_range = 1..=bricks as u32;
        let (node, to) = (rng.random_range(node_range.clone()), rng.random_range(node_range));
        self.events.push((at, ServerId::Meta, FaultEvent::Move { node, to }));
        if fault == Fault::Move {
            return at;
        }
        // The brick of the node is not known here, so one of the bricks is chosen at random.
        let (killed, begin) = (ServerId::Brick(rng.random_range(1..=bricks)), at + rng.random_range(1..60));
        let end = begin + rng.random_range(0..700);
        self.events.extend([(begin, killed, FaultEvent::Kill), (end, killed, FaultEvent::Launch)]);
        end
    }

    /// Adds a fault. Returns when it is over.
    fn add(&mut self, rng: &mut StdRng, at: u64, (server, servers): (ServerId, &[ServerId]), fault: Fault) -> u64 {
        let one_in = rng.random_range(1..4);
        let (begin, end, length) = match fault {
            Fault::Kill | Fault::KillAll => (FaultEvent::Kill, Some(FaultEvent::Launch), rng.random_range(0..1_000)),
            Fault::Pause => {
                (FaultEvent::Signal(Signal::STOP), Some(FaultEvent::Signal(Signal::CONT)), rng.random_range(50..3_000))
            }
            Fault::LongPause => {
                let length = rng.random_range(LONG_PAUSE_MS);
                (FaultEvent::Signal(Signal::STOP), Some(FaultEvent::Signal(Signal::CONT)), length)
            }
            Fault::Fill => (FaultEvent::Fill, Some(FaultEvent::MakeRoom), rng.random_range(300..2_500)),
            Fault::Cut => (FaultEvent::Cut(one_in), None, 0),
            // Its locks are released after some seconds; not again before.
            Fault::ClientDies if self.events.iter().any(|(_, _, event)| matches!(event, FaultEvent::ClientDies(_))) => {
                return at;
            }
            Fault::ClientDies => (FaultEvent::ClientDies(rng.random_range(0..1_000)), None, 0),
            Fault::Move | Fault::KillMoving => return self.add_move(rng, at, servers, fault),
            Fault::CancelMoves => (FaultEvent::CancelMoves, None, 0),
            Fault::Backup => {
                self.events.push((at, server, FaultEvent::Backup));
                return at;
            }
            Fault::KillClients => {
                self.events.push((at, server, FaultEvent::KillClients(rng.random_range(0..1_000))));
                return at;
            }
            Fault::PauseClients => {
                let length =
                    if rng.random_ratio(1, 10) { rng.random_range(LONG_PAUSE_MS) } else { rng.random_range(5..3_000) };
                let which = rng.random_range(0..1_000);
                let of_process = |signal| FaultEvent::SignalClients(which, signal);
                self.events.push((at, server, of_process(Signal::STOP)));
                self.events.push((at + length, server, of_process(Signal::CONT)));
                return at;
            }
            Fault::Delay => {
                let delay = Duration::from_millis(*[1, 5, 20, 100, 400].choose(rng).unwrap());
                let weather = NetworkConditions { delay, one_in, ..NetworkConditions::default() };
                (
                    FaultEvent::SetConditions(weather),
                    Some(FaultEvent::SetConditions(NetworkConditions::default())),
                    rng.random_range(300..3_000),
                )
            }
            Fault::Hold => {
                let (holds_up, holds_down) = *[(true, false), (false, true), (true, true)].choose(rng).unwrap();
                let weather = NetworkConditions {
                    holds_upstream: holds_up,
                    holds_downstream: holds_down,
                    one_in,
                    ..NetworkConditions::default()
                };
                (
                    FaultEvent::SetConditions(weather),
                    Some(FaultEvent::SetConditions(NetworkConditions::default())),
                    rng.random_range(100..4_000),
                )
            }
            Fault::Refuse => {
                self.events.push((at, server, FaultEvent::Cut(1)));
                let weather = NetworkConditions { refuses: true, ..NetworkConditions::default() };
                (
                    FaultEvent::SetConditions(weather),
                    Some(FaultEvent::SetConditions(NetworkConditions::default())),
                    rng.random_range(100..2_000),
                )
            }
        };
        self.events.push((at, server, begin));
        self.events.extend(end.map(|end| (at + length, server, end)));
        at + length
    }
}

impl FaultEvent {
    /// Carries out the event.
    pub(crate) fn apply(
        self,
        ground: &mut TestCluster,
        processes: &mut ProcessClients,
        backups: &mut Backups,
        objects: &Arc<Objects>,
        server: ServerId,
    ) {
        match self {
            Self::Kill => ground.kill(server),
            Self::Launch => ground.launch(server),
            Self::Signal(signal) => ground.signal(server, signal),
            Self::Cut(one_in) => ground.relay(server).cut(one_in),
            Self::Fill => ground.fill(server),
            Self::MakeRoom => ground.make_room(server),
            Self::SetConditions(weather) => ground.relay(server).set_conditions(weather),
            Self::Move { node, to } => {
                ground.ask_to_move(Request::To(moves::MoveTo { nodes: vec![node], brick: to, dry_run: false }));
            }
            Self::CancelMoves => ground.ask_to_move(Request::Cancel(moves::Cancel::default())),
            Self::KillClients(which) => processes.replace(which, &ground.url(which as u64)),
            Self::SignalClients(which, signal) => processes.signal(which, signal),
            Self::Backup => backups.begin(ground.url(0)),
            Self::ClientDies(list) => spawn_dying_client(ground.url(0), objects.clone(), list),
        }
    }
}
