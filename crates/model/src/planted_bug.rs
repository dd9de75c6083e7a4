//! Bugs that tests plant. Each switch breaks one rule in a plausible way, so that a test can show that it notices the
//! bug.
//!
//! A crate lists its bugs with [`planted_bugs!`](crate::planted_bugs) and calls [`planted`] where it implements the
//! rule. `plant` makes that call return true; it exists only with the feature `planted-bugs`, which tests and the
//! simulator enable. Without the feature the compiler removes all code of the bugs.

#[cfg(feature = "planted-bugs")]
use std::any::TypeId;
#[cfg(feature = "planted-bugs")]
use std::cell::Cell;

/// The bugs of one crate or module.
pub trait PlantedBug: Copy + std::fmt::Debug + PartialEq + 'static {
    /// All bugs of the list.
    const ALL: &'static [Self];

    /// The index in [`ALL`](Self::ALL).
    fn index(self) -> usize;

    /// The rule that the bug breaks, as the design numbers it. Empty if the list names no rules.
    fn rule(self) -> &'static str;

    /// What goes wrong: a clause without a full stop.
    fn what(self) -> &'static str;
}

/// Defines an enum of bugs and implements [`PlantedBug`] for it. Each bug has an optional rule, a name and a
/// description.
///
/// ```
/// model::planted_bugs! {
///     /// A bug in the window of versions.
///     pub enum Bug {
///         "V3" WindowDropsEntries "a window that is full drops its oldest entry and leaves the floor"
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! planted_bugs {
    ($(#[$attribute:meta])* $visible:vis enum $Bug:ident { $($($rule:literal)? $bug:ident $what:literal)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $visible enum $Bug {
            $(#[doc = concat!($($rule, ": ",)? $what, ".")] $bug,)*
        }

        impl $crate::planted_bug::PlantedBug for $Bug {
            const ALL: &'static [Self] = &[$(Self::$bug),*];

            fn index(self) -> usize {
                self as usize
            }

            fn rule(self) -> &'static str {
                match self { $(Self::$bug => concat!($($rule)?)),* }
            }

            fn what(self) -> &'static str {
                match self { $(Self::$bug => $what),* }
            }
        }
    };
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: Cell<Option<(TypeId, usize)>> = const { Cell::new(None) };
}

/// A guard that keeps a bug planted until it is dropped.
#[cfg(feature = "planted-bugs")]
#[derive(Debug)]
#[must_use = "the bug is removed when this is dropped"]
pub struct Planted(());

#[cfg(feature = "planted-bugs")]
impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(None);
    }
}

/// Plants a bug in this thread, replacing an earlier one.
#[cfg(feature = "planted-bugs")]
pub fn plant<B: PlantedBug>(bug: B) -> Planted {
    PLANTED.set(Some((TypeId::of::<B>(), bug.index())));
    Planted(())
}

/// Whether this bug is planted.
#[cfg(feature = "planted-bugs")]
#[must_use]
pub fn planted<B: PlantedBug>(bug: B) -> bool {
    PLANTED.get().is_some_and(|(list, index)| index == bug.index() && list == TypeId::of::<B>())
}

/// Whether this bug is planted: always false.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
#[must_use]
pub const fn planted<B: PlantedBug>(_: B) -> bool {
    false
}

/// Whether a test fails with this bug planted.
#[cfg(feature = "planted-bugs")]
#[must_use]
pub fn is_noticed<B: PlantedBug>(bug: B, test: impl Fn()) -> bool {
    let _planted = plant(bug);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).is_err()
}

/// Asserts that a test passes without a bug and fails with each of these bugs.
///
/// # Panics
///
/// If the test fails without a bug, or passes with one.
#[cfg(feature = "planted-bugs")]
pub fn assert_noticed<B: PlantedBug>(bugs: &[B], test: impl Fn()) {
    test();
    let unnoticed: Vec<_> = bugs.iter().filter(|bug| !is_noticed(**bug, &test)).collect();
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
