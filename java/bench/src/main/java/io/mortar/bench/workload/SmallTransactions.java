package io.mortar.bench.workload;

import io.mortar.bench.Options;
import io.mortar.bench.Results;
import io.mortar.bench.model.Item;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * Durable transactions that store four new items, read four and change one of these. Each thread changes items of its
 * own and reads those of all. Afterwards the store is opened again: all items must be there, with every change that was
 * committed.
 */
public final class SmallTransactions {
    private static final int CREATED = 4;
    private static final int READ = 4;
    /** New items of one thread have consecutive serial numbers. */
    private static final long SERIALS_OF_THREAD = 1L << 40;

    private static final int READ_AGAIN = 20_000;

    private final Options options;
    private final ItemStore store;
    private final int threads;
    private long[] loaded;
    /** Committed changes of each loaded item. */
    private int[] changes;

    private volatile boolean isCounting;
    private volatile boolean isOver;

    public SmallTransactions(Options options, ItemStore store) {
        this.options = options;
        this.store = store;
        threads = options.threads();
    }

    /** What one thread did. */
    private static final class Counts {
        private final LongList latencies = new LongList();
        private final LongList created = new LongList();
        private long transactions;
        private long conflicts;
    }

    public void run(Results results) throws InterruptedException, ExecutionException {
        loaded = store.load(
                LongStream.range(0, options.items()).mapToObj(Item::new).toList());
        changes = new int[loaded.length];
        ExecutorService executor = Executors.newFixedThreadPool(threads);
        try {
            List<Future<Counts>> running = IntStream.range(0, threads)
                    .mapToObj(thread -> executor.submit(() -> work(thread)))
                    .toList();
            // A thread that fails is reported after the measurement.
            long millis = options.duration().toMillis();
            Thread.sleep(Math.max(millis / 6, 1000));
            isCounting = true;
            long begin = System.nanoTime();
            Thread.sleep(millis);
            isCounting = false;
            double seconds = (System.nanoTime() - begin) / 1e9;
            isOver = true;
            List<Counts> counts = new ArrayList<>();
            for (Future<Counts> each : running) {
                counts.add(each.get());
            }
            report(counts, seconds, results);
            check(counts);
        } finally {
            isOver = true;
            executor.shutdown();
        }
    }

    private Counts work(int thread) {
        Counts counts = new Counts();
        SplittableRandom random = new SplittableRandom(thread);
        long serial = SERIALS_OF_THREAD * (thread + 1);
        while (!isOver) {
            int changed = random.nextInt(loaded.length / threads) * threads + thread;
            long[] read = new long[READ];
            read[0] = loaded[changed];
            for (int i = 1; i < READ; i++) {
                read[i] = loaded[random.nextInt(loaded.length)];
            }
            boolean isCounted = isCounting;
            long begin = System.nanoTime();
            List<Item> created = commit(read, serial, counts);
            long nanoseconds = System.nanoTime() - begin;
            serial += CREATED;
            changes[changed]++;
            created.forEach(item -> counts.created.add(item.getId()));
            counts.transactions++;
            // A transaction counts if it begins and ends within the measurement.
            if (isCounted && isCounting) {
                counts.latencies.add(nanoseconds);
            }
        }
        return counts;
    }

    private List<Item> commit(long[] read, long serial, Counts counts) {
        while (true) {
            List<Item> created = LongStream.range(serial, serial + CREATED)
                    .mapToObj(Item::new)
                    .toList();
            if (store.transact(read, created)) {
                return created;
            }
            counts.conflicts++;
        }
    }

    private void report(List<Counts> counts, double seconds, Results results) {
        LongList latencies = new LongList();
        counts.forEach(each -> latencies.addAll(each.latencies));
        results.add("transactions_per_s", latencies.size() / seconds);
        results.add("p50_us", latencies.quantile(0.5) / 1e3);
        results.add("p99_us", latencies.quantile(0.99) / 1e3);
        results.add(
                "transactions",
                counts.stream().mapToLong(each -> each.transactions).sum());
        results.add(
                "stored_objects",
                loaded.length
                        + counts.stream().mapToLong(each -> each.created.size()).sum());
        results.add(
                "conflicts", counts.stream().mapToLong(each -> each.conflicts).sum());
    }

    /** Opens the store again and compares what it has with what was committed. */
    private void check(List<Counts> counts) {
        LongList created = new LongList();
        counts.forEach(each -> created.addAll(each.created));
        store.reopen();
        long expected = (long) loaded.length + created.size();
        long found = store.count();
        if (found != expected) {
            throw new IllegalStateException("there are " + found + " items and not " + expected);
        }
        store.read(created.sample(READ_AGAIN), counter -> {
            if (counter != 0) {
                throw new IllegalStateException("a new item has been changed");
            }
        });
        int[] next = new int[1];
        store.read(loaded, counter -> {
            int index = next[0]++;
            if (counter != changes[index]) {
                throw new IllegalStateException("the item " + loaded[index] + " was changed " + counter
                        + " times and not " + changes[index] + " times");
            }
        });
    }
}
