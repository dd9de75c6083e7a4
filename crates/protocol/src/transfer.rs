//! How long large messages take to arrive: until then they are not missing.

use crate::lease::Ms;

/// The time in which a slow link carries this many bytes, at a mebibyte a second. Until then a message of that size is not missing.
#[must_use]
pub(crate) const fn transfer_ms(bytes: usize) -> Ms {
    (bytes / 1_049) as Ms
}

/// The time in which bricks take this many bytes, nearly always: eight times as many as a slow link carries.
#[must_use]
pub(crate) const fn brick_transfer_ms(bytes: usize) -> Ms {
    transfer_ms(bytes) / 8
}
