//! Buffers that the connections of a thread share.
//!
//! A connection that has sent everything keeps no buffer, as it may be idle for long. Allocating a large buffer for each batch of
//! answers would cost more than filling it.

use std::cell::RefCell;

/// Bytes of capacity that a thread keeps.
const MAX_TOTAL_BYTES: usize = 4 << 20;
/// Bytes of capacity of the largest buffer that is kept.
const MAX_BUFFER_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Pool {
    buffers: Vec<Vec<u8>>,
    /// Their capacity.
    bytes: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// An empty buffer: the one that was returned last, if there is one.
pub(crate) fn take() -> Vec<u8> {
    let taken = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let buffer = pool.buffers.pop().unwrap_or_default();
        pool.bytes -= buffer.capacity();
        buffer
    });
    // The pool of a thread is dropped before the thread ends.
    taken.unwrap_or_default()
}

/// Returns a buffer to the pool and discards its contents.
pub(crate) fn give(mut buffer: Vec<u8>) {
    buffer.clear();
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let bytes = pool.bytes + buffer.capacity();
        if (1..=MAX_BUFFER_BYTES).contains(&buffer.capacity()) && bytes <= MAX_TOTAL_BYTES {
            pool.bytes = bytes;
            pool.buffers.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_is_bounded_and_keeps_no_contents() {
        assert_eq!(take().capacity(), 0);
        give(Vec::new());
        give(vec![1; MAX_BUFFER_BYTES + 1]);
        assert_eq!(take().capacity(), 0, "too large");
        for _ in 0..100 {
            give(vec![1; MAX_TOTAL_BYTES / 16]);
        }
        let kept: Vec<Vec<u8>> = (0..100).map(|_| take()).filter(|buffer| buffer.capacity() > 0).collect();
        assert_eq!(kept.len(), 16);
        assert!(kept.iter().all(Vec::is_empty));
        POOL.with_borrow(|pool| assert_eq!((pool.bytes, pool.buffers.len()), (0, 0)));
    }
}
