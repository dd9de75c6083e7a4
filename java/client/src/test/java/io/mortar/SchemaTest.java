package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

@RequiresLibrary
class SchemaTest {
    private static Client client;

    @BeforeAll
    static void open() {
        client = Client.inMemory();
    }

    @AfterAll
    static void close() {
        client.close();
    }

    static void awaitIndex(Client client, String name) throws InterruptedException {
        // Bounded: an index of a few objects is built at once.
        for (int tries = 0; tries < 3000; tries++) {
            if (client.schema().indexNamed(name).orElseThrow().ready()) {
                return;
            }
            Thread.sleep(10);
        }
        throw new AssertionError(
                "the index " + name + " is not ready: " + client.schema().indexNamed(name));
    }

    @Test
    void classesAreDescribedAsTheyWereDefined() {
        FieldType tags = FieldType.map(FieldType.STRING, FieldType.set(FieldType.DATE));
        client.define(
                ClassDefinition.builder("a.Base")
                        .required("id", FieldType.INT64)
                        .field(FieldDefinition.required("rate", FieldType.DECIMAL)
                                .withDefault(new BigDecimal("1.50")))
                        .build(),
                ClassDefinition.builder("a.Derived")
                        .parent("a.Base")
                        .optional("next", FieldType.reference("a.Derived"))
                        .optional("any", FieldType.REFERENCE)
                        .optional("tags", tags)
                        .build());
        Schema schema = client.schema();
        SchemaClass base = schema.classNamed("a.Base").orElseThrow();
        SchemaClass derived =
                schema.classNumbered(schema.classNumber("a.Derived")).orElseThrow();
        assertEquals(OptionalInt.empty(), base.parent());
        assertEquals(OptionalInt.of(base.number()), derived.parent());
        assertEquals(1, derived.version());
        assertEquals(
                List.of("id", "rate", "next", "any", "tags"),
                List.copyOf(schema.fieldsOf("a.Derived").keySet()));
        assertEquals(new BigDecimal("1.50"), base.field("rate").orElseThrow().initialValue());
        assertTrue(base.field("id").orElseThrow().required());
        assertFalse(derived.field("next").orElseThrow().required());
        assertEquals(
                FieldType.reference("a.Derived"),
                derived.field("next").orElseThrow().type());
        assertEquals(FieldType.REFERENCE, derived.field("any").orElseThrow().type());
        assertEquals(tags, derived.field("tags").orElseThrow().type());
        assertTrue(derived.field("id").isEmpty());
        assertEquals(base.field("id").orElseThrow().number(), schema.fieldNumber("a.Derived", "id"));
        assertTrue(
                schema.isSubclass(derived.number(), base.number()) && schema.isSubclass(base.number(), base.number()));
        assertFalse(schema.isSubclass(base.number(), derived.number()));
        assertThrows(NotFoundException.class, () -> schema.classNumber("Missing"));
        assertTrue(assertThrows(NotFoundException.class, () -> schema.fieldNumber("a.Derived", "x"))
                .getMessage()
                .contains("tags"));
    }

    @Test
    void classThatExistsStaysAsItIs() {
        ClassDefinition same =
                ClassDefinition.builder("Same").required("a", FieldType.INT64).build();
        client.define(same);
        client.define(List.of(same));
        assertEquals(1, client.schema().classNamed("Same").orElseThrow().version());
        ClassDefinition other =
                ClassDefinition.builder("Same").required("a", FieldType.STRING).build();
        assertThrows(AlreadyExistsException.class, () -> client.define(other));
        assertThrows(
                MortarException.class,
                () -> client.define(ClassDefinition.builder("no name").build()));
        assertThrows(
                MortarException.class,
                () -> client.define(
                        ClassDefinition.builder("B").parent("Missing").build()));
    }

    @Test
    void classChangesAndOldRecordsStayReadable() {
        client.define(ClassDefinition.builder("Item")
                .required("name", FieldType.STRING)
                .required("count", FieldType.INT64)
                .optional("sizes", FieldType.set(FieldType.INT64))
                .build());
        Schema before = client.schema();
        int count = before.fieldNumber("Item", "count");
        int sizes = before.fieldNumber("Item", "sizes");
        Record old = Record.builder()
                .set(before.fieldNumber("Item", "name"), "nut")
                .set(count, 3)
                .set(sizes, Set.of(1, 2))
                .build();
        client.run(t -> t.bind("item", t.create(before.classNumber("Item"), old)));
        client.evolve(
                "Item",
                EvolutionStep.addField(
                        FieldDefinition.required("color", FieldType.STRING).withDefault("red")),
                EvolutionStep.renameField("name", "title"),
                EvolutionStep.widenField("count", FieldType.DECIMAL),
                EvolutionStep.widenField("sizes", FieldType.list(FieldType.FLOAT64)));
        Map<String, SchemaField> fields = client.schema().fieldsOf("Item");
        assertEquals(2, client.schema().classNamed("Item").orElseThrow().version());
        Record stored =
                client.get(client.resolve("item").orElseThrow()).orElseThrow().record();
        assertEquals(old, stored, "no record is rewritten");
        assertEquals("nut", fields.get("title").valueIn(stored));
        assertEquals(new BigDecimal(3), fields.get("count").valueIn(stored));
        assertEquals(List.of(1.0, 2.0), fields.get("sizes").valueIn(stored));
        assertEquals("red", fields.get("color").valueIn(stored));
        client.evolve("Item", EvolutionStep.removeField("sizes"));
        assertFalse(client.schema().fieldsOf("Item").containsKey("sizes"));
        assertThrows(
                MortarException.class, () -> client.evolve("Item", EvolutionStep.widenField("count", FieldType.INT64)));
        assertThrows(NotFoundException.class, () -> client.evolve("Missing", EvolutionStep.makeOptional("a")));
        assertEquals("rename a to b", EvolutionStep.renameField("a", "b").toString());
    }

    @Test
    void defaultsAndNullabilityChange() {
        client.define(
                ClassDefinition.builder("Flag").optional("on", FieldType.BOOL).build());
        client.evolve("Flag", EvolutionStep.setDefault("on", true));
        assertEquals(true, field("Flag", "on").initialValue());
        client.evolve("Flag", EvolutionStep.makeRequired("on"));
        assertTrue(field("Flag", "on").required());
        client.evolve("Flag", List.of(EvolutionStep.makeOptional("on"), EvolutionStep.setDefault("on", null)));
        assertFalse(field("Flag", "on").required());
        assertNull(field("Flag", "on").initialValue());
    }

    private static SchemaField field(String className, String fieldName) {
        return client.schema().fieldsOf(className).get(fieldName);
    }

    private static String plan() {
        return client.explain("from Town where size > :size", Map.of("size", 5)).text();
    }

    @Test
    void indexesAreCreatedAndRemoved() throws Exception {
        client.define(ClassDefinition.builder("Town")
                .required("name", FieldType.STRING)
                .required("size", FieldType.INT64)
                .build());
        client.createIndex(new IndexDefinition("Town", "by_size", List.of("size", "name"), false));
        awaitIndex(client, "by_size");
        Schema schema = client.schema();
        SchemaIndex index = schema.indexNamed("by_size").orElseThrow();
        assertEquals(List.of(schema.fieldNumber("Town", "size"), schema.fieldNumber("Town", "name")), index.fields());
        assertEquals(schema.classNumber("Town"), index.classNumber());
        assertFalse(index.unique());
        assertTrue(index.problem().isEmpty());
        // Peer servers learn a little later than the catalogue that the index is ready.
        for (int tries = 0; tries < 3000 && !plan().contains("by_size"); tries++) {
            Thread.sleep(10);
        }
        assertTrue(plan().contains("by_size"), plan());
        assertThrows(MortarException.class, () -> client.removeClass("Town"));
        client.removeIndex("by_size");
        assertTrue(client.schema().indexNamed("by_size").isEmpty());
        assertThrows(NotFoundException.class, () -> client.removeIndex("by_size"));
        assertThrows(
                NotFoundException.class,
                () -> client.createIndex(new IndexDefinition("Missing", "x", List.of("a"), false)));
    }

    @Test
    void classWithoutObjectsIsRemoved() {
        client.define(
                ClassDefinition.builder("Gone").required("a", FieldType.INT64).build());
        int number = client.schema().classNumber("Gone");
        Transaction created = client.transact(t -> {
            t.create(number, Record.builder().set(1, 1).build());
            return t;
        });
        assertTrue(created.isOver());
        assertThrows(MortarException.class, () -> client.removeClass("Gone"));
        try (Rows rows = client.query("from Gone")) {
            Oid oid = rows.next().oid();
            client.run(t -> t.delete(oid));
        }
        client.removeClass("Gone");
        assertTrue(client.schema().classNamed("Gone").isEmpty());
        assertThrows(NotFoundException.class, () -> client.removeClass("Gone"));
    }
}
