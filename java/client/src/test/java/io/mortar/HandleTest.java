package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Objects that are closed, dropped, or used in other ways than they should be. */
@RequiresLibrary
@Timeout(300)
class HandleTest {
    private static void assertClosed(Executable call) {
        MortarException error = assertThrows(InvalidRequestException.class, call);
        assertTrue(error.getMessage().contains("closed") || error.getMessage().contains("over"), error.getMessage());
    }

    @Test
    void closedObjectsCannotBeUsed() {
        TestCluster cluster = new TestCluster();
        Client client = cluster.client;
        Oid ann = cluster.create("Ann", 50);
        Transaction committed = client.begin();
        committed.put(ann, cluster.person("Ann", 51));
        assertTrue(committed.commit().isCommitted());
        assertClosed(() -> committed.get(ann));
        assertClosed(committed::commit);
        assertClosed(committed::id);
        committed.close();
        committed.abort();

        Transaction open = client.begin();
        Rows rows = client.query("from Person");
        Rows own = open.query("from Person");
        own.next();
        Listing<ListedObject> objects = client.objects();
        ContentOutputStream upload = client.contentOutput();
        client.close();
        client.close();
        assertClosed(() -> client.get(ann));
        assertClosed(client::begin);
        assertClosed(client::schema);
        assertThrows(MortarException.class, () -> open.get(ann));
        assertThrows(MortarException.class, open::commit);
        assertThrows(MortarException.class, objects::hasNext);
        open.close();
        rows.close();
        own.close();
        objects.close();
        upload.close();
    }

    @Test
    void numbersThatAreNoHandlesAreErrors() {
        for (long number : List.of(0L, -1L, Long.MAX_VALUE, 1L << 40)) {
            NativeHandle handle = new NativeHandle(number, null, "nothing");
            for (Operation operation : Operation.values()) {
                boolean needsHandle = operation.code() >= 10;
                if (needsHandle) {
                    assertThrows(
                            MortarException.class,
                            () -> handle.call(operation, new MessageWriter().u64(1)),
                            operation.name());
                }
            }
            handle.close();
        }
    }

    @Test
    void requestsThatAreMalformedAreErrors() {
        try (TestCluster cluster = new TestCluster();
                Transaction t = cluster.client.begin()) {
            for (Operation operation : Operation.values()) {
                if (operation.code() >= 50 && operation.code() < 100) {
                    MessageWriter longRequest = new MessageWriter();
                    for (int index = 0; index < 100; index++) {
                        longRequest.u64(-1);
                    }
                    assertThrows(
                            MortarException.class, () -> t.handle().call(operation, longRequest), operation.name());
                }
            }
        }
    }

    @Test
    void handlesOfOtherObjectsAreErrors() {
        try (TestCluster cluster = new TestCluster();
                Transaction t = cluster.client.begin()) {
            assertThrows(MortarException.class, () -> t.handle().call(Operation.SCHEMA, null));
            assertThrows(MortarException.class, () -> t.handle().call(Operation.ROWS_NEXT, new MessageWriter().u32(1)));
        }
    }

    @Test
    void objectsThatAreDroppedAreReleased() throws Exception {
        try (TestCluster cluster = new TestCluster()) {
            long before = Native.handles();
            Oid ann = cluster.create("Ann", 50);
            for (int round = 0; round < 20_000; round++) {
                Transaction t = cluster.client.begin();
                if (round % 8 == 0) {
                    t.get(ann);
                }
                if (round % 400 == 0) {
                    cluster.client.query("from Person").next();
                    t.query("from Person").next();
                    cluster.client.objects().hasNext();
                    cluster.client.read(ann);
                    cluster.client.events();
                    cluster.client.contentOutput();
                }
            }
            assertTrue(awaitHandles(before + 100), Native.handles() + " handles are left of " + before);
            assertEquals("Ann", cluster.nameOf(ann), "the client was not dropped");
        }
    }

    @Test
    void operationThatCannotBeStartedFails() throws Exception {
        byte[] reply = PendingCalls.start(0, Operation.T_ROOT, null).get(30, TimeUnit.SECONDS);
        assertThrows(InternalException.class, () -> MessageReader.read(reply, MessageReader::nothing));
    }

    @Test
    void closedObjectsLeaveNoHandle() throws Exception {
        long before = Native.handles();
        try (TestCluster cluster = new TestCluster()) {
            Oid ann = cluster.create("Ann", 50);
            long open = Native.handles();
            for (int round = 0; round < 100; round++) {
                cluster.client.run(t -> t.getForUpdate(ann));
                try (Rows rows = cluster.client.query("from Person")) {
                    rows.forEachRemaining(row -> {});
                }
                try (Transaction t = cluster.client.begin()) {
                    t.append(t.createBlob(new byte[1]), new byte[1]);
                    t.commit().orThrow();
                }
            }
            // Handles that other tests have dropped may be released meanwhile.
            assertTrue(Native.handles() <= open);
        }
        assertTrue(Native.handles() <= before);
    }

    private static boolean awaitHandles(long most) throws InterruptedException {
        for (int tries = 0; tries < 200; tries++) {
            System.gc();
            if (Native.handles() <= most) {
                return true;
            }
            Thread.sleep(10);
        }
        return false;
    }

    @Test
    void objectIsNotReleasedDuringItsCalls() throws Exception {
        try (TestCluster cluster = new TestCluster()) {
            Oid ann = cluster.create("Ann", 50);
            AtomicBoolean done = new AtomicBoolean();
            Thread collector = new Thread(() -> {
                while (!done.get()) {
                    System.gc();
                }
            });
            collector.start();
            try {
                // Nothing refers to the transaction during the call.
                for (int round = 0; round < 2000; round++) {
                    assertTrue(cluster.client.begin().get(ann).isPresent());
                }
            } finally {
                done.set(true);
                collector.join();
            }
        }
    }
}
