package io.mortar.jdo.query;

import java.math.BigDecimal;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A floating-point literal of a query. Conditions and arithmetic use the decimal number that is written. A result has
 * the type that the literal has in Java: float with the suffix {@code f}, else double (JDO 3.2, section 14.6.2).
 */
final class WrittenNumber extends BigDecimal {
    private static final long serialVersionUID = 1;

    private static final String NUMBER =
            "(?<![\\w$.:?])(?:\\d+\\.\\d*|\\.\\d+|\\d+(?=[eE]))(?:[eE][+-]?\\d+)?(?![\\w$.])";
    /** A literal without a suffix, or a string of JDOQL, in which a backslash escapes a quote. */
    private static final Pattern IN_JDOQL =
            Pattern.compile("\"(?:[^\"\\\\]|\\\\.)*+\"|'(?:[^'\\\\]|\\\\.)*+'|(" + NUMBER + ')', Pattern.DOTALL);

    /** A literal without a suffix, or a string of JPQL. */
    private static final Pattern IN_JPQL = Pattern.compile("\"[^\"]*+\"|'[^']*+'|(" + NUMBER + ')');

    private final Number value;

    private WrittenNumber(Number value) {
        super(value.toString());
        this.value = value;
    }

    /** The text of the number in Java, which is {@code 1.0E10} and not {@code 1.0E+10}. */
    @Override
    public String toString() {
        return value.toString();
    }

    /** The literal with the other sign. */
    WrittenNumber negative() {
        return new WrittenNumber(
                value instanceof Float ? (Number) (-value.floatValue()) : (Number) (-value.doubleValue()));
    }

    /** The value of a literal. A finite floating-point one becomes the number that is written. */
    static Object read(Object literal) {
        return literal instanceof Number number && Values.isFloating(number) && Double.isFinite(number.doubleValue())
                ? new WrittenNumber(number)
                : literal;
    }

    /** A value of a result: a literal in its Java type, and any other value as it is. */
    static Object toJava(Object value) {
        return value instanceof WrittenNumber literal ? literal.value : value;
    }

    /** A value that is stored: a literal as a decimal number, and any other value as it is. */
    static Object plain(Object value) {
        return value instanceof WrittenNumber literal
                ? new BigDecimal(literal.unscaledValue(), literal.scale())
                : value;
    }

    /**
     * A clause whose floating-point literals without a suffix have the suffix {@code d}; null for null. DataNucleus
     * reads them with the precision of a float.
     */
    static String withSuffixes(String clause, boolean isJpql) {
        if (clause == null) {
            return null;
        }
        StringBuilder text = new StringBuilder();
        Matcher matcher = (isJpql ? IN_JPQL : IN_JDOQL).matcher(clause);
        int end = 0;
        while (matcher.find()) {
            text.append(clause, end, matcher.end());
            end = matcher.end();
            if (matcher.group(1) != null) {
                text.append('d');
            }
        }
        return text.append(clause, end, clause.length()).toString();
    }
}
