package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Node;
import io.mortar.jdo.model.Person;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Many threads, many objects, and much use. {@code -Dmortar.scale=1000000} sets the number of objects.
 *
 * <p>What needs bounded memory runs in a Java virtual machine of its own.
 */
@Timeout(900)
class ScaleTest {
    private static final int THREADS = 1_000;
    private static final long STACK_BYTES = 512 << 10;
    private static final int OBJECTS = Integer.getInteger("mortar.scale", 20_000);
    private static final int PORTION = 10_000;

    @Test
    void a_thousand_threads_change_an_object_each() throws Exception {
        try (Store store = Store.inMemory()) {
            List<Object> ids = store.call(manager -> {
                List<Object> created = new ArrayList<>();
                for (int i = 0; i < THREADS; i++) {
                    created.add(manager.getObjectId(manager.makePersistent(new Person("P" + i, 0))));
                }
                return created;
            });
            CountDownLatch start = new CountDownLatch(1);
            Queue<Throwable> failures = new ConcurrentLinkedQueue<>();
            List<Thread> threads = new ArrayList<>();
            for (Object id : ids) {
                Thread thread = new Thread(
                        null,
                        () -> {
                            try {
                                start.await();
                                store.run(manager -> {
                                    Person own = (Person) manager.getObjectById(id);
                                    own.setAge(own.getAge() + own.getName().length());
                                });
                            } catch (Throwable failure) {
                                failures.add(failure);
                            }
                        },
                        "user " + id,
                        STACK_BYTES);
                threads.add(thread);
                thread.start();
            }
            start.countDown();
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), List.copyOf(failures));
            long expected = 10 * 2 + 90 * 3 + 900 * 4;
            assertEquals(
                    expected,
                    store.<Object>call(manager -> manager.newQuery("select sum(age) from io.mortar.jdo.model.Person")
                            .execute()));
        }
    }

    @Test
    void an_extent_and_a_query_are_iterated_in_a_small_heap(@TempDir Path directory) throws Exception {
        Path data = directory.resolve("data");
        long start = System.nanoTime();
        try (Store store = Store.with(Map.of("javax.jdo.option.ConnectionURL", "mortar:embedded:" + data))) {
            for (int from = 0; from < OBJECTS; from += PORTION) {
                int first = from;
                int end = Math.min(OBJECTS, from + PORTION);
                store.run(manager -> {
                    for (int number = first; number < end; number++) {
                        manager.makePersistent(new Node(number, null));
                    }
                });
            }
        }
        report("created", start, "");
        long middle = System.nanoTime();
        String output = ChildProgram.run(IterationProgram.class, "48m", data.toString());
        report("iterated twice", middle, ", " + output);
        assertTrue(output.startsWith("extent " + OBJECTS + ", query " + OBJECTS + ','), output);
    }

    private static void report(String what, long start, String more) {
        if (OBJECTS > PORTION * 10) {
            System.out.println(
                    OBJECTS + " objects " + what + " in " + (System.nanoTime() - start) / 1_000_000 + " ms" + more);
        }
    }

    @Test
    void what_is_closed_leaves_no_native_memory() throws Exception {
        String output = ChildProgram.run(LeakProgram.class, "64m");
        assertTrue(output.endsWith("ok"), output);
    }
}
