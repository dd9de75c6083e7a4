//! Lines read as a plan: the inverse of [`super::print`].

use std::ops::RangeInclusive;
use std::str::{FromStr, SplitWhitespace};

use model::FailurePolicy;

use super::{ACTION_LIMIT, Malformed, PROCESS_LIMIT, STEP_LIMIT, TIME_LIMIT};
use crate::bug::Bug;
use crate::deceit::Deceit;
use crate::plan::{
    Action, Cluster, Demand, DiskWork, Key, LAST_PROGRAM_PAGE, Noise, Operation, Plan, ProcessName, Step, Topology,
    UserRight,
};
use protocol::validate::WindowLimits;

/// What a header may begin with.
const HEADERS: &str = "topology, bricks, nodes-per-brick, peers, redirectors, clients, window, retained, seed, snapshots, bare, rows-at-once, cold-reads, noise, demand, catches";
/// What an action may begin with.
const ACTIONS: &str = "a client (c1 transact …), crash, restart, cut, block, hold, release, drop, freeze, disk, stall, \
                       unstall, room, clock, set-clock, mute, deceive, permit, policy, evict, install, reindex, evolve, add-field, change-class, upgrade, move, cancel-move, backup, \
                       wait";
/// What a client may do.
const OPERATIONS: &str = "transact, lock, insist, snapshot, put, get, go";
/// How far a clock may be off, in milliseconds, and how fast or slow it may be, in parts of a million.
const CLOCKS: (i64, i64) = (5_000, 100_000);
/// How far a wall clock may be set wrong, in milliseconds.
const SET_CLOCKS: i64 = 1 << 40;
/// The largest page number.
const PAGE_LIMIT: u64 = 1 << 48;

/// Reads all lines before the divider.
pub(super) fn parse(lines: &[&str]) -> Result<(Plan, Vec<Bug>), Malformed> {
    let mut header = Header::default();
    let (mut actions, mut began) = (Vec::new(), false);
    for (index, text) in lines.iter().enumerate() {
        let malformed = |message: String| Malformed { line: index + 1, message };
        let text = text.split('#').next().unwrap_or_default();
        let mut line = Line { words: text.split_whitespace() };
        let Some(first) = line.words.next() else { continue };
        if !began && header.take(first, &mut line).map_err(malformed)? {
            line.end().map_err(malformed)?;
            continue;
        }
        if !began {
            began = true;
            header.finish();
        }
        if actions.len() == ACTION_LIMIT {
            return Err(malformed(format!("more than {ACTION_LIMIT} actions")));
        }
        let action = header.action(first, &mut line).map_err(malformed)?;
        line.end().map_err(malformed)?;
        actions.push(action);
    }
    header.finish();
    let Header { cluster, seed, noise, demand, catches, .. } = header;
    Ok((Plan { seed, cluster, noise, actions, demand }, catches))
}

/// The words of a line that are left.
struct Line<'a> {
    words: SplitWhitespace<'a>,
}

impl<'a> Line<'a> {
    fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.words.next().ok_or_else(|| format!("the line ends, and {what} is missing"))
    }

    fn end(&mut self) -> Result<(), String> {
        self.words.next().map_or(Ok(()), |word| Err(format!("`{word}` is too much on this line")))
    }

    fn number<N: FromStr + PartialOrd + std::fmt::Display>(
        &mut self,
        what: &str,
        range: RangeInclusive<N>,
    ) -> Result<N, String> {
        number(self.word(what)?, what, range)
    }

    fn ms(&mut self, what: &str) -> Result<u64, String> {
        self.number(&format!("{what} in milliseconds"), 0..=TIME_LIMIT)
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), String> {
        match self.word(&format!("`{keyword}`"))? {
            word if word == keyword => Ok(()),
            word => Err(format!("`{word}` should be `{keyword}`")),
        }
    }
}

fn number<N: FromStr + PartialOrd + std::fmt::Display>(
    word: &str,
    what: &str,
    range: RangeInclusive<N>,
) -> Result<N, String> {
    let number = word.parse::<N>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{word}` is not {what}: a number from {} to {}", range.start(), range.end()))
}

/// What the lines before the first action say.
struct Header {
    cluster: Cluster,
    peers: Option<usize>,
    redirectors: Option<usize>,
    seed: u64,
    noise: Noise,
    demand: Demand,
    catches: Vec<Bug>,
}

impl Default for Header {
    fn default() -> Self {
        let topology = Topology::Direct;
        let (snapshots, bare, rows_at_once, cold_reads) = (false, false, false, false);
        let cluster = Cluster {
            topology,
            bricks: 2,
            nodes_per_brick: 1,
            peers: 0,
            redirectors: 0,
            clients: 2,
            windows: WindowLimits { page: 100, retained: 0 },
            snapshots,
            bare,
            rows_at_once,
            cold_reads,
        };
        let (seed, noise, demand, catches) = (0, Noise::NONE, Demand::None, Vec::new());
        Self { cluster, peers: None, redirectors: None, seed, noise, demand, catches }
    }
}

impl Header {
    /// Takes a line of the header. Says whether it is one.
    fn take(&mut self, first: &str, line: &mut Line<'_>) -> Result<bool, String> {
        match first {
            "topology" => {
                let name = line.word("a topology")?;
                let found = Topology::ALL.into_iter().find(|topology| topology.name() == name);
                let names = Topology::ALL.map(Topology::name).join(", ");
                self.cluster.topology = found.ok_or_else(|| format!("`{name}` is no topology: {names}"))?;
            }
            "bricks" => self.cluster.bricks = line.number("a number of bricks", 1..=PROCESS_LIMIT)?,
            "nodes-per-brick" => {
                self.cluster.nodes_per_brick = line.number("a number of logical nodes", 1..=PROCESS_LIMIT)?;
            }
            "peers" => self.peers = Some(line.number("a number of peer servers", 0..=PROCESS_LIMIT)?),
            "redirectors" => self.redirectors = Some(line.number("a number of redirectors", 0..=PROCESS_LIMIT)?),
            "clients" => self.cluster.clients = line.number("a number of clients", 1..=PROCESS_LIMIT)?,
            "window" => self.cluster.windows.page = line.number("a number of entries", 1..=1_000_000)?,
            "retained" => self.cluster.windows.retained = line.number("a number of entries", 0..=1_000_000)?,
            "seed" => self.seed = line.number("a seed", 0..=u64::MAX)?,
            "snapshots" => self.cluster.snapshots = true,
            "bare" => self.cluster.bare = true,
            "rows-at-once" => self.cluster.rows_at_once = true,
            "cold-reads" => self.cluster.cold_reads = true,
            "noise" => self.noise(line)?,
            "demand" => self.demand = demand(line)?,
            "catches" => {
                for name in line.words.by_ref() {
                    let found = Bug::find(name);
                    let bug =
                        found.ok_or_else(|| format!("`{name}` cannot be planted: `mortar-sim bugs` lists what can"))?;
                    self.catches.push(bug);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whatever was not said follows from the topology.
    fn finish(&mut self) {
        let (peers, redirectors) = match self.cluster.topology {
            Topology::Direct => (0, 0),
            Topology::Peer | Topology::Site | Topology::Replicated => (1, 0),
            Topology::Group | Topology::Mixed => (1, 1),
            Topology::Chain => (1, 2),
        };
        self.cluster.peers = self.peers.unwrap_or(peers).max(usize::from(peers > 0));
        self.cluster.redirectors = self.redirectors.unwrap_or(redirectors).max(usize::from(redirectors > 0));
    }

    fn noise(&mut self, line: &mut Line<'_>) -> Result<(), String> {
        for word in line.words.by_ref() {
            let Some((name, value)) = word.split_once('=') else {
                return Err(format!(
                    "`{word}` is no noise: write loss=5, duplicate=5, reorder=5, delay=1..40 or force=2"
                ));
            };
            let percent = || number(value, "a percentage", 0..=100);
            let ms = |value: &str| number(value, "a time in milliseconds", 0..=TIME_LIMIT);
            match name {
                "loss" => self.noise.loss = percent()?,
                "duplicate" => self.noise.duplicate = percent()?,
                "reorder" => self.noise.reorder = percent()?,
                "force" => self.noise.force_ms = ms(value)?,
                "delay" => {
                    let (least, most) = value.split_once("..").unwrap_or((value, value));
                    self.noise.delay_ms = (ms(least)?, ms(most)?);
                    if self.noise.delay_ms.0 > self.noise.delay_ms.1 {
                        return Err(format!("`{word}`: the shortest way comes first"));
                    }
                }
                _ => return Err(format!("`{name}` is no noise: loss, duplicate, reorder, delay, force")),
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------ actions

    fn action(&self, first: &str, line: &mut Line<'_>) -> Result<(Option<u64>, Action), String> {
        let Some(time) = first.strip_prefix('@') else {
            let action = self.action_of(first, line)?;
            // Clocks are wrong from the start.
            let at = matches!(action, Action::Clock(..)).then_some(0);
            return Ok((at, action));
        };
        let at = number(time, "a time in milliseconds", 0..=TIME_LIMIT)?;
        let verb = line.word("what happens then")?;
        Ok((Some(at), self.action_of(verb, line)?))
    }

    fn action_of(&self, verb: &str, line: &mut Line<'_>) -> Result<Action, String> {
        Ok(match verb {
            "crash" => {
                let place = self.process(line)?;
                let kept = match line.words.clone().next() {
                    None => 0,
                    Some(_) => {
                        line.keyword("keep")?;
                        line.number("a number of records", 0..=1_000_000)?
                    }
                };
                Action::Crash(place, kept)
            }
            "restart" => Action::Restart(self.process(line)?),
            "cut" => Action::Cut(self.process(line)?, self.process(line)?),
            "block" => {
                let (from, to) = self.process_pair(line)?;
                Action::Block(from, to, line.ms("how long")?)
            }
            "hold" => {
                let (from, to) = self.process_pair(line)?;
                Action::Hold(from, to)
            }
            "release" => {
                let (from, to) = self.process_pair(line)?;
                let count = line.words.next().map(|word| number(word, "a number of messages", 1..=1_000_000));
                Action::Release(from, to, count.transpose()?)
            }
            "drop" => {
                let (from, to) = self.process_pair(line)?;
                Action::Drop(from, to)
            }
            "freeze" => Action::Freeze(self.process(line)?, line.ms("how long")?),
            "disk" => Action::Disk(self.brick(line)?, line.ms("how long a force takes")?),
            "stall" => Action::Stall(self.brick(line)?, work(line)?),
            "unstall" => Action::Unstall(self.brick(line)?, work(line)?),
            "room" => {
                let brick = self.brick(line)?;
                let bytes = line.words.next().map(|word| number(word, "a number of bytes", 0..=u64::from(u32::MAX)));
                Action::Room(brick, bytes.transpose()?)
            }
            "damage" if self.cluster.bare || self.cluster.topology == Topology::Replicated => {
                return Err("`damage` needs bricks with drivers: not `bare`, and not replica groups".into());
            }
            "damage" => {
                let brick = self.brick(line)?;
                let seed =
                    line.words.next().map(|word| number(word, "a number that determines the page", 0..=u64::MAX));
                Action::Damage(brick, seed.transpose()?)
            }
            "clock" => self.clock(line)?,
            "set-clock" => self.set_clock(line)?,
            "mute" => Action::Mute(self.client(line)?),
            "deceive" => Action::Deceive(self.client(line)?, deceit(line)?),
            "permit" | "policy" if !self.cluster.topology.has_users() || self.cluster.bare => {
                return Err(format!("`{verb}` needs clients below peer servers, without `bare`"));
            }
            "permit" => Action::Permit(self.client(line)?, right(line)?),
            "policy" => Action::SetPolicy(policy(line)?),
            "evict" => {
                let client = self.client(line)?;
                let (node, page) = self.page(line)?;
                Action::Evict(client, node, page)
            }
            "install" => Action::Install(self.brick(line)?),
            "reindex" => Action::Reindex(line.number("a page", 1..=PAGE_LIMIT)?),
            "evolve" => Action::Evolve(line.number("a page", 1..=PAGE_LIMIT)?),
            "add-field" | "change-class" | "upgrade"
                if self.cluster.bare || self.cluster.topology == Topology::Replicated =>
            {
                return Err(format!("`{verb}` needs bricks with drivers: not `bare`, and not replica groups"));
            }
            "upgrade" => Action::Upgrade(self.client(line)?),
            "add-field" => Action::AddField(line.number("a page", 1..=LAST_PROGRAM_PAGE)?),
            "change-class" => Action::ChangeClass(line.number("a page", 1..=LAST_PROGRAM_PAGE)?),
            "move" => {
                if !self.cluster.topology.allows_moves() || self.cluster.bare {
                    return Err("logical nodes move in the topologies peer, group and site only, without `bare`".into());
                }
                let node = self.node(line.word("a logical node such as 1")?)?;
                Action::Move(node, self.brick(line)?)
            }
            "cancel-move" => Action::CancelMove(self.node(line.word("a logical node such as 1")?)?),
            "backup" => Action::Backup(line.ms("how long bricks hold at most")?),
            "wait" => Action::Wait(line.ms("how long")?),
            client if client.starts_with('c') && client[1..].bytes().all(|byte| byte.is_ascii_digit()) => {
                self.operation_of(client, line)?
            }
            header if Self::default().take(header, &mut Line { words: "".split_whitespace() }) != Ok(false) => {
                return Err(format!("`{header}` belongs above the first action"));
            }
            other => return Err(format!("`{other}` is neither of {HEADERS}; nor of {ACTIONS}")),
        })
    }

    /// A process that there is.
    fn process(&self, line: &mut Line<'_>) -> Result<ProcessName, String> {
        self.process_named(line.word("a process such as b1, p1, r1 or c1")?)
    }

    fn process_named(&self, word: &str) -> Result<ProcessName, String> {
        let Cluster { bricks, peers, redirectors, clients, .. } = self.cluster;
        if word == "meta" {
            return Ok(ProcessName::Meta);
        }
        if word == "admin" {
            return Ok(ProcessName::Admin);
        }
        let none = || format!("`{word}` is no process: b1 is a brick, p1 a peer server, r1 a redirector, c1 a client");
        let at = word.char_indices().nth(1).map_or(word.len(), |(at, _)| at);
        let number: usize = word[at..].parse().map_err(|_| none())?;
        let (place, many): (ProcessName, usize) = match &word[..at] {
            "b" => (ProcessName::Brick(number), bricks),
            "p" => (ProcessName::Peer(number), peers),
            "r" => (ProcessName::Redirector(number), redirectors),
            "c" => (ProcessName::Client(number), clients),
            _ => return Err(none()),
        };
        match (1..=many).contains(&number) {
            true => Ok(place),
            false => Err(format!("there is no {word}: the cluster has {many} of these")),
        }
    }

    fn brick(&self, line: &mut Line<'_>) -> Result<usize, String> {
        match self.process(line)? {
            ProcessName::Brick(number) => Ok(number),
            place => Err(format!("{place} is no brick: only bricks have disks")),
        }
    }

    fn client(&self, line: &mut Line<'_>) -> Result<usize, String> {
        match self.process(line)? {
            ProcessName::Client(number) => Ok(number),
            place => Err(format!("{place} is no client")),
        }
    }

    /// From one process to another.
    fn process_pair(&self, line: &mut Line<'_>) -> Result<(ProcessName, ProcessName), String> {
        let from = self.process(line)?;
        line.keyword(">")?;
        Ok((from, self.process(line)?))
    }

    fn clock(&self, line: &mut Line<'_>) -> Result<Action, String> {
        let place = self.process(line)?;
        let (off, fast) = CLOCKS;
        let ahead = line.number("how far it is off, in milliseconds", -off..=off)?;
        let fast = match line.words.next() {
            None => 0,
            Some(word) => {
                let Some(ppm) = word.strip_suffix("ppm") else {
                    return Err(format!("`{word}` should be how fast it is, such as 20ppm"));
                };
                number(ppm, "how fast it is", -fast..=fast)?
            }
        };
        Ok(Action::Clock(place, ahead, fast))
    }

    fn set_clock(&self, line: &mut Line<'_>) -> Result<Action, String> {
        let place = self.process(line)?;
        Ok(Action::SetClock(place, line.number("how far it is ahead, in milliseconds", -SET_CLOCKS..=SET_CLOCKS)?))
    }

    fn operation_of(&self, client: &str, line: &mut Line<'_>) -> Result<Action, String> {
        let ProcessName::Client(client) = self.process_named(client)? else {
            return Err(format!("{client} is no client"));
        };
        let operation = match line.word("what the client does")? {
            "go" => return Ok(Action::Go(client)),
            "transact" => Operation::Transact(self.steps(line)?),
            "lock" => Operation::Lock(self.steps(line)?),
            "insist" => Operation::Insist(self.steps(line)?),
            "snapshot" => {
                let steps = self.steps(line)?;
                if !steps.iter().all(|step| matches!(step, Step::Read(_) | Step::Think(_) | Step::Pause)) {
                    return Err("a snapshot only reads".to_owned());
                }
                Operation::Snapshot(steps)
            }
            "put" => Operation::Put(self.key(line)?),
            "get" => Operation::Get(self.key(line)?),
            other => return Err(format!("`{other}` is nothing that a client does: {OPERATIONS}")),
        };
        Ok(Action::Do(client, operation))
    }

    fn steps(&self, line: &mut Line<'_>) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        while let Some(verb) = line.words.next() {
            if steps.len() == STEP_LIMIT {
                return Err(format!("more than {STEP_LIMIT} steps"));
            }
            steps.push(match verb {
                "read" => Step::Read(self.key(line)?),
                "append" => Step::Append(self.key(line)?),
                "write" => Step::Write(self.key(line)?, line.number("what is written", i64::MIN..=i64::MAX)?),
                "move" => {
                    let (from, to) = (self.key(line)?, self.key(line)?);
                    Step::Move(from, to, line.number("an amount", 0..=1_000_000)?)
                }
                "rotate" => Step::Rotate(self.key(line)?),
                "count" => Step::Count(self.set(line)?),
                "insert" => Step::Insert(self.set(line)?),
                "note" => Step::Note(self.program_set(line)?),
                "sift" => Step::Sift(self.program_set(line)?),
                "renew" => Step::Renew(self.program_set(line)?),
                "replace" => Step::Replace(self.program_set(line)?),
                "reuse" => Step::Reuse(self.program_set(line)?),
                "claim" => Step::Claim(self.set(line)?, line.number("a value", 0..=i64::from(u16::MAX))?),
                "bind" => Step::Bind(self.set(line)?, line.number("a name", 0..=i64::from(u16::MAX))?),
                "list" => Step::List(self.set(line)?),
                "think" => Step::Think(line.ms("how long")?),
                "pause" => Step::Pause,
                other => {
                    return Err(format!(
                        "`{other}` is no step: read, append, write, move, rotate, count, insert, note, \
                         sift, renew, replace, reuse, claim, bind, list, think, pause"
                    ));
                }
            });
        }
        Ok(steps)
    }

    fn page(&self, line: &mut Line<'_>) -> Result<(u32, u64), String> {
        let word = line.word("a page such as 1.2")?;
        let Some((node, page)) = word.split_once('.') else {
            return Err(format!("`{word}` is no page: write node.page, such as 1.2"));
        };
        Ok((self.node(node)?, number(page, "a page", 1..=PAGE_LIMIT)?))
    }

    /// A set with its guard on this page.
    fn set(&self, line: &mut Line<'_>) -> Result<Key, String> {
        let (node, page) = self.page(line)?;
        Ok(Key::guard(node, page))
    }

    /// A set whose members have programs.
    fn program_set(&self, line: &mut Line<'_>) -> Result<Key, String> {
        let guard = self.set(line)?;
        if guard.page > LAST_PROGRAM_PAGE {
            return Err(format!(
                "programs know the sets of pages 1 to {LAST_PROGRAM_PAGE}, and this is {}",
                guard.page
            ));
        }
        Ok(guard)
    }

    fn node(&self, word: &str) -> Result<u32, String> {
        number(word, "a logical node: each brick has the one of its number", 1..=self.cluster.bricks as u32)
    }

    fn key(&self, line: &mut Line<'_>) -> Result<Key, String> {
        let word = line.word("an object such as 1.2.0")?;
        let parts: Vec<&str> = word.split('.').collect();
        let [node, page, slot] = parts[..] else {
            return Err(format!("`{word}` is no object: write node.page.slot, such as 1.2.0"));
        };
        let node = self.node(node)?;
        Ok(Key { node, page: number(page, "a page", 1..=PAGE_LIMIT)?, slot: number(slot, "a slot", 0..=u16::MAX)? })
    }
}

fn demand(line: &mut Line<'_>) -> Result<Demand, String> {
    Ok(match line.word("a demand")? {
        "none" => Demand::None,
        "bank" => Demand::Bank(line.number("a number of accounts", 1..=100)?),
        "ring" => Demand::Ring,
        "solo" => Demand::Solo,
        other => return Err(format!("`{other}` is no demand: none, bank 2, ring, solo")),
    })
}

fn deceit(line: &mut Line<'_>) -> Result<Deceit, String> {
    let name = line.word("how the client breaks the rules")?;
    let found = Deceit::ALL.into_iter().find(|deceit| deceit.name() == name);
    found.ok_or_else(|| format!("`{name}` is no deceit: {}", Deceit::ALL.map(Deceit::name).join(", ")))
}

fn right(line: &mut Line<'_>) -> Result<UserRight, String> {
    let name = line.word("what the user may do")?;
    let found = UserRight::ALL.into_iter().find(|right| right.name() == name);
    found.ok_or_else(|| format!("`{name}` is no permission: {}", UserRight::ALL.map(UserRight::name).join(", ")))
}

fn policy(line: &mut Line<'_>) -> Result<FailurePolicy, String> {
    match line.word("fail-stop or continue")? {
        "fail-stop" => Ok(FailurePolicy::FailStop),
        "continue" => Ok(FailurePolicy::Continue),
        other => Err(format!("`{other}` is no policy: fail-stop, continue")),
    }
}

fn work(line: &mut Line<'_>) -> Result<DiskWork, String> {
    match line.word("forces or reads")? {
        "forces" => Ok(DiskWork::Forces),
        "reads" => Ok(DiskWork::Reads),
        other => Err(format!("`{other}` is nothing that a disk does: forces, reads")),
    }
}
