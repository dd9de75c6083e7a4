//! Actions on the cluster: operations, faults, healing, and the checks at the end.

use std::collections::BTreeMap;

use model::{NodeId, Object};

use super::client::ClientProcess;
use super::event::Event;
use super::net::Pid;
use super::process::{BrickProcess, ProcessMachine};
use super::{RunFailure, World};
use crate::object::Content;
use crate::plan::{Action, Demand, Key, ProcessName, RING_SLOTS};
use check::history::{self, Outcome};
use check::{Violation, acknowledged, bank, exactly_once, pram, snapshot, strict_serializability};

/// The maximum time until everything has ended after healing, in milliseconds.
const QUIESCE_MS: u64 = 120_000;
/// The polling interval for that, in milliseconds.
const QUIESCE_POLL_MS: u64 = 100;
/// The maximum time until the last message arrives after that, in milliseconds.
const ARRIVE_MS: u64 = 2_000;
/// The maximum age of a group snapshot in a cluster without faults, in milliseconds.
const STALENESS_MS: u64 = 1_000;

impl World {
    /// Performs an action.
    pub(super) fn act(&mut self, action: &Action) {
        self.note(|_| format!("* {action:?}"));
        self.rejections.note_action(action, self.now);
        match *action {
            Action::Do(number, ref operation) => {
                self.with_client(number, |client| client.queue.push_back(operation.clone()));
            }
            Action::Go(number) => self.with_client(number, ClientProcess::resume),
            Action::Mute(number) => {
                self.with_client(number, |client| client.muted = true);
                self.oracle.slow.insert(ProcessName::Client(number));
            }
            Action::Deceive(number, deceit) => self.make_wicked(number, deceit),
            Action::Permit(client, right) => self.permit(client, right),
            Action::SetPolicy(policy) => self.set_policy(policy),
            Action::Evict(number, node, page) => {
                let page = Key { node, page, slot: 0 }.page();
                self.with_client(number, |client| client.driver.evict(page));
            }
            Action::Crash(place, kept) => self.crash(place, kept),
            Action::Restart(place) => self.restart(place),
            Action::Freeze(place, ms) => {
                if let Some(pid) = self.pid(place) {
                    let process = &mut self.processes[pid];
                    if process.frozen_until <= self.now {
                        process.frozen_from = self.now;
                    }
                    process.frozen_until = self.now + ms;
                    self.oracle.slow.insert(place);
                }
            }
            // Clocks never jump: they are set before anything happens.
            Action::Clock(place, ahead_ms, fast_ppm) if self.now == 0 => {
                if let Some(pid) = self.pid(place) {
                    let clock = &mut self.processes[pid].clock;
                    (clock.ahead_ms, clock.fast_ppm) = (ahead_ms, fast_ppm);
                }
            }
            Action::SetClock(place, wrong_ms) => self.set_clock(place, wrong_ms),
            Action::Clock(..) | Action::Wait(_) => {}
            Action::Cut(..) | Action::Block(..) | Action::Hold(..) | Action::Release(..) | Action::Drop(..) => {
                self.act_on_net(action);
            }
            Action::Disk(number, _) | Action::Stall(number, _) | Action::Unstall(number, _) => {
                if let Some(pid) = self.pid(ProcessName::Brick(number)) {
                    self.act_on_disk(pid, action);
                }
            }
            Action::Room(number, bytes) => self.set_room(number, bytes),
            Action::Damage(number, seed) => self.set_damage(number, seed),
            Action::Install(number) => self.install(number),
            Action::Reindex(page) => self.reindex(page),
            Action::Evolve(page) => self.evolve(page),
            Action::AddField(page) => self.add_field(page),
            Action::ChangeClass(page) => self.change_class(page),
            Action::Upgrade(client) => self.upgrade(client),
            Action::Move(node, brick) => self.request_move(node, brick),
            Action::CancelMove(node) => self.cancel_move(node),
            Action::Backup(hold_ms) => self.begin_cut(hold_ms),
        }
    }

    /// Calls a function with a client that is up, and carries out its outputs.
    fn with_client(&mut self, number: usize, act: impl FnOnce(&mut ClientProcess)) {
        let Some(pid) = self.pid(ProcessName::Client(number)) else { return };
        if let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine {
            act(client);
        }
        self.drain_process(pid);
    }

    fn act_on_net(&mut self, action: &Action) {
        match *action {
            Action::Cut(one, other) => {
                for (lower, upper) in [(one, other), (other, one)] {
                    let pair = self.pid(lower).zip(self.pid(upper));
                    let links = pair.map(|(lower, upper)| self.net.all_between(lower, upper));
                    links.into_iter().flatten().for_each(|link| self.cut(link));
                }
            }
            Action::Block(from, to, ms) => {
                if let Some((from, to)) = self.pid(from).zip(self.pid(to)) {
                    self.net.block(from, to, self.now + ms);
                }
            }
            Action::Hold(from, to) => self.net.held.extend(self.pid(from).zip(self.pid(to))),
            Action::Release(from, to, count) => self.release(from, to, count),
            Action::Drop(from, to) => {
                if let Some(pair) = self.pid(from).zip(self.pid(to)) {
                    let parked = self.parked.entry(pair).or_default();
                    parked.retain(|event| !matches!(event, Event::Datagram(..)));
                }
            }
            _ => {}
        }
    }

    fn act_on_disk(&mut self, pid: Pid, action: &Action) {
        match *action {
            Action::Disk(_, ms) => self.processes[pid].force_ms = ms,
            Action::Stall(_, work) => drop(self.stalled.entry((pid, work)).or_default()),
            Action::Unstall(_, work) => {
                let stalled = self.stalled.remove(&(pid, work));
                stalled.into_iter().flatten().for_each(|event| self.push(self.now, event));
            }
            _ => {}
        }
    }

    fn crash(&mut self, place: ProcessName, kept: usize) {
        let Some(pid) = self.pid(place).filter(|pid| self.processes[*pid].machine.is_some()) else { return };
        self.oracle.slow.insert(place);
        for link in self.net.links_of(pid) {
            self.cut(link);
        }
        let process = &mut self.processes[pid];
        process.uplinks.iter_mut().for_each(|uplink| uplink.link = None);
        process.incarnation += 1;
        process.frozen_until = 0;
        match process.machine.take() {
            Some(ProcessMachine::Driven(driven)) => {
                let torn = self.net.chance(pid, (0, u64::from(u32::MAX)));
                self.processes[pid].driven_disk = Some(driven.crash(kept, torn));
            }
            Some(ProcessMachine::Brick(brick)) => {
                let BrickProcess { mut disk, .. } = *brick;
                disk.crash(kept);
                process.disk = Some(disk);
            }
            Some(ProcessMachine::Client(mut client)) => {
                let unfinished = client.take_unfinished();
                unfinished.iter().for_each(|one| self.rejections.note_ended_operation(one.number, self.now));
                self.history.operations.extend(unfinished);
            }
            Some(ProcessMachine::GroupMember(host)) => process.logs = host.crash(kept),
            Some(
                ProcessMachine::CacheNode(_)
                | ProcessMachine::Peer(_)
                | ProcessMachine::Redirector(_)
                | ProcessMachine::Meta(_)
                | ProcessMachine::Admin(_)
                | ProcessMachine::Catalog,
            )
            | None => {}
        }
    }

    pub(super) fn restart(&mut self, place: ProcessName) {
        let Some(pid) = self.pid(place).filter(|pid| self.processes[*pid].machine.is_none()) else { return };
        self.start(pid);
        if !matches!(self.processes[pid].machine, Some(ProcessMachine::Brick(_) | ProcessMachine::Driven(_))) {
            return;
        }
        let nodes: Vec<NodeId> = self.serving.iter().filter(|(_, at)| **at == pid).map(|(node, _)| *node).collect();
        for node in nodes {
            let pages = self.oracle.pages_of(node);
            let versions = pages.filter_map(|page| Some((page, self.stored_version(page)?))).collect();
            self.oracle.restarted.insert(node, versions);
        }
    }

    fn release(&mut self, from: ProcessName, to: ProcessName, count: Option<usize>) {
        let Some(pair) = self.pid(from).zip(self.pid(to)) else { return };
        if count.is_none() {
            self.net.held.remove(&pair);
        }
        let parked = self.parked.entry(pair).or_default();
        let count = count.unwrap_or(parked.len()).min(parked.len());
        let released: Vec<Event> = parked.drain(..count).collect();
        // These messages are delivered at once; later ones are still held.
        released.into_iter().for_each(|event| self.handle_event(event));
    }

    /// Installs durable changes into the B-tree, copies forward records that are still needed, and frees the log, in
    /// this order.
    fn install(&mut self, number: usize) {
        let Some(pid) = self.pid(ProcessName::Brick(number)) else { return };
        self.install_driven(pid);
        let now = self.local_time(pid);
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        let BrickProcess { brick, disk } = &mut **process;
        let upto = disk.install();
        brick.carry_forward(upto, now);
        self.drain_brick(pid);
        // The copies have to be durable before the originals go.
        self.force_now(pid);
        if let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine {
            process.disk.free(upto);
        }
        self.drain_process(pid);
    }

    /// Forces the log at once.
    fn force_now(&mut self, pid: Pid) {
        let now = self.local_time(pid);
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        let BrickProcess { brick, disk } = &mut **process;
        disk.forcing = None;
        disk.begin_force();
        let position = disk.end_force();
        brick.handle_forced(position, now, disk);
        self.drain_brick(pid);
    }

    // ------------------------------------------------------------------------------------------ the end

    /// Heals all faults and restarts all processes.
    pub(super) fn heal(&mut self) {
        self.healing = true;
        self.note(|_| "* heal".to_owned());
        self.net.heal();
        self.rejections.heal(self.now);
        self.set_clock(ProcessName::Meta, 0);
        self.net.held.clear();
        let parked = std::mem::take(&mut self.parked).into_values().flatten();
        let stalled = std::mem::take(&mut self.stalled).into_values().flatten();
        for event in parked.chain(stalled).collect::<Vec<Event>>() {
            self.push(self.now + 1, event);
        }
        for pid in 0..self.processes.len() {
            self.processes[pid].force_ms = self.plan.noise.force_ms;
            self.set_clock(self.processes[pid].place, 0);
            self.set_room_of(pid, None);
            self.heal_damage_of(pid);
            if let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine {
                client.muted = false;
                client.resume();
            }
            self.restart(self.processes[pid].place);
            self.drain_process(pid);
        }
        self.tell_placement();
    }

    /// Waits until everything has ended.
    pub(super) fn quiesce(&mut self) -> Result<(), RunFailure> {
        let until = self.now + QUIESCE_MS;
        loop {
            self.update_index_states();
            self.run_until(self.now + QUIESCE_POLL_MS)?;
            let Some(busy) = self.is_busy().or_else(|| self.awaits_index()) else { break };
            if self.now >= until {
                return Err(RunFailure::Stuck(busy));
            }
        }
        // Messages under way arrive.
        self.run_until(self.now.max(self.net.last_arrival) + ARRIVE_MS)?;
        self.check_move_counts()?;
        self.check_stores()?;
        self.check_revoked_users()?;
        self.check_resumed()?;
        self.check_copies()
    }

    /// An index that waits because damaged rows could not be read: it is tried again after a minute.
    fn awaits_index(&self) -> Option<String> {
        let incomplete = (self.count.damaged > 0).then(|| self.incomplete_index()).flatten();
        incomplete.map(|index| format!("index {index} is never complete"))
    }

    /// The first operation, transaction or move that has not ended.
    fn is_busy(&self) -> Option<String> {
        let busy = self.processes.iter().find_map(|process| match process.machine.as_ref()? {
            _ if process.frozen_until > self.now => Some(format!("{} is frozen", process.place)),
            ProcessMachine::Client(client) if !client.is_idle() => {
                Some(format!("{} waits in {:?}", process.place, client.current_record()))
            }
            ProcessMachine::Driven(driven) => {
                let txn = driven.brick.any_prepared()?;
                Some(format!("{txn:?} is prepared at {} for ever", process.place))
            }
            ProcessMachine::Brick(brick) => {
                let txn = brick.brick.prepared_txns().next()?;
                Some(format!("{txn:?} is prepared at {} for ever", process.place))
            }
            ProcessMachine::GroupMember(host) => {
                let txn = host.roots().find_map(|root| root.brick.prepared_txns().next())?;
                Some(format!("{txn:?} is prepared at {} for ever", process.place))
            }
            _ => None,
        });
        busy.or_else(|| self.pending_group()).or_else(|| self.pending_move())
    }

    /// The stores have every page as the last durable change has left it (L1).
    fn check_stores(&self) -> Result<(), RunFailure> {
        for node in self.serving.keys().filter(|node| self.driven_brick(**node).is_some()) {
            for (page, objects) in self.stored_pages(*node) {
                if let Some(expected) = self.oracle.newest(page).filter(|expected| **expected != objects) {
                    return Err(RunFailure::Rule(format!(
                        "L1: {page:?} is stored as {objects:?}, and its changes made it {expected:?}"
                    )));
                }
            }
            self.check_sets(*node)?;
            self.check_directories(*node)?;
        }
        self.check_rows()
    }

    /// The rows of each logical node agree with each other.
    fn check_rows(&self) -> Result<(), RunFailure> {
        for process in &self.processes {
            let Some(ProcessMachine::Driven(driven)) = &process.machine else { continue };
            let checked = driven.brick.check_rows();
            checked.map_err(|why| {
                RunFailure::Rule(format!("S: the rows of {} contradict each other: {why}", process.place))
            })?;
        }
        Ok(())
    }

    /// After all messages have arrived, every usable copy is listed at all nodes up to the brick (D1), and is as new as
    /// its page (D3).
    fn check_copies(&self) -> Result<(), RunFailure> {
        for (pid, process) in self.processes.iter().enumerate() {
            let Some(ProcessMachine::Client(client)) = &process.machine else { continue };
            let now = process.clock.show(self.now);
            for (page, version) in client.driver.session().cache().copies() {
                let Some(newest) = self.stored_version(page) else { continue };
                if !client.driver.session().may_use(page.node, now) {
                    continue;
                }
                if version != newest {
                    let place = process.place;
                    return Err(RunFailure::Rule(format!(
                        "D3: {place} has {page:?} at {version:?} for ever, and it is at {newest:?}"
                    )));
                }
                self.check_listed(pid, page)?;
            }
        }
        Ok(())
    }

    fn check_listed(&self, pid: Pid, page: model::PageId) -> Result<(), RunFailure> {
        let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { return Ok(()) };
        let (mut below, mut holder) = (pid, client.driver.session().holder(page.node));
        loop {
            let uplinks = &self.processes[below].uplinks;
            let at = self.serving.get(&page.node);
            let uplink = uplinks.iter().find(|uplink| match uplink.brick {
                Some(_) => at == uplink.choices.first(),
                None => uplink.node.is_none_or(|node| node == page.node),
            });
            let (Some(link), Some(session)) = (uplink.and_then(|uplink| uplink.link), holder) else { return Ok(()) };
            let upper = self.net.links[link].upper;
            let (directory, next) = match &self.processes[upper].machine {
                Some(ProcessMachine::Driven(driven)) => {
                    if driven.brick.is_listed(page, session) {
                        return Ok(());
                    }
                    (None, None)
                }
                Some(ProcessMachine::Brick(_) | ProcessMachine::GroupMember(_)) => {
                    let root = self.root(page.node).filter(|(at, ..)| *at == upper);
                    (root.map(|(_, brick, _)| brick.directory()), None)
                }
                Some(ProcessMachine::Peer(peer)) => {
                    let tree = peer.driver.cache_node().tree(page.node);
                    (tree.map(|tree| tree.directory()), tree.map(|tree| tree.upstream().holder()))
                }
                Some(ProcessMachine::Redirector(redirector)) => {
                    let tree = redirector.driver.cache_node().tree(page.node);
                    (tree.map(|tree| tree.directory()), tree.map(|tree| tree.upstream().holder()))
                }
                Some(ProcessMachine::CacheNode(middle)) => {
                    let tree = middle.tree(page.node);
                    (tree.map(|tree| tree.directory()), tree.map(|tree| tree.upstream().holder()))
                }
                _ => (None, None),
            };
            let is_listed = directory.is_some_and(|directory| directory.holders(page).any(|one| one == session));
            if !is_listed {
                let (lower, upper) = (self.name(below), self.name(upper));
                return Err(RunFailure::Rule(format!("D1: {lower} has {page:?}, and is not listed at {upper}")));
            }
            (below, holder) = (upper, next);
            if next.is_none() {
                return Ok(());
            }
        }
    }

    /// Checks what clients observed, and the final state.
    pub(super) fn judge(&mut self) -> Result<(), RunFailure> {
        for process in &mut self.processes {
            if let Some(ProcessMachine::Client(client)) = &mut process.machine {
                self.history.operations.extend(client.take_unfinished());
            }
        }
        self.history.operations.sort_by_key(|operation| operation.number);
        self.drop_reads_of_lost_writes();
        self.history.split_sets();
        self.drop_unjudged_steps();
        self.add_cut_reads();
        let finals = self.finals();
        let orders: BTreeMap<String, Vec<i64>> =
            self.oracle.orders.iter().map(|(key, values)| (key.to_string(), values.clone())).collect();
        let found = |violation: Violation| RunFailure::History(Box::new(violation));
        let history = &self.history;
        history.validate().map_err(|malformed| RunFailure::Rule(malformed.to_string()))?;
        strict_serializability::check(history).map_err(found)?;
        let is_calm = self.plan.noise.loss == 0 && !self.plan.has_faults();
        let bound_ms = is_calm.then_some(STALENESS_MS);
        snapshot::check(history, snapshot::Demands { bound_ms, real_time: false }).map_err(found)?;
        pram::check(history, &orders).map_err(found)?;
        exactly_once::check(history, &finals).map_err(found)?;
        acknowledged::check(history, &finals).map_err(found)?;
        self.check_appends()?;
        self.check_demand()
    }

    /// The final content of each object: a list, or all numbers that it ever contained.
    pub(super) fn finals(&self) -> BTreeMap<String, Vec<i64>> {
        let mut finals = BTreeMap::new();
        for (key, state) in self.objects() {
            let values = match Content::decode(&state) {
                Some(Content::Number(number)) if key.set().is_some() => {
                    let name = |guard: Key| match Content::unique_value(&state) {
                        Some(value) => guard.claim_name(value),
                        None => guard.to_string(),
                    };
                    let set = key.set().map(name).unwrap_or_default();
                    finals.insert(history::member(&set, number), vec![number]);
                    self.add_texts((key, number), &state, &mut finals);
                    continue;
                }
                Some(Content::List(list)) => list,
                None => continue,
                // Transactions may write equal balances, which are judged by their sum.
                Some(Content::Number(_)) if matches!(self.plan.demand, Demand::Bank(_) | Demand::Ring) => continue,
                Some(Content::Number(_)) => self.oracle.orders.get(&key).cloned().unwrap_or_default(),
            };
            finals.insert(key.to_string(), values);
        }
        self.add_directories(&mut finals);
        self.add_former_members(&mut finals);
        finals
    }

    /// The result of a query for the members of a set, if its brick is up.
    pub(super) fn members(&self, guard: Key) -> Option<Vec<i64>> {
        let (_, _, disk) = self.root(guard.page().node)?;
        let objects = disk.pages.iter().flat_map(|(page, state)| {
            let key = |slot| Key { node: page.node.0, page: page.number, slot };
            state.objects.iter().map(move |(slot, state)| (key(*slot), state))
        });
        let members = objects.filter(|(key, _)| key.set() == Some(guard));
        Some(members.filter_map(|(_, state)| Content::number(state)).collect())
    }

    /// All stored objects.
    pub(super) fn objects(&self) -> BTreeMap<Key, Object> {
        let mut objects = BTreeMap::new();
        for (page, stored) in self.serving.keys().flat_map(|node| self.stored_pages(*node)) {
            for (slot, object) in stored.iter() {
                let key = Key { node: page.node.0, page: page.number, slot: *slot };
                objects.insert(key, self.with_bytes(key, object.clone()));
            }
        }
        objects
    }

    pub(super) fn check_demand(&self) -> Result<(), RunFailure> {
        let numbers = |slots: u16| {
            let objects = self.objects().into_iter().filter(move |(key, _)| key.page == 1 && key.slot < slots);
            objects.filter_map(|(key, state)| Content::number(&state).map(|number| (key, number)))
        };
        match self.plan.demand {
            Demand::Bank(slots) => {
                let finals: BTreeMap<String, i64> =
                    numbers(slots).map(|(key, number)| (key.to_string(), number)).collect();
                let total = crate::plan::BALANCE * i64::from(slots) * self.plan.cluster.bricks as i64;
                bank::check(&self.history, total, &finals)
                    .map_err(|violation| RunFailure::History(Box::new(violation)))?;
                Ok(())
            }
            Demand::Ring => {
                let next: BTreeMap<Key, i64> = numbers(RING_SLOTS).collect();
                let (mut at, mut met) = (Key::in_ring(0), 0);
                loop {
                    met += 1;
                    at = Key::in_ring(next.get(&at).copied().unwrap_or_default());
                    if at == Key::in_ring(0) || met > next.len() {
                        break;
                    }
                }
                if met == next.len() {
                    Ok(())
                } else {
                    Err(RunFailure::Rule(format!("the ring of {} is one of {met}", next.len())))
                }
            }
            Demand::None | Demand::Solo => Ok(()),
        }
    }

    /// The number of successful operations: a run without any proves nothing.
    #[must_use]
    pub fn success_count(&self) -> usize {
        self.history.operations.iter().filter(|operation| operation.outcome == Outcome::Ok).count()
    }
}
