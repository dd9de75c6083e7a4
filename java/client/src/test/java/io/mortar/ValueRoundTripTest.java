package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class ValueRoundTripTest {
    @Test
    void recordsAreDecodedToTheFieldsThatTheyWereMadeOf() {
        RandomValues values = new RandomValues(42);
        for (int round = 0; round < 20_000; round++) {
            Record record = values.record();
            Record decoded = Record.decode(record.encode());
            assertEquals(record, decoded);
            assertEquals(record, Record.of(decoded.toMap()));
            for (int field : record.fieldNumbers()) {
                assertArrayEquals(
                        ValueEncoder.encode(record.get(field)),
                        ValueEncoder.encode(decoded.toMap().get(field)));
            }
        }
    }

    @Test
    void integersOfAllSizesAreDecodedToThemselves() {
        RandomValues values = new RandomValues(43);
        for (int round = 0; round < 100_000; round++) {
            long number = values.integer();
            byte[] encoded = ValueEncoder.encode(number);
            assertEquals(number, ValueDecoder.decode(encoded, 0, encoded.length));
        }
    }
}
