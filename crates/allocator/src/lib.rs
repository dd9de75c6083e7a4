//! The global allocator: mimalloc for small blocks, the C library for others; for stores in memory, mimalloc for nearly all.
//!
//! The machines of the protocol and the messages between them are thousands of small blocks, which mimalloc makes and frees in a third of
//! the time. It keeps blocks of each size apart and for long: a durable store, which holds rows only until they are in the B-tree, would
//! take three times the memory in use, so the larger blocks of its rows and buffers are the C library's. A store in memory and a peer
//! server keep what they allocate, and use mimalloc for larger blocks, too. docs/decisions/allocator.md has the figures.
//!
//! A block of at most 512 bytes is mimalloc's; for a larger block, the address shows which allocator made it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use libmimalloc_sys::{
    mi_free, mi_is_in_heap_region, mi_malloc, mi_malloc_aligned, mi_option_set, mi_option_t, mi_realloc_aligned,
    mi_zalloc, mi_zalloc_aligned,
};

/// The global allocator of the binary, and of the native library for Java.
#[derive(Debug)]
pub struct SwitchingAllocator;

/// Bytes of the largest block that mimalloc makes from now on. Raised at most once, before there are threads.
static MIMALLOC_MAX_BYTES: AtomicUsize = AtomicUsize::new(SMALL);
/// Bytes from which on the C library makes a block, as a mapping of its own, which is returned to the system when it is freed:
/// buffers of large requests. mimalloc keeps such blocks for later, which may be long after a burst of them.
const LARGE: usize = 2 << 20;
/// Bytes of a small block, which the machines of the protocol make by the thousand.
const SMALL: usize = 512;
/// The alignment that mimalloc gives each block of at least as many bytes.
const NATURAL_ALIGNMENT: usize = 16;
/// mimalloc's option of how many milliseconds it keeps memory that is free, `mi_option_purge_delay` of its version 2.
const PURGE_DELAY: mi_option_t = 15;
/// A delay that never ends.
const NEVER: std::ffi::c_long = -1;

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
pub fn configure_for_memory() {
    // The C library would raise its threshold to the largest mapping that was freed.
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_MMAP_THRESHOLD_").is_none() {
        // SAFETY: mallopt takes two numbers; if it refuses one, things stay as they were.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE as i32) };
    }
    MIMALLOC_MAX_BYTES.store(LARGE - 1, Ordering::Relaxed);
}

/// Configures the allocator for a command that passes much memory from thread to thread and then ends: what is free is kept.
pub fn configure_for_batches() {
    configure_for_memory();
    // SAFETY: it sets a number that mimalloc reads when it has freed memory.
    unsafe { mi_option_set(PURGE_DELAY, NEVER) };
}

/// Configures the allocator for a durable store: its memory stays close to what it uses. Call it before there are threads.
pub fn configure_for_disk() {
    // SAFETY: it sets a number that mimalloc reads when it has freed memory.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
    // One block in use keeps a whole huge page.
    // SAFETY: it takes numbers; if it is refused, huge pages are used.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0)
    };
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

/// Whether mimalloc made this block, which has `size` bytes.
fn is_mimalloc_block(block: *const u8, size: usize) -> bool {
    // SAFETY: it looks the address up and does not follow it.
    size <= SMALL || MIMALLOC_MAX_BYTES.load(Ordering::Relaxed) > SMALL && unsafe { mi_is_in_heap_region(block.cast()) }
}

/// Whether each block of mimalloc is aligned for this.
fn is_naturally_aligned(layout: Layout) -> bool {
    layout.align() <= NATURAL_ALIGNMENT && layout.align() <= layout.size()
}

// SAFETY: each block is freed by the allocator that made it; the rest is theirs to keep.
unsafe impl GlobalAlloc for SwitchingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee is passed on.
        unsafe {
            match is_for_mimalloc(layout.size()) {
                true if is_naturally_aligned(layout) => mi_malloc(layout.size()).cast(),
                true => mi_malloc_aligned(layout.size(), layout.align()).cast(),
                false => System.alloc(layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee is passed on.
        unsafe {
            match is_for_mimalloc(layout.size()) {
                true if is_naturally_aligned(layout) => mi_zalloc(layout.size()).cast(),
                true => mi_zalloc_aligned(layout.size(), layout.align()).cast(),
                false => System.alloc_zeroed(layout),
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee is passed on.
        unsafe {
            match is_mimalloc_block(block, layout.size()) {
                true => mi_free(block.cast()),
                false => System.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's guarantee is passed on; a block that another allocator must have is copied to one that it makes, and
        // freed where it was made.
        unsafe {
            match (is_mimalloc_block(block, layout.size()), is_for_mimalloc(size)) {
                (true, true) => mi_realloc_aligned(block.cast(), size, layout.align()).cast(),
                // What the C library has made stays there, unless its size would tell otherwise.
                (false, _) if size > SMALL => System.realloc(block, layout, size),
                _ => {
                    let other = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !other.is_null() {
                        other.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    other
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_changes_its_allocator_keeps_its_bytes() {
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: each block is used within its size, and freed once, with the size that it has then.
        unsafe {
            let mut block = SwitchingAllocator.alloc(layout(100));
            block.write_bytes(7, 100);
            let mut size = 100;
            for next in [SMALL, SMALL + 1, 1 << 20, LARGE, SMALL + 1, 64, SMALL, LARGE] {
                block = SwitchingAllocator.realloc(block, layout(size), next);
                assert_eq!(mi_is_in_heap_region(block.cast()), next <= SMALL, "{size} to {next}");
                assert!((0..size.min(next)).all(|at| *block.add(at) == 7), "{size} to {next}");
                block.write_bytes(7, next);
                size = next;
            }
            SwitchingAllocator.dealloc(block, layout(size));
        }
    }

    #[test]
    fn blocks_are_aligned_and_zeroed_as_asked() {
        for size in [1, 8, 15, 16, 24, 100, SMALL, SMALL + 1, LARGE] {
            for align in [1, 8, 16, 64, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: each block is used within its size, and freed once, with the size that it has then.
                unsafe {
                    let block = SwitchingAllocator.alloc_zeroed(layout);
                    assert!(
                        block.addr().is_multiple_of(align) && (0..size).all(|at| *block.add(at) == 0),
                        "{layout:?}"
                    );
                    let grown = SwitchingAllocator.realloc(block, layout, size * 3);
                    assert!(grown.addr().is_multiple_of(align), "{layout:?}");
                    SwitchingAllocator.dealloc(grown, Layout::from_size_align(size * 3, align).unwrap());
                    let block = SwitchingAllocator.alloc(layout);
                    assert!(block.addr().is_multiple_of(align), "{layout:?}");
                    SwitchingAllocator.dealloc(block, layout);
                }
            }
        }
    }
}
