//! `mortar-sim`.
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args.get(at).and_then(|arg: &String| arg.parse::<u64>().ok()).unwrap_or_default();
    let bug =
        args.get(4).and_then(|name| protocol::plant::Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == *name));
    for seed in number(1)..number(2) {
        let plan = sim::workload::plan(seed, sim::workload::Choice::default());
        let report = sim::run::run(plan, bug, args.len() > 3);
        for line in &report.transcript {
            println!("{line}");
        }
        if let Some(wrong) = report.wrong {
            eprintln!("{seed}: {wrong}");
        }
    }
}
