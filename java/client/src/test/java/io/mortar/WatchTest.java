package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@RequiresLibrary
@Timeout(60)
class WatchTest {
    private TestCluster cluster;

    @BeforeEach
    void open() {
        cluster = new TestCluster();
    }

    @AfterEach
    void close() {
        cluster.close();
    }

    @Test
    void changesOfObjectsAreNoticed() {
        Oid ann = cluster.create("Ann", 50);
        Oid bob = cluster.create("Bob", 20);
        try (Watch watch = cluster.client.watch(List.of(ann, bob))) {
            cluster.client.run(t -> t.put(bob, cluster.person("Bob", 21)));
            assertEquals(List.of(bob), watch.next());
            cluster.client.run(t -> t.delete(ann));
            assertEquals(List.of(ann), watch.next());
        }
    }

    @Test
    void threadThatWaitsReturnsWhenTheWatchIsClosed() throws Exception {
        Oid ann = cluster.create("Ann", 50);
        Watch watch = cluster.client.watch(List.of(ann));
        AtomicReference<List<Oid>> last = new AtomicReference<>();
        Thread reader = new Thread(() -> last.set(watch.next()));
        reader.start();
        while (reader.getState() != Thread.State.WAITING) {
            Thread.sleep(1);
        }
        watch.close();
        reader.join();
        assertEquals(List.of(), last.get());
        assertThrows(InvalidRequestException.class, watch::next);
    }

    @Test
    void closedClientEndsTheWatch() {
        Oid ann = cluster.create("Ann", 50);
        Watch watch = cluster.client.watch(List.of(ann));
        cluster.close();
        assertTrue(assertThrows(MortarException.class, watch::next).getMessage().contains("closed"));
        watch.close();
    }
}
