package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Virtual threads, which exist from Java 21 on. */
@RequiresLibrary
@Timeout(120)
class VirtualThreadTest {
    private TestCluster cluster;

    @BeforeEach
    void open() {
        assumeTrue(Runtime.version().feature() >= 21, "this Java has no virtual threads");
        cluster = new TestCluster();
    }

    @AfterEach
    void close() {
        if (cluster != null) {
            cluster.close();
        }
    }

    /** Runs a task in a virtual thread. */
    static <T> CompletableFuture<T> start(Callable<T> task) throws Exception {
        CompletableFuture<T> result = new CompletableFuture<>();
        Runnable run = () -> {
            try {
                result.complete(task.call());
            } catch (Throwable error) {
                result.completeExceptionally(error);
            }
        };
        Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, run);
        return result;
    }

    private static <T> T get(CompletableFuture<T> result) throws Exception {
        return result.get(60, TimeUnit.SECONDS);
    }

    @Test
    void virtualThreadsAreTold() throws Exception {
        assertFalse(VirtualThreads.isCurrent());
        assertTrue(get(start(VirtualThreads::isCurrent)));
    }

    @Test
    void manyVirtualThreadsRunTransactions() throws Exception {
        Oid ann = cluster.create("Ann", 0);
        List<CompletableFuture<Long>> results = new ArrayList<>();
        for (int index = 0; index < 1000; index++) {
            int own = index;
            results.add(start(() -> cluster.client.transact(t -> {
                assertTrue(t.get(ann).isPresent());
                t.create(cluster.person, cluster.person("P" + own, own));
                return (long) own;
            })));
        }
        for (int index = 0; index < results.size(); index++) {
            assertEquals(index, get(results.get(index)));
        }
        try (Rows rows = cluster.client.query("select count(*) from Person")) {
            assertEquals(1001L, rows.next().get(0));
        }
    }

    @Test
    void waitingVirtualThreadsOccupyNoCarrier() throws Exception {
        Oid ann = cluster.create("Ann", 0);
        // More threads than carriers wait for a lock.
        try (Transaction holder = cluster.client.begin(IsolationLevel.LOCKS)) {
            holder.getForUpdate(ann);
            List<CompletableFuture<Boolean>> waiting = new ArrayList<>();
            int count = 8 * Runtime.getRuntime().availableProcessors();
            for (int index = 0; index < count; index++) {
                waiting.add(start(() -> {
                    try (Transaction t = cluster.client.begin(IsolationLevel.LOCKS)) {
                        return t.getForUpdate(ann).isPresent();
                    }
                }));
            }
            Oid bob = get(start(() -> cluster.create("Bob", 20)));
            assertEquals("Bob", get(start(() -> cluster.nameOf(bob))));
            assertTrue(waiting.stream().noneMatch(CompletableFuture::isDone), "they wait for the lock");
            holder.abort();
            for (CompletableFuture<Boolean> result : waiting) {
                assertTrue(get(result));
            }
        }
    }

    @Test
    void errorsHaveTheStackOfTheVirtualThread() throws Exception {
        InvalidRequestException error = get(start(() ->
                assertThrows(InvalidRequestException.class, () -> cluster.client.query("from Person where agee > 1"))));
        assertTrue(List.of(error.getStackTrace()).stream()
                .anyMatch(frame -> frame.getClassName().equals(Client.class.getName())));
    }

    @Test
    void interruptionDoesNotEndACall() throws Exception {
        Oid ann = cluster.create("Ann", 50);
        assertTrue(get(start(() -> {
            Thread.currentThread().interrupt();
            assertEquals("Ann", cluster.nameOf(ann));
            cluster.client.run(t -> t.put(ann, cluster.person("Ann", 51)));
            return Thread.currentThread().isInterrupted();
        })));
        assertEquals(51, cluster.ageOf(ann));
    }

    @Test
    void eventsAreReadByVirtualThreads() throws Exception {
        cluster.client.schema();
        List<CompletableFuture<Optional<Event>>> results = new ArrayList<>();
        List<Events> subscriptions = new ArrayList<>();
        for (int index = 0; index < 20; index++) {
            Events events = cluster.client.events();
            subscriptions.add(events);
            results.add(start(() -> {
                Optional<Event> event = events.next();
                while (event.isPresent() && event.get().kind() != Event.Kind.SCHEMA_CHANGED) {
                    event = events.next();
                }
                return event;
            }));
        }
        cluster.client.define(
                ClassDefinition.builder("New").required("a", FieldType.INT64).build());
        for (CompletableFuture<Optional<Event>> result : results) {
            assertTrue(get(result).isPresent());
        }
        subscriptions.forEach(Events::close);
    }
}
