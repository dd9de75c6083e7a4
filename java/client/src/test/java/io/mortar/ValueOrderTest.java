package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ValueOrderTest {
    /** Ascending. */
    private static final List<Object> SORTED = Arrays.asList(
            null,
            false,
            true,
            Double.NEGATIVE_INFINITY,
            new BigDecimal("-1e400"),
            -Double.MAX_VALUE,
            Long.MIN_VALUE,
            -9_223_372_036_854_775_808.0,
            -2L,
            new BigDecimal("-1.5"),
            -1L,
            -1.0,
            new BigDecimal("-1"),
            new BigDecimal("-1.0"),
            new BigDecimal("-1e-2000000000"),
            0L,
            -0.0,
            0.0,
            new BigDecimal("0e5"),
            new BigDecimal("0"),
            new BigDecimal("0.0"),
            new BigDecimal("1e-400"),
            Double.MIN_VALUE,
            new BigDecimal("0.1"),
            0.1,
            0.5,
            new BigDecimal("0.5"),
            new BigDecimal("0.50"),
            1L,
            1.0,
            new BigDecimal("1"),
            9_007_199_254_740_992L,
            9_007_199_254_740_992.0,
            new BigDecimal("9007199254740992"),
            9_007_199_254_740_993L,
            Long.MAX_VALUE,
            9_223_372_036_854_775_808.0,
            Double.MAX_VALUE,
            new BigDecimal("1e400"),
            new BigDecimal("1e2000000000"),
            Double.POSITIVE_INFINITY,
            Double.NaN,
            "",
            "A",
            "a",
            "a\0",
            "aa",
            "é",
            "\uFFFD",
            "\uD83D\uDE00",
            new byte[0],
            new byte[] {0},
            new byte[] {0, 0},
            new byte[] {1},
            new byte[] {-1},
            LocalDate.MIN,
            LocalDate.of(1969, 12, 31),
            LocalDate.EPOCH,
            LocalDate.MAX,
            Instant.MIN,
            Instant.ofEpochSecond(-300),
            Instant.ofEpochSecond(-1),
            Instant.ofEpochSecond(0, -1),
            Instant.EPOCH,
            Instant.ofEpochSecond(0, 1),
            Instant.ofEpochSecond(0, 255),
            Instant.ofEpochSecond(0, 256),
            Instant.MAX,
            Oid.parse("0.0.0.0.0"),
            Oid.parse("1.0.0.0.0"),
            Oid.parse("~0.0.0.0.0"),
            List.of(),
            List.of(1L),
            List.of(1L, 0L),
            List.of(1.0),
            List.of(2L),
            List.of("a"),
            List.of(List.of()),
            Set.of(),
            Set.of(2L, 1L),
            Set.of(1L, 5L),
            Set.of(2L),
            Map.of(),
            Map.of("a", 1L),
            Map.of("a", 1L, "b", 0L),
            Map.of("a", 2L),
            Map.of("b", 0L));

    @Test
    void orderIsByFamilyThenByValueThenByType() {
        for (int a = 0; a < SORTED.size(); a++) {
            for (int b = 0; b < SORTED.size(); b++) {
                String pair = SORTED.get(a) + " and " + SORTED.get(b);
                assertEquals(Integer.compare(a, b), Integer.signum(compare(SORTED.get(a), SORTED.get(b))), pair);
            }
        }
    }

    @Test
    void membersOfASetAreEncodedInOrder() {
        List<Object> shuffled = new ArrayList<>(SORTED);
        Collections.shuffle(shuffled, new Random(1));
        byte[] encoded = ValueEncoder.encode(new HashSet<>(shuffled));
        Set<?> decoded = (Set<?>) ValueDecoder.decode(encoded, 0, encoded.length);
        List<byte[]> members = new ArrayList<>();
        decoded.forEach(member -> members.add(ValueEncoder.encode(member)));
        assertEquals(SORTED.size(), members.size());
        for (int index = 0; index < SORTED.size(); index++) {
            assertArrayEquals(ValueEncoder.encode(SORTED.get(index)), members.get(index));
        }
    }

    @Test
    void orderIsTotal() {
        RandomValues values = new RandomValues(3);
        for (int round = 0; round < 20_000; round++) {
            Object a = values.value();
            Object b = values.value();
            Object c = values.value();
            assertEquals(0, compare(a, a));
            assertEquals(Integer.signum(compare(a, b)), -Integer.signum(compare(b, a)));
            assertEquals(compare(a, b) == 0, Arrays.equals(ValueEncoder.encode(a), ValueEncoder.encode(b)));
            if (compare(a, b) <= 0 && compare(b, c) <= 0) {
                assertEquals(true, compare(a, c) <= 0);
            }
        }
    }

    private static int compare(Object a, Object b) {
        byte[] x = ValueEncoder.encode(a);
        byte[] y = ValueEncoder.encode(b);
        return ValueOrder.compare(x, 0, x.length, y, 0, y.length);
    }
}
