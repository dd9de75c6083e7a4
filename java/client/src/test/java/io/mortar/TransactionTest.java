package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@RequiresLibrary
class TransactionTest {
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

    @ParameterizedTest
    @EnumSource(names = {"OPTIMISTIC", "LOCKS"})
    void changesTakeEffectAtTheCommit(IsolationLevel level) {
        Instant before = Instant.now().minusSeconds(60);
        Oid ann = cluster.create("Ann", 50);
        try (Transaction t = client.begin(level)) {
            Record record = t.getForUpdate(ann).orElseThrow().record();
            t.put(ann, record.toBuilder().set(cluster.age, 51).build());
            Oid bob = t.create(
                    cluster.person,
                    cluster.person("Bob", 20).toBuilder().set(cluster.boss, ann).build());
            assertTrue(bob.isTemporary());
            assertEquals(51L, t.get(ann).orElseThrow().record().get(cluster.age), "it sees its own changes");
            assertEquals(Optional.empty(), t.realOid(bob));
            assertEquals(50, cluster.ageOf(ann), "others do not");
            CommitOutcome.Committed committed = t.commit().orThrow();
            assertTrue(committed.timestamp().isAfter(before));
            assertTrue(t.isOver());
            Oid real = t.realOid(bob).orElseThrow();
            assertFalse(real.isTemporary());
            assertEquals(Optional.of(ann), t.realOid(ann));
            assertEquals(ann, client.readLatest(real).orElseThrow().record().get(cluster.boss));
        }
        assertEquals(51, cluster.ageOf(ann));
    }

    @Test
    void snapshotReadsAndCannotWrite() throws Exception {
        Oid ann = cluster.create("Ann", 50);
        try (Transaction t = client.begin(IsolationLevel.SNAPSHOT)) {
            assertThrows(MortarException.class, () -> t.delete(ann));
            assertThrows(MortarException.class, () -> t.create(cluster.person, cluster.person("Bob", 20)));
            assertThrows(UnsupportedException.class, () -> t.resolve("people"));
            assertThrows(UnsupportedException.class, () -> t.query("from Person"));
            assertTrue(t.commit().isCommitted());
        }
        // A snapshot is of the recent past.
        Optional<StoredObject> found = Optional.empty();
        for (int tries = 0; tries < 500 && found.isEmpty(); tries++) {
            try (Transaction t = client.begin(IsolationLevel.SNAPSHOT)) {
                found = t.get(ann);
                assertTrue(t.commit().isCommitted());
            }
            Thread.sleep(10);
        }
        assertEquals(cluster.person("Ann", 50), found.orElseThrow().record());
    }

    @Test
    void transactionThatIsNotCommittedChangesNothing() {
        Oid ann = cluster.create("Ann", 50);
        try (Transaction t = client.begin()) {
            t.delete(ann);
        }
        Transaction t = client.begin();
        t.delete(ann);
        t.abort();
        t.abort();
        assertThrows(InvalidRequestException.class, t::commit);
        assertEquals(50, cluster.ageOf(ann));
        client.run(other -> other.delete(ann));
        assertTrue(client.readLatest(ann).isEmpty());
    }

    @Test
    void conflictNamesTheObject() {
        Oid ann = cluster.create("Ann", 50);
        Oid bob = cluster.create("Bob", 20);
        try (Transaction first = client.begin();
                Transaction second = client.begin()) {
            first.get(ann);
            second.get(ann);
            first.put(ann, cluster.person("Ann", 51));
            second.put(bob, cluster.person("Bob", 21));
            assertTrue(first.commit().isCommitted());
            CommitOutcome.Conflict conflict = assertInstanceOf(CommitOutcome.Conflict.class, second.commit());
            assertEquals(Optional.of(ann), conflict.object());
            assertTrue(conflict.reason().contains(ann.toString()), conflict.reason());
            ConflictException error = assertThrows(ConflictException.class, conflict::orThrow);
            assertEquals(Optional.of(ann), error.object());
            assertTrue(error.isRetryable());
        }
        assertEquals(20, cluster.ageOf(bob));
    }

    @Test
    void readsAreCheckedWithoutACommit() {
        Oid ann = cluster.create("Ann", 50);
        try (Transaction t = client.begin()) {
            t.get(ann);
            t.delete(ann);
            assertTrue(t.check().isCommitted());
            assertTrue(t.isOver());
        }
        assertEquals(50, cluster.ageOf(ann));
        try (Transaction t = client.begin()) {
            t.get(ann);
            client.run(other -> other.put(ann, cluster.person("Ann", 51)));
            assertFalse(t.check().isCommitted());
        }
    }

    @Test
    void outcomeOfATransactionThatWasToldIsNotKept() {
        try (Transaction t = client.begin()) {
            TransactionId id = t.id();
            assertEquals(id, t.id());
            assertEquals(id, TransactionId.fromBytes(id.toBytes()));
            t.createBlob(new byte[1]);
            assertTrue(t.commit().isCommitted());
            assertEquals(id, t.id());
            assertThrows(InvalidRequestException.class, () -> client.outcome(id));
            assertThrows(InvalidRequestException.class, () -> client.outcome(TransactionId.fromBytes(new byte[3])));
        }
    }

    @Test
    void manyObjectsAreReadAndWrittenTogether() {
        List<Oid> oids = new ArrayList<>();
        try (Transaction t = client.begin()) {
            List<Allocation> places = new ArrayList<>();
            for (int index = 0; index < 3000; index++) {
                places.add(new Allocation(40, PlacementHint.anywhere()));
            }
            oids.addAll(t.allocate(cluster.person, places));
            List<Change> changes = new ArrayList<>();
            for (int index = 0; index < oids.size(); index++) {
                Record record = cluster.person("P" + index, index).toBuilder()
                        .set(cluster.boss, oids.get(0))
                        .build();
                changes.add(Change.create(oids.get(index), StoredObject.record(record)));
            }
            t.write(changes);
            assertEquals(oids.size(), t.getAll(oids).size());
            t.commit().orThrow();
            assertEquals(Optional.of(oids.get(5)), t.realOid(oids.get(5)), "it was permanent before");
        }
        oids.forEach(oid -> assertFalse(oid.isTemporary()));
        client.run(t -> t.write(List.of(
                Change.delete(oids.get(1)),
                Change.replace(oids.get(2), StoredObject.record(cluster.person("new", 1))))));
        try (Transaction t = client.begin()) {
            t.prefetch(oids);
            Map<Oid, StoredObject> found = t.getAll(oids);
            assertEquals(2999, found.size());
            assertFalse(found.containsKey(oids.get(1)));
            assertEquals("new", found.get(oids.get(2)).record().get(cluster.name));
            assertEquals("P2999", found.get(oids.get(2999)).record().get(cluster.name));
            assertEquals(oids.get(0), found.get(oids.get(3)).record().get(cluster.boss));
            List<Oid> expected = new ArrayList<>(oids);
            expected.remove(1);
            assertEquals(expected, new ArrayList<>(found.keySet()));
            assertEquals(
                    2,
                    t.getAllForUpdate(List.of(oids.get(1), oids.get(2), oids.get(3)))
                            .size());
            assertEquals(Map.of(), t.getAll(List.of()));
        }
    }

    @Test
    void largeObjectsAreReadInSeveralReplies() {
        try (Transaction t = client.begin()) {
            List<Oid> oids = new ArrayList<>();
            for (int index = 0; index < 8; index++) {
                oids.add(t.createBlob(new byte[index < 5 ? 3 << 20 : index]));
            }
            Oid deleted = t.createBlob(new byte[1]);
            t.delete(deleted);
            oids.add(2, deleted);
            Map<Oid, StoredObject> found = t.getAll(oids);
            oids.remove(deleted);
            assertEquals(oids, new ArrayList<>(found.keySet()));
            assertEquals(3 << 20, found.get(oids.get(4)).size());
            assertEquals(7, found.get(oids.get(7)).size());
        }
    }

    @Test
    void nestedTypesAreDefined() {
        int levels = Limits.NESTING;
        FieldType deepest = FieldType.parse("list<".repeat(levels) + "bool" + ">".repeat(levels));
        client.define(ClassDefinition.builder("Deep").optional("field", deepest).build());
        assertEquals(deepest, client.schema().fieldsOf("Deep").get("field").type());
    }

    @Test
    void onlyAllocatedIdentifiersAreForNewObjects() {
        Oid ann = cluster.create("Ann", 50);
        try (Transaction t = client.begin()) {
            StoredObject record = StoredObject.record(cluster.person("Bob", 20));
            assertThrows(InvalidRequestException.class, () -> t.write(List.of(Change.create(ann, record))));
            Oid oid = t.allocate(cluster.person, 100);
            assertThrows(
                    InvalidRequestException.class, () -> Change.create(oid, record.withAttribute("a", new byte[0])));
            assertThrows(InvalidRequestException.class, () -> Change.create(oid, StoredObject.blob(new byte[0])));
            t.write(List.of(Change.create(oid, record)));
            assertEquals(oid, Change.delete(oid).oid());
        }
    }

    @Test
    void objectsCannotStandUnderIdentifiersOfOtherClasses() {
        Oid ann = cluster.create("Ann", 50);
        try (Transaction t = client.begin()) {
            assertThrows(InvalidRequestException.class, () -> t.put(ann, StoredObject.blob(new byte[1])));
            assertThrows(TooLargeException.class, () -> t.createBlob(new byte[(4 << 20) + 1]));
        }
    }

    @Test
    void hintsPlaceObjects() {
        int node = client.nodes().get(client.nodes().size() - 1);
        Oid ann = cluster.create("Ann", 50);
        try (Transaction t = client.begin()) {
            Oid there = t.create(cluster.person, cluster.person("Bob", 20), PlacementHint.at(node));
            Oid near = t.create(cluster.person, cluster.person("Cid", 20), PlacementHint.near(ann));
            Oid blob = t.createBlob(new byte[1], PlacementHint.at(node));
            Oid allocated = t.allocate(cluster.person, List.of(new Allocation(100, PlacementHint.at(node))))
                    .get(0);
            t.write(List.of(Change.create(allocated, StoredObject.record(cluster.person("Dan", 3)))));
            t.commit().orThrow();
            assertEquals(node, t.realOid(there).orElseThrow().node());
            assertEquals(node, t.realOid(blob).orElseThrow().node());
            assertEquals(node, allocated.node());
            assertEquals(ann.page(), t.realOid(near).orElseThrow().page());
            assertNotEquals(ann, t.realOid(near).orElseThrow());
        }
    }

    @Test
    void attributesAreSetAndRemoved() {
        Oid blob = cluster.createBlob(new byte[1]);
        client.run(t -> {
            t.setAttribute(blob, "a", new byte[] {1});
            t.setAttribute(blob, new byte[] {-1}, new byte[] {2});
            t.setAttribute(blob, "c", new byte[] {3});
            t.removeAttribute(blob, "c");
            t.removeAttribute(blob, "missing");
        });
        StoredObject object = client.readLatest(blob).orElseThrow();
        assertEquals(2, object.attributes().size());
        assertArrayEquals(new byte[] {1}, object.attribute("a").orElseThrow());
        client.run(t -> t.removeAttribute(blob, new byte[] {-1}));
        assertEquals(1, client.readLatest(blob).orElseThrow().attributes().size());
        client.run(t -> t.bind(
                "with attributes",
                t.createObject(
                        0,
                        StoredObject.blob(new byte[] {5}).withAttribute("x", new byte[] {6}),
                        PlacementHint.anywhere())));
        Oid created = client.resolve("with attributes").orElseThrow();
        assertArrayEquals(
                new byte[] {6}, client.get(created).orElseThrow().attribute("x").orElseThrow());
        Oid missing = Oid.of(blob.space(), 0, blob.node(), blob.page(), 0xfffd);
        try (Transaction t = client.begin()) {
            assertThrows(NotFoundException.class, () -> t.setAttribute(missing, "a", new byte[0]));
            assertThrows(InvalidRequestException.class, () -> t.setAttribute(blob, "", new byte[0]));
            assertThrows(TooLargeException.class, () -> t.setAttribute(blob, "a".repeat(256), new byte[0]));
        }
    }
}
