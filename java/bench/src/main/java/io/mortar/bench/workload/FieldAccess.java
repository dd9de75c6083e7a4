package io.mortar.bench.workload;

import io.mortar.bench.Options;
import io.mortar.bench.Results;
import io.mortar.bench.model.Item;
import io.mortar.bench.side.OpenStore;
import io.mortar.bench.side.PersistenceSide;
import io.mortar.bench.side.UnitOfWork;
import java.util.List;
import java.util.stream.LongStream;

/**
 * Reads of members of loaded objects, within a transaction. The side {@code plain} has the class as it was compiled;
 * the others have it enhanced by DataNucleus.
 */
public final class FieldAccess {
    private static final int ITEMS = 1000;
    /** Passes over all items between two looks at the clock. */
    private static final int PASSES = 1000;
    /** Members that are read of an item in one pass. */
    private static final int MEMBERS = 2;

    private FieldAccess() {}

    public static void run(Options options, PersistenceSide side, Results results) {
        List<Item> items = LongStream.range(0, ITEMS).mapToObj(Item::new).toList();
        if (side == null) {
            if (!options.side().equals("plain")) {
                throw new IllegalArgumentException("fields has no side " + options.side());
            }
            measure(options, items, results);
            return;
        }
        try (OpenStore store = side.open()) {
            UnitOfWork.run(store.factory(), manager -> items.forEach(manager::persist));
            UnitOfWork.run(store.factory(), manager -> {
                List<Item> loaded = items.stream()
                        .map(item -> PersistenceItems.find(manager, item.getId()))
                        .toList();
                measure(options, loaded, results);
            });
        }
    }

    private static void measure(Options options, List<Item> items, Results results) {
        Item[] array = items.toArray(Item[]::new);
        long[] sum = new long[1];
        Runnable passes = () -> {
            for (int pass = 0; pass < PASSES; pass++) {
                sum[0] += sum(array);
            }
        };
        double nanos = Timing.medianNanos(options.duration(), passes);
        if (sum[0] <= 0) {
            throw new IllegalStateException("the sum of the members is " + sum[0]);
        }
        results.add("access_ns", nanos / PASSES / array.length / MEMBERS);
    }

    private static long sum(Item[] items) {
        long sum = 0;
        for (Item item : items) {
            sum += item.getSerial() + item.getName().length();
        }
        return sum;
    }
}
