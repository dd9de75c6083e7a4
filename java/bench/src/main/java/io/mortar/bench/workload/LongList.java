package io.mortar.bench.workload;

import java.util.Arrays;

/** A growing list of numbers. */
final class LongList {
    private long[] values = new long[1024];
    private int size;

    void add(long value) {
        if (size == values.length) {
            values = Arrays.copyOf(values, size * 2);
        }
        values[size++] = value;
    }

    void addAll(LongList others) {
        for (int i = 0; i < others.size; i++) {
            add(others.values[i]);
        }
    }

    void clear() {
        size = 0;
    }

    int size() {
        return size;
    }

    /** The value below which this share of the values is. */
    long quantile(double share) {
        if (size == 0) {
            throw new IllegalStateException("nothing was measured");
        }
        long[] sorted = Arrays.copyOf(values, size);
        Arrays.sort(sorted);
        return sorted[(int) Math.min(size - 1L, (long) (size * share))];
    }

    /** At most this many of the values, evenly spread. */
    long[] sample(int limit) {
        int count = Math.min(limit, size);
        long[] sample = new long[count];
        for (int i = 0; i < count; i++) {
            sample[i] = values[(int) ((long) i * size / count)];
        }
        return sample;
    }
}
