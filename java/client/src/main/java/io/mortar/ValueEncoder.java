package io.mortar;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Writes values as records and messages contain them ({@code docs/format.md}, "Records"). A value has one encoding:
 * equal values have equal bytes.
 */
final class ValueEncoder {
    /** The bits of the only encoded NaN. */
    private static final long NAN = 0x7ff8_0000_0000_0000L;

    private static final BigInteger NANOS_PER_SECOND = BigInteger.valueOf(1_000_000_000);

    private ValueEncoder() {}

    /**
     * The encoding of a value.
     *
     * @throws InvalidRequestException for an object of a class that is not a value, a text with half of a surrogate
     *     pair, and a map with two keys that are one value
     * @throws TooLargeException beyond the limits of records
     */
    static byte[] encode(Object value) {
        EncodingBuffer out = new EncodingBuffer(32);
        encode(value, out, Limits.NESTING);
        return out.toByteArray();
    }

    /** Appends the encoding of a value. */
    static void encode(Object value, EncodingBuffer out) {
        encode(value, out, Limits.NESTING);
    }

    /** Appends a value with at most {@code levels} nested lists, sets and maps. */
    private static void encode(Object value, EncodingBuffer out, int levels) {
        if (value == null) {
            out.u8(ValueTag.NULL);
        } else if (value instanceof String text) {
            putText(text, out);
        } else if (value instanceof Long
                || value instanceof Integer
                || value instanceof Short
                || value instanceof Byte) {
            out.u8(ValueTag.INT64);
            putInteger(((Number) value).longValue(), out);
        } else if (value instanceof Boolean bool) {
            out.u8(bool ? ValueTag.TRUE : ValueTag.FALSE);
        } else if (value instanceof Oid oid) {
            out.u8(ValueTag.REFERENCE);
            oid.write(out);
        } else if (value instanceof Double || value instanceof Float) {
            double number = ((Number) value).doubleValue();
            out.u8(ValueTag.FLOAT64);
            out.u64(Double.isNaN(number) ? NAN : Double.doubleToRawLongBits(number));
        } else if (value instanceof BigDecimal decimal) {
            putDecimal(decimal, out);
        } else if (value instanceof byte[] bytes) {
            out.u8(ValueTag.BYTES);
            out.write(bytes);
        } else if (value instanceof ByteBuffer buffer) {
            out.u8(ValueTag.BYTES);
            putBuffer(buffer, out);
        } else if (value instanceof LocalDate date) {
            out.u8(ValueTag.DATE);
            putInteger(date.toEpochDay(), out);
        } else if (value instanceof Instant moment) {
            out.u8(ValueTag.TIMESTAMP);
            putInstant(moment, out);
        } else if (value instanceof List<?> list) {
            putList(list, out, below(levels));
        } else if (value instanceof Set<?> set) {
            putSet(set, out, below(levels));
        } else if (value instanceof Map<?, ?> map) {
            putMap(map, out, below(levels));
        } else {
            throw new InvalidRequestException(
                    "an object of " + value.getClass().getName() + " is not a value; values are null, Boolean, Long, "
                            + "Double, BigDecimal, String, byte[], LocalDate, Instant, Oid, List, Set and Map");
        }
    }

    // ------------------------------------------------------------------------------------------ scalars

    private static void putText(String text, EncodingBuffer out) {
        out.u8(ValueTag.STRING);
        out.write(utf8(text));
    }

    /** The bytes of a text. {@link String#getBytes} would replace half of a surrogate pair silently. */
    static byte[] utf8(String text) {
        for (int index = 0; index < text.length(); index++) {
            char unit = text.charAt(index);
            if (Character.isSurrogate(unit)) {
                boolean paired = Character.isHighSurrogate(unit)
                        && index + 1 < text.length()
                        && Character.isLowSurrogate(text.charAt(index + 1));
                if (!paired) {
                    throw new InvalidRequestException(
                            "a text has half of a surrogate pair at index " + index + ", which no Unicode text has");
                }
                index++;
            }
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Appends a two's complement integer in the fewest bytes, none for 0. */
    private static void putInteger(long number, EncodingBuffer out) {
        for (int shift = 8 * (integerSize(number) - 1); shift >= 0; shift -= 8) {
            out.u8((int) (number >> shift));
        }
    }

    private static int integerSize(long number) {
        return number == 0 ? 0 : (64 - Long.numberOfLeadingZeros(number ^ number >> 63)) / 8 + 1;
    }

    private static void putDecimal(BigDecimal decimal, EncodingBuffer out) {
        byte[] unscaled = decimal.unscaledValue().toByteArray();
        if (unscaled.length > Limits.DECIMAL) {
            throw new TooLargeException(
                    "a decimal has " + unscaled.length + " bytes of digits; the limit is " + Limits.DECIMAL);
        }
        out.u8(ValueTag.DECIMAL);
        out.u8(integerSize(decimal.scale()));
        putInteger(decimal.scale(), out);
        out.write(unscaled);
    }

    private static void putBuffer(ByteBuffer buffer, EncodingBuffer out) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        out.write(bytes);
    }

    private static void putInstant(Instant moment, EncodingBuffer out) {
        // 64 bits suffice for the years 1678 to 2261.
        if (Math.abs(moment.getEpochSecond()) < Long.MAX_VALUE / 1_000_000_000) {
            putInteger(moment.getEpochSecond() * 1_000_000_000 + moment.getNano(), out);
        } else {
            BigInteger nanos = BigInteger.valueOf(moment.getEpochSecond()).multiply(NANOS_PER_SECOND);
            out.write(nanos.add(BigInteger.valueOf(moment.getNano())).toByteArray());
        }
    }

    // ------------------------------------------------------------------------------------------ lists, sets and maps

    private static int below(int levels) {
        if (levels == 0) {
            throw Limits.nestedTooDeep();
        }
        return levels - 1;
    }

    private static void putList(List<?> list, EncodingBuffer out, int below) {
        out.u8(ValueTag.LIST);
        Entries entries = new Entries(out, list.size());
        for (Object element : list) {
            encode(element, out, below);
            entries.end();
        }
        entries.insertHeader();
    }

    /**
     * Values in a buffer of their own: {@code bytes[from..to]} is a member of a set, or a key, whose value ends at
     * {@code end}.
     */
    private record Encoded(int from, int to, int end) {}

    private static void putSet(Set<?> set, EncodingBuffer out, int below) {
        EncodingBuffer members = new EncodingBuffer(256);
        List<Encoded> sorted = new ArrayList<>(set.size());
        for (Object member : set) {
            int from = members.length();
            encode(member, members, below);
            check(members.length());
            sorted.add(new Encoded(from, members.length(), members.length()));
        }
        sort(sorted, members);
        out.u8(ValueTag.SET);
        Entries entries = new Entries(out, sorted.size());
        Encoded before = null;
        for (Encoded member : sorted) {
            // Different objects can be one value: Integer 1 and Long 1.
            if (before == null || !isSame(members, before, member)) {
                out.write(members.array(), member.from, member.to - member.from);
                entries.end();
            }
            before = member;
        }
        entries.insertHeader();
    }

    private static void putMap(Map<?, ?> map, EncodingBuffer out, int below) {
        EncodingBuffer pairs = new EncodingBuffer(256);
        List<Encoded> sorted = new ArrayList<>(map.size());
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            int from = pairs.length();
            encode(entry.getKey(), pairs, below);
            int to = pairs.length();
            encode(entry.getValue(), pairs, below);
            check(pairs.length());
            sorted.add(new Encoded(from, to, pairs.length()));
        }
        sort(sorted, pairs);
        out.u8(ValueTag.MAP);
        Entries entries = new Entries(out, 2 * sorted.size());
        Encoded before = null;
        for (Encoded entry : sorted) {
            if (before != null && isSame(pairs, before, entry)) {
                throw new InvalidRequestException(
                        "a map has two keys that are one value, such as Integer 1 and Long 1");
            }
            out.write(pairs.array(), entry.from, entry.to - entry.from);
            entries.end();
            out.write(pairs.array(), entry.to, entry.end - entry.to);
            entries.end();
            before = entry;
        }
        entries.insertHeader();
    }

    private static void sort(List<Encoded> encoded, EncodingBuffer in) {
        byte[] bytes = in.array();
        encoded.sort((a, b) -> ValueOrder.compare(bytes, a.from, a.to, bytes, b.from, b.to));
    }

    private static boolean isSame(EncodingBuffer in, Encoded a, Encoded b) {
        return Arrays.equals(in.array(), a.from, a.to, in.array(), b.from, b.to);
    }

    private static void check(int bytes) {
        if (bytes > Limits.RECORD) {
            throw Limits.recordTooLarge(bytes);
        }
    }

    /** The entries of a table while they are written. */
    private static final class Entries {
        private final EncodingBuffer out;
        private final int start;
        private int[] ends;
        private int count;

        Entries(EncodingBuffer out, int expected) {
            this.out = out;
            start = out.length();
            ends = new int[expected];
        }

        /** Ends an entry. */
        void end() {
            int end = out.length() - start;
            check(end);
            if (count == ends.length) {
                ends = Arrays.copyOf(ends, 2 * count + 8);
            }
            ends[count++] = end;
        }

        /** The size of the header is known only now, so the values are moved once for each level. */
        void insertHeader() {
            int size = Table.headerSize(null, ends, count);
            out.insertGap(start, size);
            Table.writeHeader(null, ends, count, out.array(), start);
        }
    }
}
