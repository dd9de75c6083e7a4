//! Who allocates: the C library, or, for a store in memory and for a peer server, mimalloc.
//!
//! A store in memory allocates a row for each write, and a peer server what each message brings; mimalloc does that quicker.
//! It keeps blocks of each size apart and for long: a durable store, which holds rows only until they are in the B-tree, would
//! take three times what it has in use. docs/decisions/allocator.md has the figures.
//!
//! So a process begins with the C library's allocator and may change to mimalloc, once; what was allocated before is told
//! by where it lies.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use mimalloc::MiMalloc;

/// The allocator of the binary.
pub(crate) struct Chosen;

/// Whether mimalloc allocates from now on. Set before there are threads, so that all of them see it.
static IS_MIMALLOC: AtomicBool = AtomicBool::new(false);

/// Arenas of the C library for all threads. Few threads of a server allocate at one time, and a block is often freed by
/// another thread than made it: each arena more grows to what passes through it.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 2;
/// Bytes from which on an allocation is a mapping of its own, which is given back when it is freed.
#[cfg(target_env = "gnu")]
const MAPPED: i32 = 128 << 10;
/// Bytes that stay free at the top of an arena.
#[cfg(target_env = "gnu")]
const KEPT: i32 = 4 << 20;

/// Sets this process up for rows in memory, or for passing messages on: quick. Call it before there are threads.
pub(crate) fn for_memory() {
    IS_MIMALLOC.store(true, Ordering::Relaxed);
}

/// Sets this process up for a durable store: its memory stays near to what it uses. Call it before there are threads.
pub(crate) fn for_disk() {
    #[cfg(target_env = "gnu")]
    for (parameter, name, value) in [
        (libc::M_ARENA_MAX, "MALLOC_ARENA_MAX", ARENAS),
        (libc::M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", MAPPED),
        (libc::M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", KEPT),
    ] {
        // Who starts the server may know better.
        if std::env::var_os(name).is_none() {
            // SAFETY: mallopt takes two numbers; if it refuses one, things stay as they were.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}

fn is_mimalloc() -> bool {
    IS_MIMALLOC.load(Ordering::Relaxed)
}

/// Whether mimalloc made this block.
fn is_of_mimalloc(block: *const u8) -> bool {
    // SAFETY: it looks the address up and does not follow it.
    is_mimalloc() && unsafe { libmimalloc_sys::mi_is_in_heap_region(block.cast()) }
}

// SAFETY: each block is freed by the allocator that made it; the rest is theirs to keep.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is handed on.
        unsafe { if is_mimalloc() { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is handed on.
        unsafe { if is_mimalloc() { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { if is_of_mimalloc(block) { MiMalloc.dealloc(block, layout) } else { System.dealloc(block, layout) } }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is handed on.
        unsafe {
            if is_of_mimalloc(block) {
                MiMalloc.realloc(block, layout, size)
            } else {
                System.realloc(block, layout, size)
            }
        }
    }
}
