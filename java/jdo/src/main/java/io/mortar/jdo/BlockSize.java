package io.mortar.jdo;

import java.util.function.LongSupplier;

/**
 * Says how many numbers a counter takes from the store at once. Each time a block is used up quickly the next one is
 * twice as long; one that has lasted long is followed by half of it. The size is the configured one, or it doubled
 * several times. A counter with the configured size 1 takes each number on its own.
 *
 * <p>It is not safe for threads: the lock of the generator protects it.
 */
final class BlockSize {
    private static final long LARGEST = 8192;
    private static final long SHORT_NANOS = 250_000_000L;
    private static final long LONG_NANOS = 10_000_000_000L;

    private final long configured;
    private final LongSupplier nanoTime;
    /** The size of the last block; 0 before the first one. */
    private long size;
    /** When the last block was taken. */
    private long takenNanos;

    BlockSize(long configured, LongSupplier nanoTime) {
        this.configured = configured;
        this.nanoTime = nanoTime;
    }

    /** The size of the block that is taken now, because the last one is used up. */
    long next() {
        long now = nanoTime.getAsLong();
        long lasted = now - takenNanos;
        if (size == 0) {
            size = configured;
        } else if (lasted < SHORT_NANOS && configured > 1 && size * 2 <= LARGEST) {
            size *= 2;
        } else if (lasted >= LONG_NANOS && size > configured) {
            size /= 2;
        }
        takenNanos = now;
        return size;
    }
}
