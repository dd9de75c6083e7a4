package io.mortar;

import java.math.BigDecimal;
import java.util.Arrays;

/**
 * The order of encoded values, which is that of the members of sets and of the keys of maps
 * ({@code crates/model/src/order.rs}).
 *
 * <p>Values order by family: null, bool, numbers, string, bytes, date, time stamp, reference, list, set, map. Numbers
 * order by their exact value whatever their types; equal numbers order as int64, float64, decimal, and -0.0 before 0.0,
 * a lower scale before a higher one. NaN is above all other numbers. Strings order by code point, and so do their
 * bytes. Lists, sets and maps order by their first difference. Only values with equal encodings are equal.
 */
final class ValueOrder {
    private ValueOrder() {}

    /** Compares the values that are encoded in two ranges, which are well formed. */
    static int compare(byte[] a, int aFrom, int aTo, byte[] b, int bFrom, int bTo) {
        int aTag = a[aFrom];
        int bTag = b[bFrom];
        int families = Integer.compare(family(aTag), family(bTag));
        if (families != 0) {
            return families;
        }
        int aBody = aFrom + 1;
        int bBody = bFrom + 1;
        return switch (aTag) {
            case ValueTag.NULL -> 0;
            case ValueTag.FALSE, ValueTag.TRUE -> Integer.compare(aTag, bTag);
            case ValueTag.INT64, ValueTag.FLOAT64, ValueTag.DECIMAL ->
                compareNumbers(number(a, aFrom, aTo), number(b, bFrom, bTo));
            case ValueTag.DATE ->
                Long.compare(
                        ValueDecoder.readInteger(a, aBody, aTo, aTag), ValueDecoder.readInteger(b, bBody, bTo, bTag));
            case ValueTag.TIMESTAMP -> compareIntegers(a, aBody, aTo, b, bBody, bTo);
            case ValueTag.LIST, ValueTag.SET, ValueTag.MAP ->
                compareTables(Table.parse(a, aBody, aTo, false), Table.parse(b, bBody, bTo, false));
            default -> Arrays.compareUnsigned(a, aBody, aTo, b, bBody, bTo);
        };
    }

    private static int family(int tag) {
        return switch (tag) {
            case ValueTag.TRUE -> ValueTag.FALSE;
            case ValueTag.FLOAT64, ValueTag.DECIMAL -> ValueTag.INT64;
            default -> tag;
        };
    }

    /** Compares two's complement integers in the fewest bytes: a longer one has a larger magnitude. */
    private static int compareIntegers(byte[] a, int aFrom, int aTo, byte[] b, int bFrom, int bTo) {
        boolean aNegative = aTo > aFrom && a[aFrom] < 0;
        boolean bNegative = bTo > bFrom && b[bFrom] < 0;
        if (aNegative != bNegative) {
            return aNegative ? -1 : 1;
        }
        int sizes = Integer.compare(aTo - aFrom, bTo - bFrom);
        if (sizes != 0) {
            return aNegative ? -sizes : sizes;
        }
        return Arrays.compareUnsigned(a, aFrom, aTo, b, bFrom, bTo);
    }

    private static int compareTables(Table a, Table b) {
        for (int index = 0; index < Math.min(a.count, b.count); index++) {
            int order = compare(a.bytes, a.start(index), a.end(index), b.bytes, b.start(index), b.end(index));
            if (order != 0) {
                return order;
            }
        }
        return Integer.compare(a.count, b.count);
    }

    // ------------------------------------------------------------------------------------------ numbers

    private static Number number(byte[] bytes, int from, int to) {
        return switch (bytes[from]) {
            case ValueTag.INT64 -> ValueDecoder.readInteger(bytes, from + 1, to, ValueTag.INT64);
            case ValueTag.FLOAT64 -> ValueDecoder.readDouble(bytes, from + 1, to);
            default -> ValueDecoder.readDecimal(bytes, from + 1, to);
        };
    }

    private static int compareNumbers(Number a, Number b) {
        if (a instanceof Long x && b instanceof Long y) {
            return x.compareTo(y);
        }
        if (a instanceof Double x && b instanceof Double y) {
            // -0.0 is below 0.0, and the only NaN above all others.
            return x.compareTo(y);
        }
        int order = compareExactly(a, b);
        if (order != 0) {
            return order;
        }
        return a instanceof BigDecimal x && b instanceof BigDecimal y
                ? Integer.compare(x.scale(), y.scale())
                : Integer.compare(typeOrder(a), typeOrder(b));
    }

    private static int compareExactly(Number a, Number b) {
        double aLimit = infinity(a);
        double bLimit = infinity(b);
        if (aLimit != 0 || bLimit != 0) {
            return Double.compare(aLimit, bLimit);
        }
        return exact(a).compareTo(exact(b));
    }

    /** NaN or an infinity, if the number is one; otherwise 0, which is between the infinities. */
    private static double infinity(Number number) {
        return number instanceof Double value && !Double.isFinite(value) ? value : 0;
    }

    private static BigDecimal exact(Number number) {
        if (number instanceof BigDecimal decimal) {
            return decimal;
        }
        return number instanceof Double value ? new BigDecimal(value) : BigDecimal.valueOf(number.longValue());
    }

    private static int typeOrder(Number number) {
        return number instanceof Long ? 0 : number instanceof Double ? 1 : 2;
    }
}
