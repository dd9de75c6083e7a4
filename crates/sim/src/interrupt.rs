//! Ctrl-C: the first asks to stop, the second stops.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn handle(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
    // SAFETY: signal() may be called in a handler; the next Ctrl-C does what it always does.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// From now on the first Ctrl-C only asks.
pub(crate) fn listen() {
    let handler: extern "C" fn(libc::c_int) = handle;
    // SAFETY: the handler only stores to an atomic and calls signal(), both of which are allowed in one.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
}

/// Whether the user has requested to stop.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
