//! Commands without a server: wrong usage, help, completions, manual.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn mortar(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mortar"))
        .args(args)
        .env_remove("MORTAR_URL")
        .stdin(Stdio::null())
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn wrong_usage_ends_with_2_and_a_suggestion() {
    for (args, words) in [
        (&["frobnicate"][..], "frobnicate"),
        (&[][..], "Usage"),
        (&["get", "cat.jpg"][..], "did you mean /cat.jpg"),
        (&["get", "/x", "--range", "9-1"][..], "ends before it begins"),
        (&["put", "-", "/x", "--attr", "novalue"][..], "KEY=VALUE"),
        (&["ls", "--server", "http://localhost"][..], "mortar://"),
        (&["ls", "--timeout", "0"][..], "above 0"),
        (&["dev", "--http", "none", "--listen", "none", "--socket", "none"][..], "--listen"),
        (&["node"][..], "--role brick"),
        (&["node", "--role", "peer", "--data", "x"][..], "keeps nothing"),
        (&["node", "--role", "brick", "--listen", "0.0.0.0:0"][..], "--advertise"),
        (&["object", "put", "cat.jpg", "-"][..], "did you mean /cat.jpg"),
        (&["import", "/data", "--max-bytes", "none"][..], "is no size"),
        (&["cert", "certs", "--host", ""][..], "--host"),
        (&["cert", "certs", "--for-user", ""][..], "--for-user"),
        (&["ls", "--space", ""][..], "the name of a space is not empty"),
        (&["space", "show", ""][..], "the name of a space is not empty"),
        (&["space", "clone", "main", ""][..], "the name of a space is not empty"),
        (&["backup"][..], "--follow <DIR>"),
        (&["job", "set", "1", "--rate", "5/m"][..], "objects a second, such as 500/s"),
        (&["class", "define", "classes.json"][..], "mortar class define --file classes.json"),
        (&["class", "define", "./classes", "--field", "a:string"][..], "--file ./classes"),
    ] {
        let output = mortar(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn usage_does_not_ask_for_what_a_variable_sets() {
    for args in [&["get"][..], &["backup"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mortar"));
        let output = command.args(args).env("MORTAR_URL", "mortar://localhost/main").output().unwrap();
        let usage = text(&output.stderr);
        assert!(usage.contains("Usage: mortar") && !usage.contains("--server"), "{args:?}: {usage}");
    }
}

#[test]
fn with_json_every_failure_is_one_object() {
    let nowhere = "mortar+unix:///nowhere.sock/main";
    for (args, code, kind, words) in [
        (&["get", "cat.jpg", "--json"][..], 2, "usage", "cat.jpg"),
        (&["query", "--json"][..], 2, "usage", "<CLASS>"),
        (&["put", "no-such-file", "/x", "--json"][..], 3, "io", "no-such-file"),
        (&["status", "--json", "--server", nowhere, "--timeout", "1"][..], 5, "unavailable", "nowhere.sock"),
    ] {
        let output = mortar(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(error["error"]["kind"], kind, "{args:?}");
        assert_eq!(error["error"]["exit_code"], code, "{args:?}");
        assert!(error["error"]["message"].as_str().is_some_and(|message| message.contains(words)), "{error}");
    }
}

#[test]
fn failure_without_a_server_explains_how_to_start_one() {
    let output = mortar(&["ls", "--server", "mortar://127.0.0.1:1/main", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("mortar dev"), "{}", text(&output.stderr));
}

#[test]
fn class_of_a_query_precedes_its_text() {
    for (args, words) in [
        (&["query", "from Person where age > 3"][..], "the class comes first"),
        (&["query", "Person", "select name from Person"], "leave `from` and the class out"),
    ] {
        let output = mortar(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn help_completions_and_manual_go_to_the_standard_output() {
    for args in [&["--help"][..], &["--version"], &["put", "--help"], &["man"], &["completions", "bash"]] {
        let output = mortar(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn every_command_with_arguments_has_examples() {
    let commands = "dev put get ls stat rm import export verify backup restore scrub evolve repair status completions events relay";
    let actions = [
        ("attr", "get set ls rm"),
        ("collection", "create add remove ls rm"),
        ("name", "bind unbind resolve ls"),
        ("space", "create ls show set"),
        ("job", "ls show watch pause resume cancel set"),
    ];
    let mut all: Vec<Vec<&str>> = commands.split(' ').map(|command| vec![command]).collect();
    all.extend(actions.iter().flat_map(|(command, actions)| actions.split(' ').map(|action| vec![*command, action])));
    for mut args in all {
        args.push("--help");
        let help = mortar(&args);
        assert!(text(&help.stdout).contains("Examples:"), "{args:?}");
    }
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let output = mortar(&["man", "--dir", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for page in ["mortar.1", "mortar-put.1", "mortar-collection-add.1"] {
        assert!(dir.path().join(page).is_file(), "{page}");
    }
}

#[test]
fn every_role_prints_settings_that_it_takes() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for role in ["brick", "peer", "meta"] {
        let first = mortar(&["node", "--role", role, "--io-threads", "3", "--print-config"]);
        assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
        let file = dir.join(format!("{role}.toml"));
        std::fs::write(&file, &first.stdout).unwrap();
        let again = mortar(&["node", "--config", file.to_str().unwrap(), "--print-config"]);
        assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
        // The path of the data begins at the file now.
        let same = text(&again.stdout).replace(&format!("{}/", dir.display()), "");
        assert_eq!(same, text(&first.stdout));
        std::fs::write(&file, [&first.stdout[..], b"\ncolour = \"red\"\n"].concat()).unwrap();
        let unknown = mortar(&["node", "--config", file.to_str().unwrap()]);
        assert_eq!(unknown.status.code(), Some(2));
        assert!(text(&unknown.stderr).contains("colour"), "{}", text(&unknown.stderr));
    }
}

#[test]
fn cluster_commands_without_a_cluster_explain_how_to_start_one() {
    let nowhere = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-cluster");
    for action in ["status", "down"] {
        let output = mortar(&["cluster", action, "--data", nowhere.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output.stderr).contains("mortar cluster up"), "{}", text(&output.stderr));
    }
}
