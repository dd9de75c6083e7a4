package io.mortar.jdo.query;

import java.util.function.DoublePredicate;

/**
 * The comparison of integers with parameters of the types {@code float} and {@code double}: JDO 3.2, section 14.6.2,
 * and Jakarta Persistence 3.1, section 4.6.1, promote numbers as Java does. The integer becomes a number of the
 * floating type, so that several integers can be equal to one parameter: 2^63 - 1 equals {@code 9.223372E18f}.
 *
 * <p>The store compares numbers by their values. So a test of an integer member is translated to one with the integers
 * at which the result of the promoted comparison changes.
 */
final class Promotion {
    /** Integers up to this are floating numbers of their type. */
    private static final double EXACT_FLOATS = 1 << 24;

    private static final double EXACT_DOUBLES = 1L << 53;

    private Promotion() {}

    /** A number that is compared with a parameter, after the promotion; any other value as it is. */
    static Object promoted(Object value, Object parameter) {
        Object number = Values.number(value);
        if (!Values.isInteger(number) || !isPromoting(parameter)) {
            return value;
        }
        long integer = ((Number) number).longValue();
        return parameter instanceof Float ? (Object) (float) integer : (Object) (double) integer;
    }

    /** Whether the promotion to the type of a constant changes the result of some comparison with an integer. */
    static boolean isPromoting(Object constant) {
        return constant instanceof Float number && Float.isFinite(number) && Math.abs(number) >= EXACT_FLOATS
                || constant instanceof Double large && Double.isFinite(large) && Math.abs(large) >= EXACT_DOUBLES;
    }

    /** Integers that satisfy a test: those from the first to the last; none if the first is greater. */
    record Range(long first, long last) {
        boolean isEmpty() {
            return first > last;
        }
    }

    /** The integers that are equal to a constant after the promotion. */
    static Range equal(Object constant) {
        double bound = ((Number) constant).doubleValue();
        boolean isFloat = constant instanceof Float;
        if (promoted(Long.MAX_VALUE, isFloat) < bound || promoted(Long.MIN_VALUE, isFloat) > bound) {
            return new Range(1, 0);
        }
        long first = first(isFloat, number -> number >= bound);
        boolean hasGreater = promoted(Long.MAX_VALUE, isFloat) > bound;
        long last = hasGreater ? first(isFloat, number -> number > bound) - 1 : Long.MAX_VALUE;
        return new Range(first, last);
    }

    /** A test of an integer member that is promoted to the type of a floating constant. */
    static String test(Term left, String operator, Object constant) {
        Range equal = equal(constant);
        if (equal.isEmpty()) {
            boolean isLess = ((Number) constant).doubleValue() > 0;
            boolean isTrue = operator.equals("!=") || operator.startsWith("<") == isLess && !operator.equals("==");
            return isTrue ? left.text() + " != null" : Conditions.NEVER;
        }
        return switch (operator) {
            case "==" -> left.text() + " >= " + equal.first() + " && " + left.text() + " <= " + equal.last();
            case "!=" -> '(' + left.text() + " < " + equal.first() + " || " + left.text() + " > " + equal.last() + ')';
            case "<", ">=" -> left.text() + ' ' + operator + ' ' + equal.first();
            default -> left.text() + ' ' + operator + ' ' + equal.last();
        };
    }

    private static double promoted(long integer, boolean isFloat) {
        return isFloat ? (double) (float) integer : (double) integer;
    }

    /**
     * The least integer whose promoted form satisfies a test, which greater ones satisfy too, and the greatest does.
     */
    private static long first(boolean isFloat, DoublePredicate test) {
        long low = Long.MIN_VALUE;
        long high = Long.MAX_VALUE;
        while (low < high) {
            long middle = (low & high) + ((low ^ high) >> 1);
            if (test.test(promoted(middle, isFloat))) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }
}
