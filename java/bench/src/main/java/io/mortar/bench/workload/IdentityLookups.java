package io.mortar.bench.workload;

import io.mortar.bench.Options;
import io.mortar.bench.Results;
import io.mortar.bench.model.Item;
import io.mortar.bench.side.PersistenceSide;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import java.util.SplittableRandom;
import java.util.stream.LongStream;

/**
 * Lookups of items by identity, each with a new entity manager and without a transaction. All items are in the caches
 * before.
 */
public final class IdentityLookups {
    /** Lookups between two looks at the clock. */
    private static final int BATCH = 100;

    private IdentityLookups() {}

    public static void run(Options options, PersistenceSide side, Results results) {
        try (PersistenceItems items = new PersistenceItems(side)) {
            long[] ids = items.load(
                    LongStream.range(0, options.items()).mapToObj(Item::new).toList());
            items.reopen();
            items.read(ids, counter -> {});
            EntityManagerFactory factory = items.factory();
            SplittableRandom random = new SplittableRandom(7);
            Runnable batch = () -> {
                for (int i = 0; i < BATCH; i++) {
                    lookUp(factory, ids[random.nextInt(ids.length)]);
                }
            };
            Timing.repeat(options.duration().dividedBy(2), batch);
            long begin = System.nanoTime();
            int batches = Timing.repeat(options.duration(), batch).size();
            results.add("lookups_per_s", (double) batches * BATCH / ((System.nanoTime() - begin) / 1e9));
        }
    }

    private static void lookUp(EntityManagerFactory factory, long id) {
        EntityManager manager = factory.createEntityManager();
        try {
            PersistenceItems.find(manager, id).check();
        } finally {
            manager.close();
        }
    }
}
