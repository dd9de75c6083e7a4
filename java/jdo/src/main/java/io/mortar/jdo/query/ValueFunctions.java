package io.mortar.jdo.query;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.temporal.ChronoField;
import java.time.temporal.IsoFields;
import java.time.temporal.TemporalAccessor;
import java.time.temporal.TemporalField;
import java.time.temporal.TemporalQueries;
import java.time.temporal.TemporalQuery;
import java.util.Calendar;
import java.util.Date;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * Functions of numbers, texts, dates and times for an evaluation in memory: Jakarta Persistence 3.1, section 4.7.2.
 * They have the results and the types that the specification wants, for all types of values; DataNucleus' own functions
 * accept some of them. A function of null is null.
 */
final class ValueFunctions {
    private static final Map<String, TemporalField> FIELDS = Map.of(
            "YEAR", ChronoField.YEAR,
            "QUARTER", IsoFields.QUARTER_OF_YEAR,
            "MONTH", ChronoField.MONTH_OF_YEAR,
            "WEEK", IsoFields.WEEK_OF_WEEK_BASED_YEAR,
            "DAY", ChronoField.DAY_OF_MONTH,
            "HOUR", ChronoField.HOUR_OF_DAY,
            "MINUTE", ChronoField.MINUTE_OF_HOUR,
            "SECOND", ChronoField.SECOND_OF_MINUTE);

    private ValueFunctions() {}

    /** Whether there is a function of values with a name, for a number of arguments. */
    static boolean has(String name, int arguments) {
        return switch (name.toUpperCase(Locale.ROOT)) {
            case "SIGN", "CEILING", "FLOOR", "EXP", "LN", "DATE", "TIME" -> arguments == 1;
            case "POWER", "ROUND" -> arguments == 2;
            default -> arguments == 1 && FIELDS.containsKey(name.toUpperCase(Locale.ROOT));
        };
    }

    /**
     * The value of a function; null if an argument is null.
     *
     * @throws NucleusUserException if an argument is of a type for which the function is not defined
     */
    static Object call(String name, List<Object> arguments) {
        if (arguments.contains(null)) {
            return null;
        }
        String function = name.toUpperCase(Locale.ROOT);
        Object first = arguments.get(0);
        return switch (function) {
            case "SIGN" -> (int) Math.signum((float) Values.order(number(function, first), 0L));
            case "CEILING" -> rounded(number(function, first), 0, RoundingMode.CEILING);
            case "FLOOR" -> rounded(number(function, first), 0, RoundingMode.FLOOR);
            case "ROUND" ->
                rounded(
                        number(function, first),
                        number(function, arguments.get(1)).intValue(),
                        RoundingMode.HALF_UP);
            case "EXP" -> Math.exp(number(function, first).doubleValue());
            case "LN" -> Math.log(number(function, first).doubleValue());
            case "POWER" ->
                Math.pow(
                        number(function, first).doubleValue(),
                        number(function, arguments.get(1)).doubleValue());
            case "DATE" -> part(function, first, TemporalQueries.localDate());
            case "TIME" -> part(function, first, TemporalQueries.localTime());
            default -> field(function, first);
        };
    }

    private static Number number(String function, Object value) {
        if (Values.number(value) instanceof Number number) {
            return number;
        }
        throw new NucleusUserException(function + " of a " + value.getClass().getName() + ", which is not a number");
    }

    /** A number of the same type, rounded to a number of decimal places. */
    private static Number rounded(Number value, int places, RoundingMode mode) {
        if (value instanceof BigDecimal decimal) {
            return decimal.setScale(places, mode);
        }
        if (Values.isFloating(value)) {
            if (!Double.isFinite(value.doubleValue())) {
                return value;
            }
            BigDecimal decimal = new BigDecimal(value.toString()).setScale(places, mode);
            return value instanceof Float ? (Number) decimal.floatValue() : (Number) decimal.doubleValue();
        }
        if (places >= 0) {
            return value;
        }
        BigInteger integer = Values.decimal(value).setScale(places, mode).toBigInteger();
        return value instanceof BigInteger
                ? (Number) integer
                : value instanceof Long ? (Number) integer.longValueExact() : (Number) integer.intValueExact();
    }

    /** A field of a date or a time, such as its year; points in time are those of the time zone of the process. */
    private static Integer field(String name, Object value) {
        try {
            return temporal(name, value).get(FIELDS.get(name));
        } catch (DateTimeException error) {
            throw new NucleusUserException(name + " of a " + value.getClass().getName() + ", which has none", error);
        }
    }

    /** The date or the time of a timestamp. */
    private static Object part(String name, Object value, TemporalQuery<?> part) {
        Object found = temporal(name, value).query(part);
        if (found == null) {
            throw new NucleusUserException(name + " of a " + value.getClass().getName() + ", which has none");
        }
        return found;
    }

    private static TemporalAccessor temporal(String name, Object value) {
        if (value instanceof java.sql.Date date) {
            return date.toLocalDate();
        }
        if (value instanceof java.sql.Time time) {
            return time.toLocalTime();
        }
        if (value instanceof Date date) {
            return LocalDateTime.ofInstant(Instant.ofEpochMilli(date.getTime()), ZoneId.systemDefault());
        }
        if (value instanceof Calendar calendar) {
            return ZonedDateTime.ofInstant(
                    calendar.toInstant(), calendar.getTimeZone().toZoneId());
        }
        if (value instanceof Instant instant) {
            return OffsetDateTime.ofInstant(instant, ZoneId.systemDefault());
        }
        if (value instanceof TemporalAccessor temporal) {
            return temporal;
        }
        throw new NucleusUserException(name + " of a " + value.getClass().getName() + ", which is not a date or time");
    }

    /**
     * A text without certain characters at its ends: TRIM of Jakarta Persistence.
     *
     * @param function {@code trimLeft} or {@code trimRight} for one end, {@code trim} for both
     * @param character the character, a text of one character or a character
     */
    static String trimmed(String text, String function, Object character) {
        String each = String.valueOf(character);
        if (each.length() != 1) {
            throw new NucleusUserException("TRIM needs one character, and '" + each + "' has " + each.length());
        }
        int from = 0;
        int to = text.length();
        while (!function.equals("trimRight") && from < to && text.charAt(from) == each.charAt(0)) {
            from++;
        }
        while (!function.equals("trimLeft") && to > from && text.charAt(to - 1) == each.charAt(0)) {
            to--;
        }
        return text.substring(from, to);
    }
}
