//! Encrypted backups: only the right key opens them, and no byte of them can be changed (docs/decisions/encrypted-backups.md).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mortar_tests::{CommandOutput, Server, mortar, run, run_with_input};

/// Two pairs of keys that nothing but these tests uses, made by `age-keygen`.
const RECIPIENT: &str = "age1fsxh452ka67kgt5aqe0pj6en8k32ncpqwf49xdxtnlcqy6ecevzq35kzh4";
const IDENTITY: &str = "AGE-SECRET-KEY-1V6TQGE6GMGSZZ64XEMLUKYFCFQP68GVNYXWY9QVESJW93E4RCD3QF5PQ8J";
const OTHER_RECIPIENT: &str = "age1kr9psaq87dlf958jsdvymym2g6m279l9mezzupjsd9g89eh469ls3msqnk";
const OTHER_IDENTITY: &str = "AGE-SECRET-KEY-1YK43QSWKM6R8VMVP778CY3VAQP2TVP68MAPHEGZUZL3M47FQLJ3SAY2X4U";

/// A server with an object, and files with keys.
struct World {
    server: Server,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let server = Server::start(&[]);
        server.run_with_input(&["put", "-", "/kept"], "a secret that others may not read").ok();
        let world = Self { server, dir: tempfile::tempdir().unwrap() };
        for (name, identity) in [("key", IDENTITY), ("other", OTHER_IDENTITY)] {
            write_secret(&world.path(name), &format!("# a comment, as age-keygen writes one\n{identity}\n"));
        }
        for (name, passphrase) in [("pass", "correct horse"), ("wrong", "horse")] {
            write_secret(&world.path(name), &format!("{passphrase}\n"));
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn restore(&self, archives: &[&str], options: &[&str], target: &str) -> CommandOutput {
        let mut command = mortar(&["restore", "--data"]);
        command.arg(self.path(target)).args(archives.iter().map(|name| self.path(name))).args(options);
        run(&mut command)
    }
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn an_archive_is_restored_with_one_of_its_keys_only() {
    let world = World::new();
    let archive = world.text("archive");
    let to = ["--encrypt-to", RECIPIENT, "--encrypt-to", OTHER_RECIPIENT];
    world.server.run(&[&["backup", &archive][..], &to].concat()).ok();
    let bytes = fs::read(&archive).unwrap();
    assert!(bytes.starts_with(b"age-encryption.org/v1\n"));
    assert!(!bytes.windows(8).any(|window| window == b"a secret"), "nothing is readable");
    let refused = world.restore(&["archive"], &[], "none");
    assert!(refused.code == 9 && refused.stderr.contains("--identity"), "{} {}", refused.code, refused.stderr);
    let only = world.text("only");
    world.server.run(&["backup", &only, "--encrypt-to", RECIPIENT]).ok();
    let refused = world.restore(&["only"], &["--identity", &world.text("other")], "other-key");
    assert!(refused.code == 9 && refused.stderr.contains("other keys"), "{} {}", refused.code, refused.stderr);
    assert!(!world.path("none").exists() && !world.path("other-key").exists());
    for (key, target) in [("key", "by-key"), ("other", "by-other")] {
        world.restore(&["archive"], &["--identity", &world.text(key)], target).ok();
        let mut server = Server::new(&[]);
        fs::rename(world.path(target), server.data()).unwrap();
        server.launch();
        server.wait_ready();
        assert_eq!(server.run(&["get", "/kept"]).text(), "a secret that others may not read");
    }
    // With a key, an archive that is not encrypted is refused.
    let plain = world.text("plain");
    world.server.run(&["backup", &plain]).ok();
    let refused = world.restore(&["plain"], &["--identity", &world.text("key")], "plain-target");
    assert!(refused.code == 2 && refused.stderr.contains("not encrypted"), "{} {}", refused.code, refused.stderr);
    let refused = world.server.run(&["backup", &world.text("x"), "--encrypt-to", "age1nonsense"]);
    assert!(refused.code == 2 && refused.stderr.contains("age1nonsense"), "{} {}", refused.code, refused.stderr);
    assert!(!world.path("x").exists());
}

#[test]
fn a_passphrase_and_a_pipe_do_as_well() {
    let world = World::new();
    let piped = world.server.run(&["backup", "-", "--passphrase-file", &world.text("pass")]);
    assert_eq!(piped.code, 0, "{}", piped.stderr);
    // The work to open it does not depend on the machine or on what else it does.
    let header = String::from_utf8_lossy(&piped.stdout[..200]).into_owned();
    assert!(header.lines().nth(1).unwrap().ends_with(" 18"), "{header}");
    let restore = |pass: &str, target: &str| {
        let mut command = mortar(&["restore", "-", "--passphrase-file"]);
        run_with_input(command.arg(world.path(pass)).arg("--data").arg(world.path(target)), piped.stdout.clone())
    };
    let refused = restore("wrong", "refused");
    assert!(refused.code == 9 && refused.stderr.contains("passphrase"), "{} {}", refused.code, refused.stderr);
    assert!(!world.path("refused").exists());
    restore("pass", "restored").ok();
    assert!(world.path("restored/STORE").is_file());
}

#[test]
fn a_changed_cut_or_reordered_archive_is_refused_and_leaves_nothing() {
    let world = World::new();
    // More than two chunks of the encryption.
    world.server.run_with_input(&["put", "-", "/large"], vec![7; 400_000]).ok();
    let archive = world.text("archive");
    world.server.run(&["backup", &archive, "--encrypt-to", RECIPIENT]).ok();
    let whole = fs::read(&archive).unwrap();
    let identity = world.text("key");
    let body = whole.windows(4).position(|window| window == b"\n---").unwrap() + 60;
    let chunk = (64 << 10) + 16;
    let mut swapped = whole.clone();
    let (one, other) = swapped[body..body + 2 * chunk].split_at_mut(chunk);
    one.swap_with_slice(other);
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let changed = [
        ("cut by one", whole[..whole.len() - 1].to_vec()),
        ("cut after chunks", whole[..body + 2 * chunk].to_vec()),
        ("empty", Vec::new()),
        ("cut in the first line", whole[..10].to_vec()),
        ("cut in the header", whole[..100].to_vec()),
        ("longer", [&whole[..], b"x"].concat()),
        ("twice", [&whole[..], &whole[..]].concat()),
        ("swapped", swapped),
        ("a bit of the first bytes", flipped(5)),
        ("a bit of the version", flipped(20)),
        ("a bit of the header", flipped(60)),
        ("a bit of the first chunk", flipped(body + 100)),
        ("a bit of a later chunk", flipped(body + chunk + 100)),
        ("the last bit", flipped(whole.len() - 1)),
    ];
    for (name, bytes) in changed {
        fs::write(world.path("changed"), bytes).unwrap();
        let refused = world.restore(&["changed"], &["--identity", &identity], "target");
        assert!(matches!(refused.code, 6 | 9), "{name}: {} {}", refused.code, refused.stderr);
        assert!(refused.stderr.contains(&world.text("changed")), "{name}: {}", refused.stderr);
        assert!(!refused.stderr.contains("upgrading"), "{name}: {}", refused.stderr);
        assert!(!world.path("target").exists(), "{name}");
    }
    world.restore(&["archive"], &["--identity", &identity], "target").ok();
}

#[test]
fn an_increment_of_an_encrypted_archive_needs_its_key() {
    let world = World::new();
    let (monday, tuesday) = (world.text("monday"), world.text("tuesday"));
    world.server.run(&["backup", &monday, "--encrypt-to", RECIPIENT]).ok();
    world.server.run_with_input(&["put", "-", "/later"], "more").ok();
    let to = ["--encrypt-to", RECIPIENT, "--since", &monday];
    let refused = world.server.run(&[&["backup", &tuesday][..], &to].concat());
    assert!(refused.code == 9 && !world.path("tuesday").exists(), "{} {}", refused.code, refused.stderr);
    let identity = ["--identity", &world.text("key")];
    world.server.run(&[&["backup", &tuesday][..], &to, &identity].concat()).ok();
    world.restore(&["monday", "tuesday"], &identity, "restored").ok();
    let mut server = Server::new(&[]);
    fs::rename(world.path("restored"), server.data()).unwrap();
    server.launch();
    server.wait_ready();
    assert_eq!(server.run(&["get", "/later"]).text(), "more");
}

#[test]
fn all_archives_of_a_chain_are_encrypted_or_none_is() {
    let world = World::new();
    let (plain, encrypted, next) = (world.text("plain"), world.text("encrypted"), world.text("next"));
    world.server.run(&["backup", &plain]).ok();
    world.server.run(&["backup", &encrypted, "--encrypt-to", RECIPIENT]).ok();
    let identity = ["--identity", &world.text("key")];
    for (base, options) in [(&plain, &["--encrypt-to", RECIPIENT][..]), (&encrypted, &identity)] {
        let refused = world.server.run(&[&["backup", &next, "--since", base][..], options].concat());
        assert!(refused.code == 2 && refused.stderr.contains(&**base), "{} {}", refused.code, refused.stderr);
    }
    assert!(!world.path("next").exists());
}

#[test]
fn secrets_are_kept_from_others() {
    let world = World::new();
    fs::set_permissions(world.path("pass"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = world.server.run(&["backup", "-", "--passphrase-file", &world.text("pass")]);
    assert!(refused.code == 2 && refused.stderr.contains("chmod 600"), "{} {}", refused.code, refused.stderr);
    let refused = world.server.run(&["backup", "-", "--encrypt-to", IDENTITY]);
    assert!(refused.code == 2 && !refused.stderr.contains(IDENTITY), "{} {}", refused.code, refused.stderr);
    // A header without end costs nothing.
    fs::write(world.path("endless"), [&b"age-encryption.org/v1\n"[..], &b"-> X25519 a\nb\n".repeat(100_000)].concat())
        .unwrap();
    let refused = world.restore(&["endless"], &["--identity", &world.text("key")], "target");
    assert!(refused.code == 6 && refused.stderr.contains("too long"), "{} {}", refused.code, refused.stderr);
}
