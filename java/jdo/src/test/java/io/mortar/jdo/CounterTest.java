package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.datanucleus.store.valuegenerator.ValueGenerator;
import org.junit.jupiter.api.Test;

/** Numbers of counters, and how many of them are taken at once. */
class CounterTest {
    private static final long SECOND = 1_000_000_000L;

    private static CounterGenerator counter(Store store, String name, int allocationSize) {
        Properties properties = new Properties();
        properties.setProperty(ValueGenerator.PROPERTY_SEQUENCE_NAME, name);
        properties.setProperty(ValueGenerator.PROPERTY_KEY_CACHE_SIZE, "" + allocationSize);
        return new CounterGenerator(store.storeManager(), name, properties);
    }

    /** The sizes of blocks of which each has lasted for some nanoseconds. */
    private static List<Long> sizes(int configured, long... lasted) {
        AtomicLong clock = new AtomicLong(-SECOND);
        BlockSize size = new BlockSize(configured, clock::get);
        List<Long> sizes = new ArrayList<>(List.of(size.next()));
        for (long each : lasted) {
            clock.addAndGet(each);
            sizes.add(size.next());
        }
        return sizes;
    }

    @Test
    void a_block_that_is_used_up_quickly_doubles_the_next_one() {
        assertEquals(List.of(50L, 100L, 200L, 200L), sizes(50, SECOND / 10, SECOND / 5, SECOND));
    }

    @Test
    void a_block_that_has_lasted_long_halves_the_next_one() {
        assertEquals(List.of(50L, 100L, 200L, 100L, 50L, 50L), sizes(50, 0, 0, 10 * SECOND, 10 * SECOND, 10 * SECOND));
    }

    @Test
    void blocks_are_multiples_of_the_configured_size_and_not_too_long() {
        long[] quick = new long[20];
        assertEquals(6400, sizes(50, quick).get(20));
        assertEquals(8192, sizes(2, quick).get(20));
        assertEquals(10_000, sizes(10_000, quick).get(20));
        assertEquals(1, sizes(1, quick).get(20), "each number on its own");
    }

    @Test
    void numbers_that_a_program_allocates_are_as_many_as_it_asks_for() {
        try (Store store = Store.inMemory()) {
            CounterGenerator first = counter(store, "bills", 10);
            IntStream.range(0, 10).forEach(unused -> first.next());
            first.allocate(3);
            assertEquals(14L, counter(store, "bills", 10).next());
            assertEquals(List.of(11L, 12L, 13L, 24L), List.of(first.next(), first.next(), first.next(), first.next()));
        }
    }

    @Test
    void a_counter_whose_object_is_gone_begins_again() {
        try (Store store = Store.inMemory()) {
            CounterGenerator tickets = counter(store, "tickets", 2);
            tickets.allocate(4);
            store.client().run(transaction -> {
                try (var rows = transaction.query("from `mortar.jdo.Counter`", Map.of())) {
                    transaction.delete(rows.next().oid());
                }
            });
            IntStream.range(0, 4).forEach(unused -> tickets.next());
            assertEquals(1L, tickets.next());
            assertEquals(3L, counter(store, "tickets", 2).next());
        }
    }

    @Test
    void threads_of_two_factories_get_different_numbers() throws Exception {
        Map<String, Object> url = Map.of("javax.jdo.option.ConnectionURL", "mortar:memory:" + UUID.randomUUID());
        try (Store one = Store.with(url);
                Store other = Store.with(url)) {
            List<CounterGenerator> counters = List.of(counter(one, "orders", 3), counter(other, "orders", 3));
            ExecutorService threads = Executors.newFixedThreadPool(8);
            List<Future<List<Long>>> running = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                CounterGenerator counter = counters.get(i % 2);
                running.add(threads.submit(() -> IntStream.range(0, 500)
                        .mapToObj(unused -> counter.next())
                        .toList()));
            }
            threads.shutdown();
            Set<Long> all = new HashSet<>();
            for (Future<List<Long>> each : running) {
                all.addAll(each.get());
            }
            assertEquals(4000, all.size());
            assertTrue(all.stream().allMatch(number -> number > 0));
        }
    }
}
