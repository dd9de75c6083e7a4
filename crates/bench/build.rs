//! Builds the shim to Berkeley DB where its headers are installed; without them the rows that need it are skipped.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libdb)");
    println!("cargo::rerun-if-changed=src/rival/berkeley.c");
    // So that a later installation triggers a rebuild.
    println!("cargo::rerun-if-changed=/usr/include/db.h");
    println!("cargo::rerun-if-env-changed=CPATH");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    let probe = out.join("probe.c");
    let text = "#include <db.h>\n#if DB_VERSION_MAJOR != 5 || DB_VERSION_MINOR != 3\n#error not 5.3\n#endif\n";
    if std::fs::write(&probe, text).is_err() {
        return;
    }
    let found = cc::Build::new().file(&probe).cargo_metadata(false).cargo_warnings(false).try_compile("probe");
    if found.is_err() {
        println!("cargo::warning=Berkeley DB 5.3 (libdb5.3-dev) is not installed: its rows will be skipped");
        return;
    }
    cc::Build::new().file("src/rival/berkeley.c").opt_level(2).warnings(true).compile("mortar_bench_berkeley");
    println!("cargo::rustc-link-lib=db-5.3");
    println!("cargo::rustc-cfg=libdb");
}
