package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Threads that share clients and transactions. */
@RequiresLibrary
@Timeout(120)
class ThreadsTest {
    private TestCluster cluster;

    @BeforeEach
    void open() {
        // A call that is never answered fails soon.
        Duration timeout = Duration.ofSeconds(5);
        cluster = new TestCluster(
                Client.inMemory(ConnectOptions.builder().timeout(timeout).build()));
    }

    @AfterEach
    void close() {
        cluster.close();
    }

    @Test
    void transactionIsUsedByOtherThreads() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try (Transaction t = cluster.client.begin()) {
            List<Future<Oid>> created = new ArrayList<>();
            for (int index = 0; index < 200; index++) {
                String name = "P" + index;
                created.add(threads.submit(() -> t.create(cluster.person, cluster.person(name, 1))));
            }
            for (Future<Oid> oid : created) {
                assertTrue(threads.submit(() -> t.get(oid.get())).get().isPresent());
            }
            assertTrue(threads.submit(() -> t.commit()).get().isCommitted());
            for (int index = 0; index < created.size(); index++) {
                assertEquals(
                        "P" + index,
                        cluster.nameOf(t.realOid(created.get(index).get()).orElseThrow()));
            }
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void transactionIsClosedWhileOthersUseIt() throws Exception {
        Oid ann = cluster.create("Ann", 50);
        for (int round = 0; round < 50; round++) {
            Transaction t = cluster.client.begin();
            CountDownLatch started = new CountDownLatch(2);
            AtomicReference<Throwable> unexpected = new AtomicReference<>();
            Runnable reads = () -> {
                started.countDown();
                try {
                    while (true) {
                        t.get(ann);
                    }
                } catch (InvalidRequestException closed) {
                    // As documented.
                } catch (Throwable error) {
                    unexpected.set(error);
                }
            };
            Thread one = new Thread(reads);
            Thread other = new Thread(reads);
            one.start();
            other.start();
            started.await();
            t.close();
            one.join();
            other.join();
            assertEquals(null, unexpected.get());
        }
    }

    @Test
    void interruptionDoesNotEndACall() throws Exception {
        Oid ann = cluster.create("Ann", 50);
        Thread.currentThread().interrupt();
        try {
            assertEquals("Ann", cluster.nameOf(ann));
            cluster.client.run(t -> t.put(ann, cluster.person("Ann", 51)));
            assertTrue(Thread.currentThread().isInterrupted());
        } finally {
            Thread.interrupted();
        }
        assertEquals(51, cluster.ageOf(ann));
    }
}
