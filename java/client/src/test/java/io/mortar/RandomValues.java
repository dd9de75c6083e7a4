package io.mortar;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;

/** Random values of all types. Equal seeds give equal values. */
final class RandomValues {
    private static final String[] TEXTS = {"", "a", "né", "日本", "\uD83D\uDE00", "\uFFFD", "order", "a\0b"};
    private static final double[] DOUBLES = {
        0.0,
        -0.0,
        1,
        -1.5,
        Double.NaN,
        Double.MAX_VALUE,
        Double.MIN_VALUE,
        Double.POSITIVE_INFINITY,
        Double.NEGATIVE_INFINITY,
        9_223_372_036_854_775_808.0
    };

    private final Random random;

    RandomValues(long seed) {
        random = new Random(seed);
    }

    Random random() {
        return random;
    }

    /** A record with up to twelve fields. */
    Record record() {
        Record.Builder record = Record.builder();
        for (int field = random.nextInt(13); field > 0; field--) {
            record.set(random.nextInt(8) == 0 ? random.nextInt(Integer.MAX_VALUE) : random.nextInt(300), value());
        }
        return record.build();
    }

    /** A value with few levels. */
    Object value() {
        return value(3);
    }

    private Object value(int levels) {
        return switch (random.nextInt(levels == 0 ? 10 : 14)) {
            case 0 -> null;
            case 1 -> random.nextBoolean();
            case 2 -> integer();
            case 3 -> random.nextBoolean() ? DOUBLES[random.nextInt(DOUBLES.length)] : random.nextGaussian() * 1e6;
            case 4 -> decimal();
            case 5 -> text();
            case 6 -> bytes();
            case 7 -> LocalDate.ofEpochDay(integer() % 365_000_000_000L);
            case 8 -> instant();
            case 9 -> Oid.fromBytes(randomBytes(Oid.BYTES));
            case 10, 11 -> list(levels - 1);
            case 12 -> set(levels - 1);
            default -> map(levels - 1);
        };
    }

    /** Integers of all sizes. */
    long integer() {
        return random.nextLong() >> random.nextInt(Long.SIZE);
    }

    private BigDecimal decimal() {
        BigInteger unscaled = new BigInteger(randomBytes(1 + random.nextInt(random.nextInt(8) == 0 ? 200 : 10)));
        int scale = random.nextInt(8) == 0 ? random.nextInt() : random.nextInt(20) - 10;
        return new BigDecimal(unscaled, scale);
    }

    private String text() {
        return random.nextInt(8) == 0 ? "long ".repeat(random.nextInt(100)) : TEXTS[random.nextInt(TEXTS.length)];
    }

    private byte[] bytes() {
        return randomBytes(random.nextInt(random.nextInt(8) == 0 ? 700 : 5));
    }

    private byte[] randomBytes(int length) {
        byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        return bytes;
    }

    private Instant instant() {
        long seconds = random.nextBoolean() ? integer() % 9_000_000_000L : integer() % Instant.MAX.getEpochSecond();
        return Instant.ofEpochSecond(seconds, random.nextInt(1_000_000_000));
    }

    private List<Object> list(int levels) {
        List<Object> list = new ArrayList<>();
        for (int left = random.nextInt(5); left > 0; left--) {
            list.add(value(levels));
        }
        return list;
    }

    private Set<Object> set(int levels) {
        return new HashSet<>(list(levels));
    }

    private Map<Object, Object> map(int levels) {
        Map<Object, Object> map = new HashMap<>();
        for (int left = random.nextInt(5); left > 0; left--) {
            Object key = value(levels);
            // Two arrays, or collections of arrays, with equal bytes are one key.
            map.put(containsArray(key) ? integer() : key, value(levels));
        }
        return map;
    }

    private static boolean containsArray(Object value) {
        if (value instanceof Map<?, ?> map) {
            return containsArray(new ArrayList<>(map.keySet())) || containsArray(new ArrayList<>(map.values()));
        }
        return value instanceof byte[] || value instanceof Iterable<?> elements && anyContainsArray(elements);
    }

    private static boolean anyContainsArray(Iterable<?> elements) {
        for (Object element : elements) {
            if (containsArray(element)) {
                return true;
            }
        }
        return false;
    }
}
