package io.mortar;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Reads values as {@link ValueEncoder} writes them. It accepts no other bytes: whatever they are, it throws only the
 * documented exceptions, recurses at most {@link Limits#NESTING} levels, and allocates nothing by a length that they
 * claim.
 */
final class ValueDecoder {
    private static final BigInteger NANOS_PER_SECOND = BigInteger.valueOf(1_000_000_000);
    private static final char REPLACEMENT = '\ufffd';
    /** Bytes of a time stamp: more do not fit 64 bits of seconds. */
    private static final int TIMESTAMP_BYTES = 12;

    private ValueDecoder() {}

    /**
     * The value that is encoded in {@code bytes[from..to]}.
     *
     * @throws CorruptException if {@link ValueEncoder} does not write these bytes
     * @throws UnsupportedException for a date or a time stamp that {@code java.time} cannot represent
     */
    static Object decode(byte[] bytes, int from, int to) {
        return decode(bytes, from, to, Limits.NESTING, false);
    }

    /**
     * @param levels the permitted levels of lists, sets and maps
     * @param hashed whether the value is in a set or a key: then bytes are a {@link ByteBuffer}, which has the equality
     *     of its content
     */
    private static Object decode(byte[] bytes, int from, int to, int levels, boolean hashed) {
        if (from == to) {
            throw Table.malformed("a value is empty");
        }
        int tag = bytes[from] & 0xff;
        int body = from + 1;
        switch (tag) {
            case ValueTag.NULL:
                requireSize(body, to, 0, tag);
                return null;
            case ValueTag.FALSE:
                requireSize(body, to, 0, tag);
                return false;
            case ValueTag.TRUE:
                requireSize(body, to, 0, tag);
                return true;
            case ValueTag.INT64:
                return readInteger(bytes, body, to, tag);
            case ValueTag.FLOAT64:
                return readDouble(bytes, body, to);
            case ValueTag.DECIMAL:
                return readDecimal(bytes, body, to);
            case ValueTag.STRING:
                return readText(bytes, body, to);
            case ValueTag.BYTES:
                byte[] copy = Arrays.copyOfRange(bytes, body, to);
                return hashed ? ByteBuffer.wrap(copy).asReadOnlyBuffer() : copy;
            case ValueTag.DATE:
                return readDate(bytes, body, to);
            case ValueTag.TIMESTAMP:
                return readInstant(bytes, body, to);
            case ValueTag.REFERENCE:
                requireSize(body, to, Oid.BYTES, tag);
                return Oid.read(bytes, body);
            case ValueTag.LIST:
                return readList(Table.parse(bytes, body, to, false), below(levels), hashed);
            case ValueTag.SET:
                return readSet(Table.parse(bytes, body, to, false), below(levels));
            case ValueTag.MAP:
                return readMap(Table.parse(bytes, body, to, false), below(levels), hashed);
            default:
                throw Table.malformed("a value has the unknown tag " + describe(tag));
        }
    }

    // ------------------------------------------------------------------------------------------ scalars

    /** A two's complement integer in the fewest bytes, none for 0. */
    static long readInteger(byte[] bytes, int from, int to, int tag) {
        int size = to - from;
        if (size == 0) {
            return 0;
        }
        if (size > Long.BYTES || !isMinimal(bytes, from, to)) {
            throw wrong(tag);
        }
        long number = bytes[from];
        for (int at = from + 1; at < to; at++) {
            number = number << 8 | bytes[at] & 0xff;
        }
        return number;
    }

    /** Whether an integer has no byte that could be omitted: 0 has none. */
    private static boolean isMinimal(byte[] bytes, int from, int to) {
        return to - from == 1 ? bytes[from] != 0 : !startsWithSignExtension(bytes, from);
    }

    private static boolean startsWithSignExtension(byte[] bytes, int from) {
        return bytes[from] == 0 && bytes[from + 1] >= 0 || bytes[from] == -1 && bytes[from + 1] < 0;
    }

    static double readDouble(byte[] bytes, int from, int to) {
        requireSize(from, to, Double.BYTES, ValueTag.FLOAT64);
        long bits = BigEndian.readLong(bytes, from);
        double number = Double.longBitsToDouble(bits);
        if (Double.isNaN(number) && bits != Double.doubleToLongBits(Double.NaN)) {
            throw wrong(ValueTag.FLOAT64);
        }
        return number;
    }

    /** The length of the scale in one byte, the scale, the unscaled number. */
    static BigDecimal readDecimal(byte[] bytes, int from, int to) {
        int tag = ValueTag.DECIMAL;
        if (from == to) {
            throw wrong(tag);
        }
        int scaleSize = bytes[from] & 0xff;
        int unscaledAt = from + 1 + scaleSize;
        if (scaleSize > Integer.BYTES || unscaledAt >= to || to - unscaledAt > Limits.DECIMAL) {
            throw wrong(tag);
        }
        int scale = (int) readInteger(bytes, from + 1, unscaledAt, tag);
        if (to - unscaledAt > 1 && startsWithSignExtension(bytes, unscaledAt)) {
            throw wrong(tag);
        }
        return new BigDecimal(new BigInteger(bytes, unscaledAt, to - unscaledAt), scale);
    }

    private static String readText(byte[] bytes, int from, int to) {
        String text = utf8(bytes, from, to);
        if (text == null) {
            throw Table.malformed("a text is not UTF-8");
        }
        return text;
    }

    /** The text with these bytes; null if they are not UTF-8. */
    static String utf8(byte[] bytes, int from, int to) {
        String text = new String(bytes, from, to - from, StandardCharsets.UTF_8);
        // The constructor is fast, and replaces what is malformed by a character that a text rarely has.
        if (text.indexOf(REPLACEMENT) >= 0) {
            try {
                CharBuffer strict = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes, from, to - from));
                return strict.toString();
            } catch (CharacterCodingException malformed) {
                return null;
            }
        }
        return text;
    }

    private static LocalDate readDate(byte[] bytes, int from, int to) {
        long days = readInteger(bytes, from, to, ValueTag.DATE);
        try {
            return LocalDate.ofEpochDay(days);
        } catch (DateTimeException beyond) {
            throw new UnsupportedException(
                    "a record has the date " + days + " days after 1970-01-01, which LocalDate cannot " + "represent",
                    beyond);
        }
    }

    private static Instant readInstant(byte[] bytes, int from, int to) {
        int tag = ValueTag.TIMESTAMP;
        if (to - from <= Long.BYTES) {
            long nanos = readInteger(bytes, from, to, tag);
            return Instant.ofEpochSecond(Math.floorDiv(nanos, 1_000_000_000L), Math.floorMod(nanos, 1_000_000_000L));
        }
        if (to - from > TIMESTAMP_BYTES || !isMinimal(bytes, from, to)) {
            throw wrong(tag);
        }
        BigInteger nanos = new BigInteger(bytes, from, to - from);
        BigInteger[] parts = nanos.divideAndRemainder(NANOS_PER_SECOND);
        boolean borrows = parts[1].signum() < 0;
        BigInteger seconds = borrows ? parts[0].subtract(BigInteger.ONE) : parts[0];
        if (seconds.bitLength() >= Long.SIZE) {
            throw wrong(tag);
        }
        try {
            long remainder = parts[1].longValue() + (borrows ? 1_000_000_000L : 0);
            return Instant.ofEpochSecond(seconds.longValue(), remainder);
        } catch (DateTimeException | ArithmeticException beyond) {
            throw new UnsupportedException(
                    "a record has the time stamp " + seconds + " seconds after 1970-01-01T00:00Z, which "
                            + "Instant cannot represent",
                    beyond);
        }
    }

    // ------------------------------------------------------------------------------------------ lists, sets and maps

    static int below(int levels) {
        if (levels == 0) {
            throw Table.malformed("lists, sets and maps are nested more than " + Limits.NESTING + " deep");
        }
        return levels - 1;
    }

    private static List<Object> readList(Table table, int below, boolean hashed) {
        // The table has at least one byte for each element.
        List<Object> list = new ArrayList<>(table.count);
        for (int index = 0; index < table.count; index++) {
            list.add(decode(table.bytes, table.start(index), table.end(index), below, hashed));
        }
        return BufferCollections.list(list);
    }

    private static Set<Object> readSet(Table table, int below) {
        Set<Object> set = new LinkedHashSet<>();
        for (int index = 0; index < table.count; index++) {
            set.add(decode(table.bytes, table.start(index), table.end(index), below, true));
            requireAscending(table, index, 1);
        }
        return BufferCollections.set(set);
    }

    private static Map<Object, Object> readMap(Table table, int below, boolean hashed) {
        if (table.count % 2 == 1) {
            throw Table.malformed("a key of a map has no value");
        }
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int index = 0; index < table.count; index += 2) {
            Object key = decode(table.bytes, table.start(index), table.end(index), below, true);
            requireAscending(table, index, 2);
            map.put(key, decode(table.bytes, table.start(index + 1), table.end(index + 1), below, hashed));
        }
        return BufferCollections.map(map);
    }

    /** Checks the order of an entry and the one {@code step} before it. Both were decoded, so they are well formed. */
    private static void requireAscending(Table table, int index, int step) {
        int before = index - step;
        if (before >= 0
                && ValueOrder.compare(
                                table.bytes,
                                table.start(before),
                                table.end(before),
                                table.bytes,
                                table.start(index),
                                table.end(index))
                        >= 0) {
            throw Table.malformed("the members of a set or the keys of a map are out of order");
        }
    }

    // ------------------------------------------------------------------------------------------ errors

    private static void requireSize(int from, int to, int size, int tag) {
        if (to - from != size) {
            throw wrong(tag);
        }
    }

    private static CorruptException wrong(int tag) {
        return Table.malformed("a value of tag " + describe(tag) + " is not correctly encoded");
    }

    private static String describe(int tag) {
        return String.format("0x%02x", tag);
    }
}
