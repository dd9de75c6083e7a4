package io.mortar.jdo.query;

import java.sql.Date;
import java.sql.Time;
import java.sql.Timestamp;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * A date of JPQL in the syntax of JDBC, such as <code>{d '2020-12-31'}</code>, which DataNucleus compiles to a string.
 */
final class DateLiteral {
    private static final Pattern FORM = Pattern.compile("\\{(d|ts|t) '([^']*)'}");

    private DateLiteral() {}

    /** The date of a literal; any other literal as it is. */
    static Object read(Object literal) {
        Matcher matcher = literal instanceof String text && text.startsWith("{") ? FORM.matcher(text) : null;
        if (matcher == null || !matcher.matches()) {
            return literal;
        }
        String value = matcher.group(2);
        try {
            return switch (matcher.group(1)) {
                case "d" -> Date.valueOf(value);
                case "t" -> Time.valueOf(value);
                default -> Timestamp.valueOf(value);
            };
        } catch (IllegalArgumentException error) {
            throw new NucleusUserException("not a date or time: " + literal, error);
        }
    }
}
