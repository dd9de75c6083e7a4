package io.mortar.bench.workload;

import java.time.Duration;

/** Repeats an action on one thread. */
final class Timing {
    private Timing() {}

    /** The median of the durations of an action, in nanoseconds, after a warm-up of a third of the time. */
    static double medianNanos(Duration duration, Runnable action) {
        repeat(duration.dividedBy(3), action);
        return repeat(duration, action).quantile(0.5);
    }

    /** The durations of an action, in nanoseconds. It runs once at least. */
    static LongList repeat(Duration duration, Runnable action) {
        LongList durations = new LongList();
        long end = System.nanoTime() + duration.toNanos();
        while (durations.size() < 1 || System.nanoTime() < end) {
            durations.add(nanos(action));
        }
        return durations;
    }

    /** The duration of an action, in nanoseconds. */
    static long nanos(Runnable action) {
        long begin = System.nanoTime();
        action.run();
        return System.nanoTime() - begin;
    }
}
