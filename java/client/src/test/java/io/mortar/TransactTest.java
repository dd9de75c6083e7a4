package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Transactions that run again after a conflict. */
@RequiresLibrary
class TransactTest {
    private static TestCluster cluster;
    private static Client client;

    @BeforeAll
    static void open() {
        cluster = new TestCluster();
        client = cluster.client;
    }

    @AfterAll
    static void close() {
        cluster.close();
    }

    private static long increase(Transaction t, Oid oid) {
        Record record = t.getForUpdate(oid).orElseThrow().record();
        long increased = record.get(cluster.age, Long.class) + 1;
        t.put(oid, record.toBuilder().set(cluster.age, increased).build());
        return increased;
    }

    @Test
    void resultIsThatOfTheBody() {
        Oid ann = cluster.create("Ann", 50);
        long increased = client.transact(t -> increase(t, ann));
        assertEquals(51, increased);
        assertEquals(51, cluster.ageOf(ann));
        assertEquals("none", client.transact(t -> "none"));
    }

    @Test
    void bodyRunsAgainAfterAConflict() {
        Oid ann = cluster.create("Ann", 50);
        AtomicInteger attempts = new AtomicInteger();
        long age = client.transact(t -> {
            long increased = increase(t, ann);
            if (attempts.incrementAndGet() < 3) {
                client.run(other -> increase(other, ann));
            }
            return increased;
        });
        assertEquals(3, attempts.get());
        assertEquals(53, age);
        assertEquals(53, cluster.ageOf(ann));
    }

    @Test
    void errorOfTheBodyIsThrownAndChangesNothing() {
        Oid ann = cluster.create("Ann", 50);
        for (Exception thrown : List.of(
                new IOException("checked"),
                new IllegalStateException("unchecked"),
                new NotFoundException("of Mortar"),
                new IOException("wrapped", new CorruptException("damage")))) {
            AtomicInteger attempts = new AtomicInteger();
            Exception caught = assertThrows(
                    Exception.class,
                    () -> client.run(t -> {
                        attempts.incrementAndGet();
                        increase(t, ann);
                        throw thrown;
                    }));
            assertSame(thrown, caught);
            assertEquals(1, attempts.get());
        }
        AssertionError error = new AssertionError();
        assertSame(
                error,
                assertThrows(
                        AssertionError.class,
                        () -> client.run(t -> {
                            throw error;
                        })));
        assertEquals(50, cluster.ageOf(ann));
    }

    @Test
    void interruptionOfTheBodyIsThrownEvenAfterAnInconsistentRead() {
        Oid ann = cluster.create("Ann", 50);
        for (Exception thrown :
                List.of(new InterruptedException(), new IllegalStateException(new InterruptedException()))) {
            AtomicInteger attempts = new AtomicInteger();
            long before = cluster.ageOf(ann);
            Exception caught = assertThrows(
                    Exception.class,
                    () -> client.run(t -> {
                        attempts.incrementAndGet();
                        increase(t, ann);
                        client.run(other -> increase(other, ann));
                        throw thrown;
                    }));
            assertSame(thrown, caught);
            assertEquals(1, attempts.get());
            assertEquals(before + 1, cluster.ageOf(ann));
        }
    }

    @Test
    void errorAfterAnInconsistentReadDoesNotCount() {
        Oid ann = cluster.create("Ann", 50);
        for (RuntimeException thrown : List.of(
                new IllegalStateException("other"),
                new NotFoundException("of Mortar"),
                new ConflictException("asks for another attempt"))) {
            AtomicInteger attempts = new AtomicInteger();
            client.run(t -> {
                increase(t, ann);
                if (attempts.incrementAndGet() == 1) {
                    client.run(other -> increase(other, ann));
                    throw thrown;
                }
            });
            assertEquals(2, attempts.get(), thrown.toString());
        }
        assertEquals(56, cluster.ageOf(ann));
    }

    @Test
    void conflictWithinAStreamRunsTheBodyAgain() {
        AtomicInteger attempts = new AtomicInteger();
        String result = client.transact(t -> {
            if (attempts.incrementAndGet() == 1) {
                throw new UncheckedIOException(new IOException("stream", new ConflictException("changed")));
            }
            return "done";
        });
        assertEquals("done", result);
    }

    @Test
    void bodyDoesNotEndTheTransaction() {
        Oid ann = cluster.create("Ann", 50);
        assertThrows(
                InvalidRequestException.class,
                () -> client.run(t -> {
                    increase(t, ann);
                    t.abort();
                }));
        assertEquals(50, cluster.ageOf(ann));
        assertThrows(
                InvalidRequestException.class,
                () -> client.run(t -> assertTrue(t.commit().isCommitted())));
    }

    @Test
    void identifiersAreKnownAfterwards() {
        Transaction[] kept = new Transaction[1];
        Oid temporary = client.transact(t -> {
            kept[0] = t;
            t.append(t.createBlob(TestCluster.utf8("abc")), TestCluster.utf8("d"));
            return t.create(cluster.person, cluster.person("Ann", 50));
        });
        assertTrue(kept[0].isOver());
        assertEquals("Ann", cluster.nameOf(kept[0].realOid(temporary).orElseThrow()));
    }

    @Test
    void nestedCallIsAnIndependentTransaction() {
        Oid ann = cluster.create("Ann", 50);
        assertThrows(
                IllegalStateException.class,
                () -> client.run(t -> {
                    client.run(inner -> increase(inner, ann));
                    throw new IllegalStateException();
                }));
        assertEquals(51, cluster.ageOf(ann));
    }

    @Test
    void concurrentIncrementsAreAllCounted() throws Exception {
        Oid ann = cluster.create("Ann", 0);
        ExecutorService threads = Executors.newFixedThreadPool(6);
        try {
            List<Callable<Long>> tasks = new ArrayList<>();
            for (int index = 0; index < 60; index++) {
                tasks.add(() -> client.transact(t -> increase(t, ann)));
            }
            List<Long> results = new ArrayList<>();
            for (Future<Long> result : threads.invokeAll(tasks)) {
                results.add(result.get());
            }
            assertEquals(60, results.stream().distinct().count(), "each saw another value");
        } finally {
            threads.shutdown();
        }
        assertEquals(60, cluster.ageOf(ann));
    }

    @Test
    void uniqueValuesAreKept() throws Exception {
        client.define(ClassDefinition.builder("Account")
                .required("number", FieldType.INT64)
                .build());
        client.createIndex(new IndexDefinition("Account", "by_number", List.of("number"), true));
        SchemaTest.awaitIndex(client, "by_number");
        int account = client.schema().classNumber("Account");
        int number = client.schema().fieldNumber("Account", "number");
        client.run(t -> t.create(account, Record.builder().set(number, 7).build()));
        AlreadyExistsException error = assertThrows(
                AlreadyExistsException.class,
                () -> client.run(
                        t -> t.create(account, Record.builder().set(number, 7).build())));
        assertFalse(error.isRetryable());
        assertInstanceOf(MortarException.class, error);
    }
}
