package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class RecordTest {
    /** Encodings stay readable for ever: add to this list, never change it. It is that of {@code crates/model}. */
    private static Map<Record, String> version1() {
        Map<Record, String> encodings = new LinkedHashMap<>();
        Map<String, Object> map = new HashMap<>();
        map.put("b", null);
        map.put("a", 1);
        encodings.put(Record.empty(), "01");
        encodings.put(one(null), "01 05 01 00 01 00");
        encodings.put(one(false), "01 05 01 00 01 01");
        encodings.put(one(true), "01 05 01 00 01 02");
        encodings.put(one(0), "01 05 01 00 01 03");
        encodings.put(one((byte) 1), "01 05 01 00 02 03 01");
        encodings.put(one((short) -1), "01 05 01 00 02 03 ff");
        encodings.put(one(128L), "01 05 01 00 03 03 0080");
        encodings.put(one(Long.MIN_VALUE), "01 05 01 00 09 03 8000000000000000");
        encodings.put(one(1.5f), "01 05 01 00 09 04 3ff8000000000000");
        encodings.put(one(Double.longBitsToDouble(0xfff8_0000_0000_0001L)), "01 05 01 00 09 04 7ff8000000000000");
        encodings.put(one(new BigDecimal("12.50")), "01 05 01 00 05 05 01 02 04e2");
        encodings.put(one(BigDecimal.ZERO), "01 05 01 00 03 05 00 00");
        encodings.put(one(new BigDecimal("-1e+300")), "01 05 01 00 05 05 02 fed4 ff");
        encodings.put(one("né"), "01 05 01 00 04 06 6ec3a9");
        encodings.put(one(new byte[] {(byte) 0xff}), "01 05 01 00 02 07 ff");
        encodings.put(one(LocalDate.ofEpochDay(20_635)), "01 05 01 00 03 08 509b");
        encodings.put(one(Instant.ofEpochMilli(1500)), "01 05 01 00 05 09 59682f00");
        encodings.put(
                one(Oid.fromBytes(Hex.bytes("07".repeat(16)))), "01 05 01 00 11 0a 07070707070707070707070707070707");
        encodings.put(one(List.of()), "01 05 01 00 01 0b");
        encodings.put(one(List.of(1, 0)), "01 05 01 00 08 0b 01 02 02 03 03 01 03");
        encodings.put(one(Set.of(2, 1)), "01 05 01 00 09 0c 01 02 02 04 03 01 03 02");
        encodings.put(one(map), "01 05 01 00 0e 0d 01 04 02 04 06 07 06 61 03 01 06 62 00");
        encodings.put(
                Record.builder().set(0x1_0000, "x").set(2, true).build(), "01 0d 02 00000002 00010000 01 03 02 06 78");
        // The example of docs/format.md.
        encodings.put(
                Record.builder().set(0, "né").set(1, 300).set(4, List.of(true)).build(),
                "01 05 03 00 01 04 04 07 0c 06 6ec3a9 03 012c 0b 01 01 01 02");
        return encodings;
    }

    private static Record one(Object value) {
        return Record.builder().set(0, value).build();
    }

    @Test
    void version1EncodingsStay() {
        version1().forEach((record, text) -> {
            assertEquals(text.replace(" ", ""), Hex.text(record.encode()), record.toString());
            Record decoded = Record.decode(Hex.bytes(text));
            assertEquals(record, decoded);
            assertEquals(record, Record.of(decoded.toMap()), text);
        });
    }

    @Test
    void headerOfManyFieldsIsWider() {
        Record.Builder builder = Record.builder();
        for (int field = 0; field < 300; field++) {
            builder.set(field, 0);
        }
        byte[] encoded = builder.build().encode();
        assertEquals("010a012c00000001", Hex.text(Arrays.copyOf(encoded, 8)));
        assertEquals(1 + 1 + 2 + 300 * 2 + 300 * 2 + 300, encoded.length);
    }

    @Test
    void valuesOfAllTypesAreReturnedAsTheyWereSet() {
        BigDecimal large = new BigDecimal(new BigInteger("9".repeat(9000)), Integer.MIN_VALUE);
        List<Object> values = Arrays.asList(
                null,
                true,
                Long.MAX_VALUE,
                -0.0,
                large,
                new BigDecimal("1.00"),
                "\uD83D\uDE00\uFFFD",
                LocalDate.MIN,
                LocalDate.MAX,
                Instant.MIN,
                Instant.MAX,
                Instant.ofEpochSecond(-1, 1),
                Oid.parse("~1.2.3.4.5"),
                Arrays.asList(1L, null, List.of("a")),
                Set.of(1L, "a", 2.5),
                Map.of("a", Map.of(1L, List.of())));
        for (Object value : values) {
            assertEquals(value, one(value).get(0));
        }
        assertArrayEquals(
                new byte[] {1, 2},
                one(ByteBuffer.wrap(new byte[] {0, 1, 2}, 1, 2)).get(0, byte[].class));
    }

    @Test
    void bytesInSetsAndKeysAreReadOnlyBuffers() {
        byte[] bytes = {1, 2};
        ByteBuffer buffer = ByteBuffer.wrap(bytes.clone());
        assertEquals(Set.of(buffer), one(Set.of(bytes)).get(0));
        Set<?> nested = one(Set.of(List.of(bytes))).get(0, Set.class);
        assertTrue(nested.contains(List.of(buffer)));
        Map<?, ?> map = one(Map.of(bytes, bytes)).get(0, Map.class);
        assertArrayEquals(bytes, (byte[]) map.get(buffer));
        ByteBuffer key = (ByteBuffer) map.keySet().iterator().next();
        assertThrows(ReadOnlyBufferException.class, () -> key.put(0, (byte) 9));
        assertEquals(one(Set.of(bytes)), one(Set.of(buffer)));
    }

    @Test
    void readingBytesInSetsAndKeysDoesNotChangeThem() {
        byte[] bytes = {1, 2};
        Set<?> set = one(Set.of(bytes, List.of(bytes))).get(0, Set.class);
        consume(set);
        set.stream().forEach(RecordTest::consume);
        assertEquals(one(Set.of(bytes, List.of(bytes))), one(set));
        assertTrue(set.contains(ByteBuffer.wrap(bytes)));
        Map<?, ?> map = one(Map.of(bytes, 1L)).get(0, Map.class);
        consume(map.keySet());
        map.forEach((key, value) -> consume(key));
        assertEquals(one(Map.of(bytes, 1L)), one(map));
        assertEquals(1L, map.get(ByteBuffer.wrap(bytes)));
        Set<?> maps = one(Set.of(Map.of(bytes, bytes))).get(0, Set.class);
        maps.forEach(member -> consume(((Map<?, ?>) member).values()));
        assertEquals(one(Set.of(Map.of(bytes, bytes))), one(maps));
        assertThrows(UnsupportedOperationException.class, set::clear);
        assertThrows(UnsupportedOperationException.class, map::clear);
    }

    /** Reads all bytes, which moves the positions of buffers. */
    private static void consume(Object value) {
        if (value instanceof ByteBuffer buffer) {
            buffer.get(new byte[buffer.remaining()]);
        } else if (value instanceof Collection<?> values) {
            values.forEach(RecordTest::consume);
        }
    }

    @Test
    void equalMembersOfASetAreOne() {
        assertEquals(one(Set.of(1L)), one(new LinkedHashSet<>(List.of(1, 1L, (short) 1))));
        assertEquals(one(Set.of(new byte[] {1})), one(Set.of(new byte[] {1}, new byte[] {1})));
        assertThrows(InvalidRequestException.class, () -> one(Map.of(1, "a", 1L, "b")));
    }

    @Test
    void fieldsAreFoundByNumber() {
        Record record =
                Record.builder().set(5, "five").set(1, 1).set(1_000_000, null).build();
        assertEquals(List.of(1, 5, 1_000_000), record.fieldNumbers());
        assertEquals("five", record.get(5, String.class));
        assertEquals(1L, record.get(1));
        assertNull(record.get(2));
        assertTrue(record.has(1_000_000) && !record.has(2) && !record.has(0) && !record.has(-1));
        assertEquals(3, record.size());
        assertThrows(InvalidRequestException.class, () -> record.get(5, Long.class));
        assertEquals("{1: 1, 5: five, 1000000: null}", record.toString());
    }

    @Test
    void builderOfARecordKeepsTheOtherFields() {
        Record record = Record.builder()
                .set(1, "old")
                .set(2, List.of(1, 2))
                .set(3, true)
                .build();
        Record changed = record.toBuilder().set(1, "new").remove(3).build();
        assertEquals(Record.builder().set(1, "new").set(2, List.of(1, 2)).build(), changed);
        assertEquals("old", record.get(1));
        assertNotEquals(record, changed);
        assertFalse(changed.has(3));
    }

    @Test
    void recordIsIndependentOfWhatItWasMadeOf() {
        byte[] bytes = {1};
        List<Object> list = new ArrayList<>(List.of(1));
        Record.Builder builder = Record.builder().set(1, bytes).set(2, list);
        bytes[0] = 2;
        list.add(2);
        Record record = builder.build();
        assertArrayEquals(new byte[] {1}, record.get(1, byte[].class));
        assertEquals(List.of(1L), record.get(2));
        record.encode()[0] = 9;
        record.get(1, byte[].class)[0] = 9;
        assertArrayEquals(new byte[] {1}, record.get(1, byte[].class));
        assertThrows(
                UnsupportedOperationException.class,
                () -> record.get(2, List.class).clear());
        assertThrows(UnsupportedOperationException.class, () -> record.toMap().clear());
    }

    @Test
    void whatIsNoValueIsRefused() {
        for (Object wrong : List.of(
                new Object(), 'c', new int[0], BigInteger.ONE, new StringBuilder("text"), List.of(new Object()))) {
            assertThrows(
                    InvalidRequestException.class,
                    () -> one(wrong),
                    wrong.getClass().getName());
        }
        for (String wrong : List.of("\uD83D", "a\uDE00b", "\uDE00\uD83D")) {
            assertThrows(InvalidRequestException.class, () -> one(wrong));
        }
        assertThrows(InvalidRequestException.class, () -> Record.builder().set(-1, 1));
    }

    @Test
    void nestingIsBounded() {
        Object value = null;
        for (int level = 0; level < Limits.NESTING; level++) {
            value = level % 3 == 0
                    ? Collections.singletonList(value)
                    : level % 3 == 1 ? Collections.singleton(value) : Collections.singletonMap(value, null);
        }
        Object deepest = value;
        assertEquals(deepest, one(deepest).get(0));
        assertThrows(TooLargeException.class, () -> one(List.of(deepest)));
        List<Object> cycle = new ArrayList<>();
        cycle.add(cycle);
        assertThrows(TooLargeException.class, () -> one(cycle));
    }

    @Test
    void sizeIsBounded() {
        byte[] half = new byte[Limits.RECORD / 2];
        Record.Builder builder = Record.builder().set(0, half).set(1, half);
        assertThrows(TooLargeException.class, builder::build);
        assertThrows(TooLargeException.class, () -> one(List.of(half, half, half)));
        assertThrows(TooLargeException.class, () -> one(new byte[Limits.RECORD]));
        BigInteger digits = BigInteger.ONE.shiftLeft(8 * Limits.DECIMAL - 2);
        assertEquals(new BigDecimal(digits), one(new BigDecimal(digits)).get(0));
        assertThrows(TooLargeException.class, () -> one(new BigDecimal(digits.shiftLeft(1))));
    }
}
