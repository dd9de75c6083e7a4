//! Child processes that never outlive the test program.
//!
//! A test that is stopped (by a signal, a timeout or an abort) runs no destructors. So the kernel signals its children instead: each
//! child requests that before it runs the program (`PR_SET_PDEATHSIG`). The kernel sends the signal when the *thread* that has
//! started the child ends, and the thread of a test may end before the child should. So one thread that never ends starts all children.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};

type SpawnRequest = (Command, Sender<io::Result<Child>>);

/// Starts a process that the kernel kills when the test program ends.
///
/// # Errors
/// As [`Command::spawn`].
///
/// # Panics
/// If the thread that starts processes has panicked.
pub fn spawn(command: Command) -> io::Result<Child> {
    spawn_with_signal(command, Signal::KILL)
}

/// Starts a process that the kernel asks to end (SIGTERM) when the test program ends: one that has processes of its own to end.
///
/// # Errors
/// As [`Command::spawn`].
///
/// # Panics
/// If the thread that starts processes has panicked.
pub fn spawn_parent(command: Command) -> io::Result<Child> {
    spawn_with_signal(command, Signal::TERM)
}

fn spawn_with_signal(mut command: Command, signal: Signal) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, waiting) = mpsc::channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, reply) in waiting {
                // The requester has panicked and does not need the child.
                if let Err(unwanted) = reply.send(command.spawn())
                    && let Ok(mut child) = unwanted.0
                {
                    let _ = child.kill();
                }
            }
        });
        requests
    });
    // SAFETY: the closure runs between fork and exec and makes one system call; it takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(move || Ok(set_parent_process_death_signal(Some(signal))?));
    }
    let (reply, child) = mpsc::channel();
    spawner.send((command, reply)).expect("the thread that starts processes runs");
    child.recv().expect("the thread that starts processes runs")
}
