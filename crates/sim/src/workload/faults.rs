//! The faults of a plan: what goes wrong, when, and for how long.

use rand::RngExt;
use rand::seq::IndexedRandom;

use super::{DURATION_MS, Faults, PlanBuilder, Workload};
use crate::plan::{Action, Cluster, ProcessName, Topology};

impl PlanBuilder {
    fn process_names(&self) -> Vec<ProcessName> {
        let Cluster { topology, bricks, peers, redirectors, clients, .. } = self.cluster;
        let bricks = (1..=bricks).map(ProcessName::Brick);
        let peers = (1..=peers).map(ProcessName::Peer);
        let redirectors = (1..=redirectors).map(ProcessName::Redirector);
        let meta = (topology == Topology::Replicated).then_some(ProcessName::Meta);
        bricks.chain(peers).chain(redirectors).chain((1..=clients).map(ProcessName::Client)).chain(meta).collect()
    }

    fn random_process(&mut self) -> ProcessName {
        let places = self.process_names();
        places[self.rng.random_range(0..places.len())]
    }

    /// Short most of the time, and longer than a lease now and then, in milliseconds.
    fn random_duration_ms(&mut self) -> u64 {
        if self.rng.random_bool(0.15) { self.rng.random_range(9_000..14_000) } else { self.rng.random_range(20..2_500) }
    }

    pub(super) fn add_faults(&mut self, actions: &mut Vec<(Option<u64>, Action)>) {
        let network = matches!(self.faults, Faults::Network | Faults::All);
        let crashes = matches!(self.faults, Faults::Crashes | Faults::All);
        if crashes {
            for place in self.process_names() {
                let (ahead, fast) = (self.rng.random_range(-300..300), self.rng.random_range(-24_000..24_000));
                actions.push((Some(0), Action::Clock(place, ahead, fast)));
            }
        }
        for _ in 0..self.rng.random_range(2..16) {
            let (at, ms) = (self.random_time(), self.random_duration_ms());
            let (place, other) = self.communicating_pair();
            match self.rng.random_range(0..10) {
                0..2 if network => actions.push((Some(at), Action::Cut(place, other))),
                2..5 if network => actions.push((Some(at), Action::Block(place, other, ms))),
                5..8 if crashes => {
                    let victim = if self.rng.random_bool(0.5) {
                        ProcessName::Brick(self.node() as usize)
                    } else {
                        self.random_process()
                    };
                    actions.push((Some(at), Action::Crash(victim, self.rng.random_range(0..6))));
                    actions.push((Some(at + ms), Action::Restart(victim)));
                }
                8 if crashes => actions.push((Some(at), Action::Freeze(place, ms))),
                9 if crashes => {
                    let brick = self.node() as usize;
                    actions.push((Some(at), Action::Disk(brick, self.rng.random_range(20..400))));
                    actions.push((Some(at + ms), Action::Disk(brick, 2)));
                }
                _ => {}
            }
        }
        // Outside of transactions, news of one brick that come late and news of another that do not are what matters.
        let late_news = if self.workload == Workload::Pram && network { self.rng.random_range(5..25) } else { 0 };
        for _ in 0..late_news {
            let brick = ProcessName::Brick(self.node() as usize);
            let below = match self.communicating_pair() {
                (ProcessName::Brick(_), below) | (below, ProcessName::Brick(_)) => below,
                _ => continue,
            };
            actions.push((Some(self.random_time()), Action::Block(brick, below, self.rng.random_range(100..1_500))));
        }
        self.add_placement_faults(actions, network, crashes);
        let fills_disks =
            matches!(self.workload, Workload::Phantoms | Workload::Classes | Workload::Lists | Workload::Wide);
        if crashes && fills_disks && self.cluster.topology != Topology::Replicated {
            for _ in 0..self.rng.random_range(0..4) {
                let (at, ms, brick) = (self.random_time(), self.rng.random_range(50..2_500), self.node() as usize);
                actions.push((Some(at), Action::Room(brick, Some(self.rng.random_range(0..4_000)))));
                actions.push((Some(at + ms), Action::Room(brick, None)));
            }
        }
        for _ in 0..self.rng.random_range(0..3) {
            if crashes {
                let client = self.rng.random_range(1..=self.cluster.clients);
                actions.push((Some(self.random_time()), Action::Mute(client)));
            }
        }
    }

    /// Moves of logical nodes, or changes of their groups, with faults of the processes that take part.
    fn add_placement_faults(&mut self, actions: &mut Vec<(Option<u64>, Action)>, network: bool, crashes: bool) {
        let has_moves = self.cluster.topology.allows_moves() && self.rng.random_bool(0.4);
        if !has_moves && self.cluster.topology != Topology::Replicated {
            return;
        }
        for _ in 0..self.rng.random_range(1..6) {
            let (at, node, brick) = (self.random_time(), self.node(), self.node() as usize);
            if has_moves {
                actions.push((Some(at), Action::Move(node, brick)));
                if self.rng.random_bool(0.1) {
                    actions.push((Some(at + self.rng.random_range(0..600)), Action::CancelMove(node)));
                }
                if network && self.rng.random_bool(0.5) {
                    // Answers with copied rows, or requests for them, are lost.
                    let from = ProcessName::Brick(self.node() as usize);
                    let (one, other) = self.random_order(from, ProcessName::Brick(brick));
                    let (at, ms) = (at + self.rng.random_range(0..600), self.rng.random_range(10..400));
                    actions.push((Some(at), Action::Block(one, other, ms)));
                }
            }
            if network && self.rng.random_bool(0.4) {
                // A member of a group goes on until its lease ends, and others go on then.
                let (at, ms) = (self.random_time(), self.rng.random_range(1_000..5_000));
                actions.push((Some(at), Action::Block(ProcessName::Brick(brick), ProcessName::Meta, ms)));
            }
            // Faults during moves, or while the meta-server is down, matter most.
            let victims = [ProcessName::Brick(brick), ProcessName::Brick(self.node() as usize), ProcessName::Meta];
            for victim in victims.into_iter().filter(|_| crashes) {
                if self.rng.random_bool(0.3) {
                    let (at, ms) = (at + self.rng.random_range(0..800), self.random_duration_ms());
                    actions.push((Some(at), Action::Crash(victim, self.rng.random_range(0..6))));
                    actions.push((Some(at + ms), Action::Restart(victim)));
                }
            }
        }
    }

    /// Two processes that talk to each other, in either order.
    fn communicating_pair(&mut self) -> (ProcessName, ProcessName) {
        let Cluster { topology, peers, redirectors, clients, .. } = self.cluster;
        let brick = ProcessName::Brick(self.node() as usize);
        let client = ProcessName::Client(self.rng.random_range(1..=clients));
        if peers == 0 {
            return self.random_order(brick, client);
        }
        let peer = ProcessName::Peer(self.rng.random_range(1..=peers));
        let redirector = (redirectors > 0).then(|| ProcessName::Redirector(self.rng.random_range(1..=redirectors)));
        if topology == Topology::Replicated && self.rng.random_bool(0.5) {
            // Members lose each other, or the meta-server.
            let other =
                if self.rng.random_bool(0.5) { ProcessName::Meta } else { ProcessName::Brick(self.node() as usize) };
            return self.random_order(brick, other);
        }
        if topology == Topology::Chain {
            return self.chained_pair((brick, peer), client);
        }
        let above = [redirector, (topology != Topology::Group).then_some(peer)].into_iter().flatten();
        let above: Vec<ProcessName> = above.collect();
        let above = *above.choose(&mut self.rng).unwrap_or(&peer);
        match self.rng.random_range(0..4) {
            0 if topology == Topology::Mixed => self.random_order(brick, client),
            1 => self.random_order(brick, peer),
            2 => self.random_order(peer, redirector.unwrap_or(client)),
            _ => self.random_order(above, client),
        }
    }

    /// The same where redirectors are in a chain: of any two neighbouring levels.
    fn chained_pair(
        &mut self,
        (brick, peer): (ProcessName, ProcessName),
        client: ProcessName,
    ) -> (ProcessName, ProcessName) {
        let (uppers, all) = (self.cluster.upper_redirectors(), self.cluster.redirectors);
        let upper = ProcessName::Redirector(self.rng.random_range(1..=uppers));
        let lower = ProcessName::Redirector(self.rng.random_range(uppers + 1..=all));
        match self.rng.random_range(0..5) {
            0 => self.random_order(brick, peer),
            1 => self.random_order(peer, upper),
            2 => self.random_order(upper, client),
            3 => self.random_order(upper, lower),
            _ => self.random_order(lower, client),
        }
    }

    fn random_order(&mut self, one: ProcessName, other: ProcessName) -> (ProcessName, ProcessName) {
        if self.rng.random_bool(0.5) { (one, other) } else { (other, one) }
    }

    /// Solo commit: the others must not notice.
    pub(super) fn add_slow_member(&mut self, actions: &mut Vec<(Option<u64>, Action)>) {
        let client = self.rng.random_range(1..=self.cluster.clients);
        let (place, at) = (ProcessName::Client(client), self.rng.random_range(1_000..DURATION_MS / 2));
        actions.push((
            Some(at),
            match self.rng.random_range(0..3) {
                0 => Action::Mute(client),
                1 => Action::Freeze(place, 15_000),
                _ => Action::Crash(place, 0),
            },
        ));
    }
}
