//! The example of docs/operations.md, as it stands there: only ports and directories of this machine are put in.

use std::fs;
use std::process::Command;

use mortar_tests::node_process::free_port;
use mortar_tests::{program, run};

/// The heading above the example.
const HEADING: &str = "## The catalogue on etcd\n";

/// The first block of commands below the heading.
fn example() -> String {
    let page = "../docs/operations.md";
    let text = fs::read_to_string(page).unwrap();
    let (_, section) = text.split_once(HEADING).expect("docs/operations.md has the section");
    let (_, block) = section.split_once("```sh\n").expect("the section has an example");
    block.split_once("```").expect("the block ends").0.to_owned()
}

#[test]
fn example_of_the_documentation_works() {
    let world = tempfile::tempdir().unwrap();
    let mut script = example();
    assert!(script.contains("https://") && script.contains("etcd_password_file"), "{script}");
    for port in ["2379", "2380", "6690", "6691", "6680", "6678"] {
        assert!(script.contains(port), "{port} is not in {script}");
        script = script.replace(port, &free_port().to_string());
    }
    // Everything that it starts in the background ends with it.
    let script = format!("set -eu\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n{script}");
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = program().parent().unwrap().display().to_string();
    let done = run(Command::new("bash")
        .args(["-c", &script])
        .current_dir(world.path())
        .env("PATH", format!("{bin}:{path}"))
        .env_remove("MORTAR_URL"));
    assert_eq!(done.code, 0, "{script}\n{}\n{}", String::from_utf8_lossy(&done.stdout), done.stderr);
    assert!(String::from_utf8_lossy(&done.stdout).contains("hello"), "{}", String::from_utf8_lossy(&done.stdout));
}
