//! The shared library that the Java half loads. This test makes cargo build it with the others.

/// The functions of `io.mortar.Native`, which the virtual machine finds by name.
const FUNCTIONS: [&str; 5] = ["call", "start", "completed", "release", "handles"];

#[test]
fn library_exports_the_functions_of_the_java_half() {
    let program = std::env::current_exe().unwrap();
    // Cargo links it beside this program, in target/debug/deps. Only `cargo build` links it above, too.
    let directory = program.parent().unwrap();
    let library =
        directory.join(format!("{}mortar_java{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
    let bytes = std::fs::read(&library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    for function in FUNCTIONS {
        let name = format!("Java_io_mortar_Native_{function}\0");
        let is_there = bytes.windows(name.len()).any(|window| window == name.as_bytes());
        assert!(is_there, "{} does not export {name}", library.display());
    }
}
