package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class MalformedRecordTest {
    @ParameterizedTest
    @CsvSource({
        "'', empty",
        "01 05, of a table is incomplete",
        "01 05 00, of a table is incomplete",
        "01 01 01 01 00, of a table is incomplete",
        "01 45 01 00 01 00, of a table is incomplete",
        "01 05 ff 00 01 00, of a table is incomplete",
        "01 0f ffffffff 00, of a table is incomplete",
        "01 05 01 00 02 00, offsets of a table do not match",
        "01 05 01 00 01 00 00, offsets of a table do not match",
        "01 05 02 00 01 00 01 00, offsets of a table do not match",
        "01 05 02 00 01 02 01 00, offsets of a table do not match",
        "01 06 0001 00 0001 00, wider than",
        "01 09 01 0000 01 00, wider than",
        "01 05 02 01 00 01 02 00 00, out of order",
        "01 05 02 01 01 01 02 00 00, out of order",
        "01 05 01 00 01 7f, unknown tag 0x7f",
        "01 05 01 00 02 00 00, tag 0x00",
        "01 05 01 00 02 03 00, tag 0x03",
        "01 05 01 00 03 03 0001, tag 0x03",
        "01 05 01 00 03 03 ff80, tag 0x03",
        "01 05 01 00 03 03 007f, tag 0x03",
        "01 05 01 00 03 03 ffff, tag 0x03",
        "01 05 01 00 0a 03 010000000000000000, tag 0x03",
        "01 05 01 00 08 04 3ff80000000000, tag 0x04",
        "01 05 01 00 09 04 7ff8000000000001, tag 0x04",
        "01 05 01 00 01 05, tag 0x05",
        "01 05 01 00 02 05 00, tag 0x05",
        "01 05 01 00 04 05 01 00 01, tag 0x05",
        "01 05 01 00 04 05 00 0001, tag 0x05",
        "01 05 01 00 03 05 09 01, tag 0x05",
        "01 05 01 00 08 05 05 0100000000 01, tag 0x05",
        "01 05 01 00 02 06 ff, UTF-8",
        "01 05 01 00 04 06 eda080, UTF-8",
        "01 05 01 00 0d 09 7f0000000000000000000000, tag 0x09",
        "01 05 01 00 0e 09 01000000000000000000000000, tag 0x09",
        "01 05 01 00 10 0a 070707070707070707070707070707, tag 0x0a",
        "01 05 01 00 08 0b 05 01 00 01 00 00 00, of a table is incomplete",
        "01 05 01 00 09 0c 01 02 02 04 03 02 03 01, out of order",
        "01 05 01 00 09 0c 01 02 02 04 03 01 03 01, out of order",
        "01 05 01 00 0e 0d 01 04 02 04 06 07 06 62 03 01 06 61 00, out of order",
        "01 05 01 00 05 0d 01 01 01 00, no value",
    })
    void otherEncodingsOfARecordAreRefused(String text, String why) {
        CorruptException error = assertThrows(
                CorruptException.class, () -> Record.decode(Hex.bytes(text)).toMap());
        assertTrue(error.getMessage().contains(why), error.getMessage());
        assertEquals(ErrorKind.CORRUPT, error.kind());
    }

    @Test
    void newerRecordsAreNotCorrupt() {
        assertThrows(UnsupportedException.class, () -> Record.decode(new byte[] {2}));
        // More days than LocalDate has, and more seconds than Instant has.
        Record date = Record.decode(Hex.bytes("01 05 01 00 09 08 7fffffffffffffff"));
        assertThrows(UnsupportedException.class, () -> date.get(0));
        Record moment = Record.decode(Hex.bytes("01 05 01 00 0d 09 0dffffffffffffffffffffff"));
        assertThrows(UnsupportedException.class, () -> moment.get(0));
        assertThrows(UnsupportedException.class, () -> Record.decode(Hex.bytes("01 0d 01 80000000 01 00")));
    }

    @Test
    void recordBeyondTheLimitIsRefused() {
        byte[] encoded = new byte[Limits.RECORD + 1];
        encoded[0] = 1;
        assertThrows(CorruptException.class, () -> Record.decode(encoded));
    }

    @Test
    void nestingIsBounded() {
        // One level more than a builder allows: a list of one element around the deepest value.
        byte[] inner = {0};
        for (int level = 0; level <= Limits.NESTING; level++) {
            byte[] outer = new byte[inner.length + 4];
            System.arraycopy(new byte[] {0x0b, 1, 1, (byte) inner.length}, 0, outer, 0, 4);
            System.arraycopy(inner, 0, outer, 4, inner.length);
            inner = outer;
        }
        byte[] encoded = new byte[inner.length + 5];
        System.arraycopy(new byte[] {1, 5, 1, 0, (byte) inner.length}, 0, encoded, 0, 5);
        System.arraycopy(inner, 0, encoded, 5, inner.length);
        Record record = Record.decode(encoded);
        assertTrue(assertThrows(CorruptException.class, () -> record.get(0))
                .getMessage()
                .contains("nested"));
    }

    @Test
    void damagedFieldLeavesTheOthersReadable() {
        byte[] encoded = Record.builder().set(0, "one").set(1, "two").build().encode();
        encoded[encoded.length - 1] = (byte) 0xff;
        Record record = Record.decode(encoded);
        assertEquals("one", record.get(0));
        assertThrows(CorruptException.class, () -> record.get(1));
        assertThrows(CorruptException.class, record::toMap);
        assertTrue(record.toString().contains("UTF-8"));
    }

    @Test
    void damagedRecordsDoNoHarm() {
        RandomValues values = new RandomValues(7);
        Random random = values.random();
        for (int round = 0; round < 20_000; round++) {
            byte[] bytes = values.record().encode();
            for (int damage = random.nextInt(4); damage > 0; damage--) {
                bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
            }
            exercise(bytes);
            exercise(Arrays.copyOf(bytes, random.nextInt(bytes.length + 1)));
        }
    }

    @Test
    void bytesFromAnywhereDoNoHarm() {
        Random random = new Random(8);
        for (int round = 0; round < 50_000; round++) {
            byte[] bytes = new byte[random.nextInt(60)];
            random.nextBytes(bytes);
            if (bytes.length > 2 && random.nextInt(4) > 0) {
                bytes[0] = 1;
                bytes[1] = (byte) (5 + random.nextInt(2) * 4 + random.nextInt(2));
                bytes[2] = (byte) random.nextInt(4);
            }
            exercise(bytes);
        }
    }

    /** What can be decoded has no other encoding. Everything else is a documented exception. */
    private static void exercise(byte[] bytes) {
        try {
            Record record = Record.decode(bytes);
            for (int field = 0; field < 20; field++) {
                try {
                    record.get(field);
                } catch (CorruptException | UnsupportedException damaged) {
                    // The whole record is refused below.
                }
            }
            assertArrayEquals(bytes, Record.of(record.toMap()).encode());
        } catch (CorruptException | UnsupportedException refused) {
            // As documented.
        }
    }
}
