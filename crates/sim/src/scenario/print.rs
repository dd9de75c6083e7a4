//! Plans printed: the inverse of [`super::parse`].

use std::fmt::Write;

use model::FailurePolicy;

use crate::bug::Bug;
use crate::plan::{Action, Cluster, Demand, DiskWork, Key, Noise, Operation, Plan, Step};

/// A plan as text, with the mistakes that it must notice.
#[must_use]
pub fn print(plan: &Plan, catches: &[Bug]) -> String {
    let mut out = String::new();
    let Plan { seed, cluster, noise, actions, demand } = plan;
    let Cluster { topology, bricks, nodes_per_brick, peers, redirectors, clients, windows, .. } = cluster;
    let Cluster { snapshots, bare, rows_at_once, cold_reads, .. } = cluster;
    // Writing into memory does not fail.
    let _ = writeln!(out, "topology {}\nbricks {bricks}", topology.name());
    if *nodes_per_brick > 1 {
        let _ = writeln!(out, "nodes-per-brick {nodes_per_brick}");
    }
    let _ = writeln!(
        out,
        "peers {peers}\nredirectors {redirectors}\nclients {clients}\nwindow {}\nseed {seed}",
        windows.page
    );
    if windows.retained > 0 {
        let _ = writeln!(out, "retained {}", windows.retained);
    }
    if *snapshots {
        out += "snapshots\n";
    }
    if *bare {
        out += "bare\n";
    }
    if *rows_at_once {
        out += "rows-at-once\n";
    }
    if *cold_reads {
        out += "cold-reads\n";
    }
    if *noise != Noise::NONE {
        let Noise { loss, duplicate, reorder, delay_ms: (least, most), force_ms } = noise;
        let _ = writeln!(
            out,
            "noise loss={loss} duplicate={duplicate} reorder={reorder} delay={least}..{most} force={force_ms}"
        );
    }
    let _ = match demand {
        Demand::None => Ok(()),
        Demand::Bank(accounts) => writeln!(out, "demand bank {accounts}"),
        Demand::Ring => writeln!(out, "demand ring"),
        Demand::Solo => writeln!(out, "demand solo"),
    };
    if !catches.is_empty() {
        out += "catches";
        catches.iter().for_each(|bug| out += &format!(" {bug:?}"));
        out.push('\n');
    }
    out.push('\n');
    for (at, action) in actions {
        if let Some(at) = at {
            let _ = write!(out, "@{at} ");
        }
        out += &print_action(action);
        out.push('\n');
    }
    out
}

/// An action as it is on a line.
#[must_use]
pub fn print_action(action: &Action) -> String {
    match action {
        Action::Do(client, operation) => format!("c{client} {}", print_operation(operation)),
        Action::Go(client) => format!("c{client} go"),
        Action::Crash(place, 0) => format!("crash {place}"),
        Action::Crash(place, kept) => format!("crash {place} keep {kept}"),
        Action::Restart(place) => format!("restart {place}"),
        Action::Cut(one, other) => format!("cut {one} {other}"),
        Action::Block(from, to, ms) => format!("block {from} > {to} {ms}"),
        Action::Hold(from, to) => format!("hold {from} > {to}"),
        Action::Release(from, to, None) => format!("release {from} > {to}"),
        Action::Release(from, to, Some(count)) => format!("release {from} > {to} {count}"),
        Action::Drop(from, to) => format!("drop {from} > {to}"),
        Action::Freeze(place, ms) => format!("freeze {place} {ms}"),
        Action::Disk(brick, ms) => format!("disk b{brick} {ms}"),
        Action::Stall(brick, work) => format!("stall b{brick} {}", name_of(*work)),
        Action::Unstall(brick, work) => format!("unstall b{brick} {}", name_of(*work)),
        Action::Room(brick, None) => format!("room b{brick}"),
        Action::Room(brick, Some(bytes)) => format!("room b{brick} {bytes}"),
        Action::Damage(brick, None) => format!("damage b{brick}"),
        Action::Damage(brick, Some(seed)) => format!("damage b{brick} {seed}"),
        Action::Clock(place, ahead_ms, fast_ppm) => format!("clock {place} {ahead_ms:+} {fast_ppm}ppm"),
        Action::SetClock(place, wrong_ms) => format!("set-clock {place} {wrong_ms:+}"),
        Action::Mute(client) => format!("mute c{client}"),
        Action::Deceive(client, deceit) => format!("deceive c{client} {}", deceit.name()),
        Action::Permit(client, right) => format!("permit c{client} {}", right.name()),
        Action::SetPolicy(FailurePolicy::FailStop) => "policy fail-stop".to_owned(),
        Action::SetPolicy(FailurePolicy::Continue) => "policy continue".to_owned(),
        Action::Evict(client, node, page) => format!("evict c{client} {node}.{page}"),
        Action::Install(brick) => format!("install b{brick}"),
        Action::Reindex(page) => format!("reindex {page}"),
        Action::Evolve(page) => format!("evolve {page}"),
        Action::AddField(page) => format!("add-field {page}"),
        Action::ChangeClass(page) => format!("change-class {page}"),
        Action::Upgrade(client) => format!("upgrade c{client}"),
        Action::Move(node, brick) => format!("move {node} b{brick}"),
        Action::CancelMove(node) => format!("cancel-move {node}"),
        Action::Backup(hold_ms) => format!("backup {hold_ms}"),
        Action::Wait(ms) => format!("wait {ms}"),
    }
}

fn name_of(work: DiskWork) -> &'static str {
    match work {
        DiskWork::Forces => "forces",
        DiskWork::Reads => "reads",
    }
}

fn print_operation(operation: &Operation) -> String {
    let (verb, steps) = match operation {
        Operation::Transact(steps) => ("transact", steps),
        Operation::Lock(steps) => ("lock", steps),
        Operation::Insist(steps) => ("insist", steps),
        Operation::Snapshot(steps) => ("snapshot", steps),
        Operation::Put(key) => return format!("put {key}"),
        Operation::Get(key) => return format!("get {key}"),
    };
    steps.iter().fold(verb.to_owned(), |line, step| line + " " + &print_step(step))
}

fn print_step(step: &Step) -> String {
    match step {
        Step::Read(key) => format!("read {key}"),
        Step::Append(key) => format!("append {key}"),
        Step::Write(key, value) => format!("write {key} {value}"),
        Step::Move(from, to, amount) => format!("move {from} {to} {amount}"),
        Step::Rotate(key) => format!("rotate {key}"),
        Step::Count(Key { node, page, .. }) => format!("count {node}.{page}"),
        Step::Insert(Key { node, page, .. }) => format!("insert {node}.{page}"),
        Step::Note(Key { node, page, .. }) => format!("note {node}.{page}"),
        Step::Sift(Key { node, page, .. }) => format!("sift {node}.{page}"),
        Step::Renew(Key { node, page, .. }) => format!("renew {node}.{page}"),
        Step::Replace(Key { node, page, .. }) => format!("replace {node}.{page}"),
        Step::Reuse(Key { node, page, .. }) => format!("reuse {node}.{page}"),
        Step::Claim(Key { node, page, .. }, value) => format!("claim {node}.{page} {value}"),
        Step::Bind(Key { node, page, .. }, name) => format!("bind {node}.{page} {name}"),
        Step::List(Key { node, page, .. }) => format!("list {node}.{page}"),
        Step::Think(ms) => format!("think {ms}"),
        Step::Pause => "pause".to_owned(),
    }
}
