//! The global allocator: the C library, or mimalloc for small blocks or for all.
//!
//! A store in memory allocates a row for each write, and a peer server allocates for each message; mimalloc is faster at both.
//! It keeps blocks of each size apart and for long: a durable store, which holds rows only until they are in the B-tree, would
//! take three times the memory in use. A durable brick uses mimalloc for small blocks only: those of messages and of the
//! machines of the protocol. docs/decisions/allocator.md has the figures.
//!
//! A process begins with the C library's allocator and may change to mimalloc once. The address of a block tells which
//! allocator has allocated it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use mimalloc::MiMalloc;

/// The allocator of the binary.
pub(crate) struct SwitchingAllocator;

/// Bytes of blocks, up to which mimalloc allocates from now on. Set before there are threads, so that all of them see it.
static MIMALLOC_MAX_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Bytes from which on the C library makes a block, as a mapping of its own, which is returned to the system when it is freed:
/// buffers of large requests. mimalloc keeps such blocks until it is used again, which may be long after a burst of them.
const LARGE: usize = 2 << 20;
/// Bytes of a small block: all that a message brings which is cut into rows.
const SMALL: usize = 2 << 10;

/// Arenas of the C library for all threads. Few threads of a server allocate at one time, and a block is often freed by
/// another thread than made it: each arena more grows to what passes through it.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: i32 = 2;
/// Bytes from which on an allocation is a mapping of its own, which is given back when it is freed.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: i32 = 128 << 10;
/// Bytes that stay free at the top of an arena.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD_BYTES: i32 = 4 << 20;

/// Configures the allocator for speed: for stores in memory and peer servers. Call it before there are threads.
pub(crate) fn configure_for_memory() {
    // The C library would raise its threshold to the largest mapping that was freed.
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_MMAP_THRESHOLD_").is_none() {
        // SAFETY: mallopt takes two numbers; if it refuses one, things stay as they were.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE as i32) };
    }
    MIMALLOC_MAX_BYTES.store(LARGE - 1, Ordering::Relaxed);
}

/// Configures the allocator for a durable brick of a cluster. Call it before there are threads.
pub(crate) fn configure_for_messages_and_disk() {
    configure_for_disk();
    MIMALLOC_MAX_BYTES.store(SMALL, Ordering::Relaxed);
}

/// Configures the allocator for a durable store: its memory stays close to what it uses. Call it before there are threads.
pub(crate) fn configure_for_disk() {
    #[cfg(target_env = "gnu")]
    for (parameter, name, value) in [
        (libc::M_ARENA_MAX, "MALLOC_ARENA_MAX", MAX_ARENAS),
        (libc::M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", MMAP_THRESHOLD_BYTES),
        (libc::M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", TRIM_THRESHOLD_BYTES),
    ] {
        // The environment overrides this.
        if std::env::var_os(name).is_none() {
            // SAFETY: mallopt takes two numbers; if it refuses one, things stay as they were.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}

/// Whether mimalloc makes blocks of this size.
fn is_for_mimalloc(size: usize) -> bool {
    size <= MIMALLOC_MAX_BYTES.load(Ordering::Relaxed)
}

/// Whether mimalloc made this block.
fn is_mimalloc_block(block: *const u8) -> bool {
    // SAFETY: it looks the address up and does not follow it.
    MIMALLOC_MAX_BYTES.load(Ordering::Relaxed) > 0 && unsafe { libmimalloc_sys::mi_is_in_heap_region(block.cast()) }
}

// SAFETY: each block is freed by the allocator that made it; the rest is theirs to keep.
unsafe impl GlobalAlloc for SwitchingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee is passed on.
        unsafe { if is_for_mimalloc(layout.size()) { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee is passed on.
        unsafe {
            if is_for_mimalloc(layout.size()) { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee is passed on.
        unsafe {
            if is_mimalloc_block(block) { MiMalloc.dealloc(block, layout) } else { System.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's guarantee is passed on; what outgrows its allocator is copied to a block of the other one, which
        // has room for it, and freed where it was made.
        unsafe {
            match (is_mimalloc_block(block), is_for_mimalloc(size)) {
                (true, true) => MiMalloc.realloc(block, layout, size),
                (false, _) => System.realloc(block, layout, size),
                (true, false) => {
                    let larger = System.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !larger.is_null() {
                        larger.copy_from_nonoverlapping(block, layout.size().min(size));
                        MiMalloc.dealloc(block, layout);
                    }
                    larger
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_outgrows_its_allocator_keeps_its_bytes() {
        // The other tests of this process go on with what they have.
        MIMALLOC_MAX_BYTES.store(SMALL, Ordering::Relaxed);
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: each block is used within its size, and freed once, with the size that it has then.
        unsafe {
            let mut block = SwitchingAllocator.alloc(layout(100));
            assert!(is_mimalloc_block(block));
            block.write_bytes(7, 100);
            let mut size = 100;
            for next in [SMALL, SMALL + 1, 1 << 20, 64] {
                block = SwitchingAllocator.realloc(block, layout(size), next);
                assert_eq!(is_mimalloc_block(block), next <= SMALL && size <= SMALL, "{size} to {next}");
                assert!((0..size.min(next)).all(|at| *block.add(at) == 7), "{size} to {next}");
                block.write_bytes(7, next);
                size = next;
            }
            SwitchingAllocator.dealloc(block, layout(size));
        }
    }
}
