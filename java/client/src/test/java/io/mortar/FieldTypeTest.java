package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class FieldTypeTest {
    @ParameterizedTest
    @ValueSource(
            strings = {
                "bool",
                "ref",
                "ref<a.B$C>",
                "list<set<int64>>",
                "map<string, map<date, list<ref<P>>>>",
                "map<ref, bytes>",
                "map<map<int64, bool>, decimal>"
            })
    void typesAreParsedFromTheirText(String text) {
        FieldType type = FieldType.parse(text);
        assertEquals(text, type.toString());
        MessageWriter out = new MessageWriter();
        type.write(out);
        MessageReader in = new MessageReader(MessageWriter.bytesOf(out));
        assertEquals(type, FieldType.read(in));
        in.end();
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "int",
                "list",
                "list<>",
                "map<int64>",
                "ref<a b>",
                "list<int64",
                "bool<int64>",
                "map<,int64>",
                "list<int64>>"
            })
    void otherTextsAreRefused(String text) {
        assertThrows(InvalidRequestException.class, () -> FieldType.parse(text));
    }

    @Test
    void nestingIsBounded() {
        int levels = Limits.NESTING;
        assertEquals(
                "list<".repeat(levels) + "bool" + ">".repeat(levels),
                FieldType.parse("list<".repeat(levels) + "bool" + ">".repeat(levels))
                        .toString());
        assertThrows(
                InvalidRequestException.class, () -> FieldType.parse("list<".repeat(1000) + "bool" + ">".repeat(1000)));
    }

    @Test
    void partsAreThoseOfTheText() {
        FieldType type = FieldType.map(FieldType.STRING, FieldType.list(FieldType.reference("Person")));
        assertEquals("map<string, list<ref<Person>>>", type.toString());
        assertEquals(Optional.of(FieldType.STRING), type.key());
        assertEquals(
                Optional.of("Person"),
                type.element().orElseThrow().element().orElseThrow().className());
        assertEquals(FieldType.Kind.MAP, type.kind());
    }

    @Test
    void widenedValuesAreReadAsTheNewType() {
        assertEquals(3.0, FieldType.FLOAT64.convert(3L));
        assertEquals(0.1, FieldType.FLOAT64.convert(new BigDecimal("0.1")));
        assertEquals(new BigDecimal(-3), FieldType.DECIMAL.convert(-3L));
        assertEquals(new BigDecimal("0.5"), FieldType.DECIMAL.convert(0.5));
        assertEquals(Double.NaN, FieldType.DECIMAL.convert(Double.NaN));
        assertEquals(Arrays.asList(1.0, null), FieldType.list(FieldType.FLOAT64).convert(Arrays.asList(1L, null)));
        assertEquals(List.of(1.0), FieldType.list(FieldType.FLOAT64).convert(Set.of(1L)));
        assertEquals(
                Map.of("a", new BigDecimal(1)),
                FieldType.map(FieldType.STRING, FieldType.DECIMAL).convert(Map.of("a", 1L)));
        assertEquals("text", FieldType.INT64.convert("text"));
    }

    @Test
    void fieldsOfOlderRecordsHaveTheirDefaults() {
        Record old = Record.builder().set(1, 7).set(2, null).build();
        SchemaField widened = new SchemaField(1, "a", FieldType.FLOAT64, true, 1.5, null);
        SchemaField optional = new SchemaField(2, "b", FieldType.INT64, false, 7L, null);
        SchemaField required = new SchemaField(2, "b", FieldType.INT64, true, 7L, null);
        SchemaField late = new SchemaField(3, "c", FieldType.INT64, false, 7L, null);
        assertEquals(7.0, widened.valueIn(old));
        assertEquals(null, optional.valueIn(old));
        assertEquals(7L, required.valueIn(old));
        assertEquals(7L, late.valueIn(old));
    }
}
