package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

@RequiresLibrary
class QueryTest {
    private static final int PEOPLE = 1500;

    private static TestCluster cluster;
    private static Client client;
    private static Oid ann;

    @BeforeAll
    static void open() {
        cluster = new TestCluster();
        client = cluster.client;
        ann = cluster.create("Ann", 5000);
        client.run(t -> {
            List<Allocation> places = new ArrayList<>();
            for (int index = 0; index < PEOPLE; index++) {
                places.add(new Allocation(40, PlacementHint.anywhere()));
            }
            List<Change> changes = new ArrayList<>();
            for (Oid oid : t.allocate(cluster.person, places)) {
                Record record = cluster.person("P" + changes.size(), changes.size()).toBuilder()
                        .set(cluster.boss, ann)
                        .build();
                changes.add(Change.create(oid, StoredObject.record(record)));
            }
            t.write(changes);
        });
    }

    @AfterAll
    static void close() {
        cluster.close();
    }

    @Test
    void rowsOfManyPortionsAreObjects() {
        try (Rows rows = client.query("from Person where boss.name == \"Ann\" order by age")) {
            assertEquals(List.of(), rows.columns());
            for (long age = 0; age < PEOPLE; age++) {
                Row row = rows.next();
                assertTrue(row.isObject());
                assertEquals(age, row.record().get(cluster.age));
                assertEquals(cluster.person, row.oid().classNumber());
                assertEquals(List.of(), row.values());
            }
            assertFalse(rows.hasNext());
            assertThrows(NoSuchElementException.class, rows::next);
        }
    }

    @Test
    void rowsOfColumnsHaveValues() {
        try (Rows rows = client.query("select name, age as years, boss from Person where age == 3")) {
            assertEquals(List.of("name", "years", "boss"), rows.columns());
            Row row = rows.next();
            assertFalse(row.isObject());
            assertEquals(Arrays.asList("P3", 3L, ann), row.values());
            assertEquals("P3", row.get(0));
            assertEquals(3L, row.get("years", Long.class));
            assertEquals(ann, row.get(2, Oid.class));
            assertThrows(InvalidRequestException.class, row::oid);
            assertThrows(InvalidRequestException.class, row::record);
            assertThrows(InvalidRequestException.class, () -> row.get("age"));
            assertThrows(InvalidRequestException.class, () -> row.get(3));
            assertThrows(InvalidRequestException.class, () -> row.get("name", Long.class));
        }
    }

    @Test
    void aggregatesAreValues() {
        try (Rows rows = client.query("select count(*), min(age), max(age), avg(age) from Person where boss != null")) {
            Row row = rows.next();
            assertEquals(List.of((long) PEOPLE, 0L, PEOPLE - 1L, (PEOPLE - 1) / 2.0), row.values());
        }
    }

    @Test
    void parametersAreValuesOfAllTypes() {
        try (Rows rows = client.query(
                "from Person where age in :ages && boss == :boss order by age",
                Map.of("ages", Set.of(1, 5L, 9), "boss", ann))) {
            assertEquals(
                    List.of(1L, 5L, 9L),
                    rows.stream().map(row -> row.record().get(cluster.age)).toList());
        }
        client.define(ClassDefinition.builder("Everything")
                .optional("a", FieldType.BOOL)
                .optional("b", FieldType.FLOAT64)
                .optional("c", FieldType.DECIMAL)
                .optional("d", FieldType.STRING)
                .optional("e", FieldType.BYTES)
                .optional("f", FieldType.DATE)
                .optional("g", FieldType.TIMESTAMP)
                .optional("h", FieldType.list(FieldType.INT64))
                .build());
        Schema schema = client.schema();
        Map<String, Object> values = new HashMap<>();
        values.put("a", true);
        values.put("b", 1.5);
        values.put("c", new BigDecimal("12.50"));
        values.put("d", "né");
        values.put("e", new byte[] {1, -1});
        values.put("f", LocalDate.of(2026, 7, 1));
        values.put("g", Instant.parse("2026-07-01T12:30:00.000000001Z"));
        Record.Builder record = Record.builder();
        values.forEach((field, value) -> record.set(schema.fieldNumber("Everything", field), value));
        client.run(t -> t.create(schema.classNumber("Everything"), record.build()));
        for (Map.Entry<String, Object> entry : values.entrySet()) {
            String text = "select count(*) from Everything where " + entry.getKey() + " == :value";
            try (Rows rows = client.query(text, Map.of("value", entry.getValue()))) {
                assertEquals(1L, rows.next().get(0), text);
            }
        }
        Map<String, Object> none = new HashMap<>();
        none.put("value", null);
        try (Rows rows = client.query("select count(*) from Everything where h == :value", none)) {
            assertEquals(1L, rows.next().get(0));
        }
    }

    @Test
    void wrongQueriesAreRefusedWithThePosition() {
        InvalidRequestException error =
                assertThrows(InvalidRequestException.class, () -> client.query("from Person where agee > 3"));
        assertTrue(error.getMessage().contains("^^^^"), error.getMessage());
        assertThrows(InvalidRequestException.class, () -> client.query("from Person where"));
        assertThrows(InvalidRequestException.class, () -> client.query("from Person where age > :age"));
        assertThrows(MortarException.class, () -> client.query("from Missing"));
    }

    @Test
    void stepsAreExplained() {
        Explanation explanation = client.explain("from Person where age > :age", Map.of("age", 10));
        assertTrue(explanation.text().contains("extent scan"), explanation.text());
        assertTrue(explanation.json().startsWith("{") || explanation.json().startsWith("["), explanation.json());
        assertEquals(explanation.text(), explanation.toString());
    }

    @Test
    void rowsCanBeLeftUnread() {
        try (Rows rows = client.query("from Person");
                Stream<Row> stream = rows.stream()) {
            assertEquals(10, stream.limit(10).count());
        }
        Rows rows = client.query("from Person");
        assertTrue(rows.hasNext());
        rows.close();
        rows.close();
        Rows closed = client.query("from Person");
        closed.close();
        assertThrows(InvalidRequestException.class, closed::hasNext);
    }

    @Test
    void queryOfATransactionSeesItsWrites() {
        try (Transaction t = client.begin()) {
            Oid bob = t.create(cluster.person, cluster.person("Bob", 77_777));
            try (Rows rows = t.query("from Person where age > :age", Map.of("age", 70_000))) {
                Row row = rows.next();
                assertEquals(bob, row.oid());
                assertEquals("Bob", row.record().get(cluster.name));
                assertFalse(rows.hasNext());
            }
            try (Rows rows = t.query("select name from Person where age == 77777")) {
                assertEquals("Bob", rows.next().get("name"));
            }
        }
        try (Rows rows = client.query("from Person where age == 77777")) {
            assertFalse(rows.hasNext());
        }
    }

    @Test
    void rowThatCannotBeDecodedIsNotSkipped() {
        client.define(ClassDefinition.builder("Dated")
                .required("number", FieldType.INT64)
                .required("day", FieldType.DATE)
                .build());
        Schema schema = client.schema();
        int number = schema.fieldNumber("Dated", "number");
        int day = schema.fieldNumber("Dated", "day");
        client.run(t -> {
            for (long index = 0; index < 600; index++) {
                Record record = Record.builder()
                        .set(number, index)
                        .set(day, LocalDate.MAX)
                        .build();
                byte[] encoded = record.encode();
                if (index == 2) {
                    // The last field, whose highest byte is 0x55.
                    encoded[encoded.length - 5] = 0x7f;
                }
                t.create(schema.classNumber("Dated"), Record.decode(encoded));
            }
        });
        try (Rows rows = client.query("select number, day from Dated order by number")) {
            assertEquals(0L, rows.next().get("number"));
            assertEquals(1L, rows.next().get("number"));
            assertThrows(UnsupportedException.class, rows::next);
            assertThrows(UnsupportedException.class, rows::hasNext);
            assertThrows(UnsupportedException.class, rows::next);
        }
    }

    @Test
    void phantomsConflict() {
        try (Transaction t = client.begin()) {
            try (Rows rows = t.query("from Person where age == 88888")) {
                assertFalse(rows.hasNext());
            }
            t.createBlob(new byte[1]);
            Oid phantom = cluster.create("Phantom", 88_888);
            assertInstanceOf(CommitOutcome.Conflict.class, t.commit());
            client.run(other -> other.delete(phantom));
        }
    }

    @Test
    void rowsAreComparedByContent() {
        String text = "select name, age from Person where age == 3";
        try (Rows one = client.query(text);
                Rows other = client.query(text);
                Rows objects = client.query("from Person where age == 3")) {
            Row row = one.next();
            assertEquals(row, other.next());
            assertEquals(row.hashCode(), row.hashCode());
            assertFalse(row.equals(objects.next()));
            assertEquals("[P3, 3]", row.toString());
        }
    }
}
