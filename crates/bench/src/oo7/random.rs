//! The random numbers of the generator.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

/// `java.util.Random`, a linear congruential generator of 48 bits: the Java programs generate the same database with it.
#[derive(Clone, Debug)]
pub(crate) struct JavaRandom {
    state: u64,
}

impl JavaRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: (seed ^ MULTIPLIER) & MASK }
    }

    /// A number from 0 on and below `bound`: `nextInt(bound)`.
    pub(crate) fn below(&mut self, bound: i32) -> i32 {
        let bound = i64::from(bound);
        if bound & (bound - 1) == 0 {
            return ((bound * self.next31()) >> 31) as i32;
        }
        loop {
            let bits = self.next31();
            let value = bits % bound;
            // Numbers of the last, incomplete interval would favor small values.
            if bits - value + bound - 1 <= i64::from(i32::MAX) {
                return value as i32;
            }
        }
    }

    /// Numbers from 1 to `limit`: `ints(count, 1, limit + 1)`, unless the limit is a power of two.
    pub(crate) fn numbers(&mut self, count: usize, limit: usize) -> Vec<usize> {
        (0..count).map(|_| self.index(limit) + 1).collect()
    }

    /// An index of a list of this length.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as i32) as usize
    }

    /// The next 31 bits.
    fn next31(&mut self) -> i64 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        (self.state >> 17) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_java() {
        let mut random = JavaRandom::new(1993);
        // `new Random(1993)`, then `nextInt` with these bounds.
        let numbers = [10, 16, 100_000, (1 << 30) + 1].map(|bound| random.below(bound));
        assert_eq!(numbers, [8, 6, 60_697, 540_647_790]);
        // `new Random(10).ints(10, 1, 10_001)`
        let numbers = JavaRandom::new(10).numbers(10, 10_000);
        assert_eq!(numbers, [7114, 2381, 7294, 3291, 5247, 1457, 7798, 9889, 8982, 6215]);
    }
}
