package io.mortar.jdo.query;

import io.mortar.jdo.mapping.Containers;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.Calendar;
import java.util.Date;
import java.util.Objects;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * Compares values in memory: numbers of all types by their value, characters with strings and numbers, enumerations
 * with their names and ordinals, and dates of all types as points in time in the time zone of the process.
 */
final class Values {
    private Values() {}

    /** Whether two values are equal. Stored objects are if they have the same identity. */
    static boolean isSame(Object left, Object right) {
        if (left instanceof Number && right instanceof Number) {
            return order(left, right) == 0;
        }
        if (left instanceof Persistable first
                && right instanceof Persistable second
                && (isStored(first) || isStored(second))) {
            return left == right || Objects.equals(first.dnGetObjectId(), second.dnGetObjectId());
        }
        Object one = aligned(left, right);
        Object other = aligned(right, left);
        return one instanceof Number && other instanceof Number
                ? order(one, other) == 0
                : Objects.deepEquals(one, other);
    }

    /** Whether an object has an identity: it is neither transient nor embedded. */
    private static boolean isStored(Persistable object) {
        return object.dnGetObjectId() != null;
    }

    /** Compares two values that are not null. Constants of enumerations are in the order of their names. */
    static int order(Object left, Object right) {
        if (left instanceof Enum<?> first && right instanceof Enum<?> second) {
            return first.name().compareTo(second.name());
        }
        Object one = aligned(left, right);
        Object other = aligned(right, left);
        if (one instanceof Number first && other instanceof Number second) {
            boolean isExact = isFinite(first) && isFinite(second) && !(isFloating(first) && isFloating(second));
            return isExact
                    ? decimal(first).compareTo(decimal(second))
                    : first.doubleValue() == second.doubleValue()
                            ? 0
                            : Double.compare(first.doubleValue(), second.doubleValue());
        }
        try {
            return ((Comparable<Object>) one).compareTo(other);
        } catch (ClassCastException error) {
            throw new NucleusUserException("a " + left.getClass().getName() + " is compared with a "
                    + right.getClass().getName());
        }
    }

    /** A value in the form in which it is compared with another one. */
    private static Object aligned(Object value, Object other) {
        if (value instanceof Character character) {
            return other instanceof Number ? (Object) (long) character : value.toString();
        }
        if (value instanceof Enum<?> constant) {
            return other instanceof String
                    ? constant.name()
                    : other instanceof Number ? (Object) constant.ordinal() : value;
        }
        boolean isOtherType = other != null && value != null && value.getClass() != other.getClass();
        Instant instant = isOtherType && instant(other) != null ? instant(value) : null;
        return instant != null ? instant : plain(value);
    }

    /** A character as the number that it is; another value stays as it is. */
    static Object number(Object value) {
        return value instanceof Character character ? (Object) (long) character : value;
    }

    /** The point in time that a value is; null for another value. */
    private static Instant instant(Object value) {
        if (value instanceof Date date) {
            return value instanceof java.sql.Timestamp timestamp
                    ? timestamp.toInstant()
                    : Instant.ofEpochMilli(date.getTime());
        }
        if (value instanceof LocalDate date) {
            return date.atStartOfDay(ZoneId.systemDefault()).toInstant();
        }
        if (value instanceof LocalDateTime time) {
            return time.atZone(ZoneId.systemDefault()).toInstant();
        }
        return value instanceof Calendar calendar
                ? calendar.toInstant()
                : value instanceof ZonedDateTime zoned
                        ? zoned.toInstant()
                        : value instanceof OffsetDateTime offset
                                ? offset.toInstant()
                                : value instanceof Instant instant ? instant : null;
    }

    /**
     * A value with a hash: two that are {@linkplain #isSame the same} have equal ones, if they are of one type or
     * numbers.
     */
    static Object hashable(Object value) {
        if (value instanceof Persistable object && isStored(object)) {
            return object.dnGetObjectId();
        }
        if (!(value instanceof Number number)) {
            return plain(value);
        }
        double approximate = number.doubleValue();
        return Double.isFinite(approximate) ? decimal(number).stripTrailingZeros() : (Object) approximate;
    }

    /**
     * A value with the equality by which the store groups: that of numbers by their value, and of arrays by elements.
     */
    static Object groupKey(Object value) {
        return value != null && value.getClass().isArray() ? Containers.elements(value) : hashable(value);
    }

    static Object plain(Object value) {
        return value instanceof Character || value instanceof StringBuilder ? value.toString() : value;
    }

    /** Whether a value is an integer of a primitive type. */
    static boolean isInteger(Object value) {
        return value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte;
    }

    private static boolean isFinite(Number number) {
        return !(number instanceof Double || number instanceof Float) || Double.isFinite(number.doubleValue());
    }

    static BigDecimal decimal(Number number) {
        return number instanceof BigDecimal decimal
                ? decimal
                : number instanceof BigInteger integer ? new BigDecimal(integer) : new BigDecimal(number.toString());
    }

    static boolean isFloating(Number number) {
        return number instanceof Double || number instanceof Float;
    }
}
