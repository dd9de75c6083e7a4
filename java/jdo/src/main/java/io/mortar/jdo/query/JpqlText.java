package io.mortar.jdo.query;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * Repairs clauses of JPQL that the parser of DataNucleus misreads.
 *
 * <ul>
 *   <li>It ignores {@code SUBSTRING} of a path, and what follows the operator {@code ||}.
 *   <li>It takes the word after a join without a variable for the variable, so that {@code LEFT JOIN FETCH a.b LEFT
 *       JOIN} has an inner join.
 *   <li>It takes a comparison with a literal {@code NULL}, which is never true, for {@code IS NULL}.
 *   <li>It ends a string at a doubled quote.
 *   <li>It does not know {@code EXTRACT} of {@code DATE} and {@code TIME}.
 * </ul>
 */
final class JpqlText {
    private static final Pattern SUBSTRING = Pattern.compile("\\bSUBSTRING\\s*\\(", Pattern.CASE_INSENSITIVE);
    /**
     * A function whose value is that of its arguments. The parser loses {@code SUBSTRING} of a path, and not of a
     * function.
     */
    private static final String WRAPPER = "COALESCE(";
    /** A join without a variable, with another one behind it. */
    private static final Pattern UNNAMED_JOIN = Pattern.compile(
            "\\bJOIN\\s+(FETCH\\s+)?[\\w$]++(\\s*\\.\\s*[\\w$]++)*+(?=\\s+(LEFT|RIGHT|INNER|JOIN|ON)\\b)",
            Pattern.CASE_INSENSITIVE);
    /** The end of a text behind which the values of a list follow. */
    private static final Pattern OPENS_LIST = Pattern.compile("\\bIN\\s*\\($", Pattern.CASE_INSENSITIVE);

    private static final Pattern PART_OF_TIMESTAMP =
            Pattern.compile("\\bEXTRACT\\s*\\(\\s*(DATE|TIME)\\s+FROM\\s", Pattern.CASE_INSENSITIVE);

    private static final Pattern NULL = Pattern.compile("\\bNULL\\b", Pattern.CASE_INSENSITIVE);
    /** A value of null that the parser does not take for the literal. */
    private static final String UNKNOWN = "NULLIF(1, 1)";

    private final String text;
    /** Whether a character is in a string. */
    private final boolean[] isQuoted;

    private JpqlText(String text) {
        this.text = text;
        isQuoted = new boolean[text.length()];
        char quote = 0;
        for (int i = 0; i < text.length(); i++) {
            char character = text.charAt(i);
            boolean opens = quote == 0 && (character == '\'' || character == '"');
            isQuoted[i] = opens || quote != 0;
            quote = opens ? character : character == quote ? 0 : quote;
        }
    }

    /** The entities and joins as DataNucleus reads them correctly; null for null. */
    static String repairedFrom(String clause) {
        String text = repaired(clause);
        int from = 0;
        for (int number = 1; text != null && from >= 0; number++) {
            Matcher found = UNNAMED_JOIN.matcher(text);
            from = new JpqlText(text).next(found, from);
            if (from >= 0) {
                text = text.substring(0, found.end()) + " mortar_join_" + number + text.substring(found.end());
                from = found.end();
            }
        }
        return text;
    }

    /** A clause other than an assignment as DataNucleus reads it correctly; null for null. */
    static String repaired(String clause) {
        return clause == null ? null : repairedUpdate(new JpqlText(clause).withUnknowns());
    }

    /** Assignments as DataNucleus reads them correctly; null for null. */
    static String repairedUpdate(String clause) {
        String text = clause == null ? null : new JpqlText(clause).withParts();
        for (int from = 0; text != null && from >= 0; ) {
            JpqlText current = new JpqlText(text);
            current.refuseConcatenation();
            Matcher found = SUBSTRING.matcher(text);
            from = current.next(found, from);
            if (from >= 0) {
                text = current.wrapped(found.end());
                from++;
            }
        }
        return text == null ? null : WrittenNumber.withSuffixes(new JpqlText(text).withoutDoubledQuotes(), true);
    }

    private void refuseConcatenation() {
        for (int at = text.indexOf("||"); at >= 0; at = text.indexOf("||", at + 1)) {
            if (!isQuoted[at]) {
                throw new NucleusUserException("|| is not an operator of JPQL 3.1; CONCAT joins strings: " + text);
            }
        }
    }

    private int next(Matcher matcher, int from) {
        for (int at = from; matcher.find(at); at = matcher.end()) {
            if (!isQuoted[matcher.start()]) {
                return matcher.start();
            }
        }
        return -1;
    }

    /**
     * The text with the first argument of a function, whose arguments begin at an offset, in a form in which it is not
     * lost.
     */
    private String wrapped(int arguments) {
        int depth = 0;
        for (int at = arguments; at < text.length(); at++) {
            char character = isQuoted[at] ? 'x' : text.charAt(at);
            if (depth == 0 && character == ',') {
                String first = text.substring(arguments, at).strip();
                return first.startsWith(WRAPPER)
                        ? text
                        : text.substring(0, arguments) + WRAPPER + first + ", " + first + ')' + text.substring(at);
            }
            depth += character == '(' ? 1 : character == ')' ? -1 : 0;
        }
        return text;
    }

    /** The text with a value of null in place of the literals that are compared. */
    private String withUnknowns() {
        StringBuilder result = new StringBuilder();
        Matcher found = NULL.matcher(text);
        int end = 0;
        for (int at = next(found, 0); at >= 0; at = next(found, found.end())) {
            if (isCompared(at) || isListed(at, found.end())) {
                result.append(text, end, at).append(UNKNOWN);
                end = found.end();
            }
        }
        return result.append(text.substring(end)).toString();
    }

    /** The text with functions by their names for the date and the time of a timestamp. */
    private String withParts() {
        StringBuilder result = new StringBuilder();
        Matcher found = PART_OF_TIMESTAMP.matcher(text);
        int end = 0;
        for (int at = next(found, 0); at >= 0; at = next(found, end)) {
            String part = found.group(1).toUpperCase(Locale.ROOT);
            result.append(text, end, at).append("FUNCTION('").append(part).append("', ");
            end = found.end();
        }
        return result.append(text.substring(end)).toString();
    }

    private boolean isCompared(int at) {
        String before = text.substring(0, at).stripTrailing();
        return before.endsWith("=") || before.endsWith("<") || before.endsWith(">");
    }

    /** Whether what is from one offset to another is one of the values after {@code IN}. */
    private boolean isListed(int start, int end) {
        String after = text.substring(end).stripLeading();
        String before = text.substring(0, start).stripTrailing();
        if (!(after.startsWith(",") || after.startsWith(")")) || !(before.endsWith(",") || before.endsWith("("))) {
            return false;
        }
        int depth = 0;
        int at = start - 1;
        for (; at >= 0 && depth >= 0; at--) {
            char character = isQuoted[at] ? 'x' : text.charAt(at);
            depth += character == ')' ? 1 : character == '(' ? -1 : 0;
        }
        return depth < 0 && OPENS_LIST.matcher(text.substring(0, at + 2)).find();
    }

    /** The text with other quotes around strings with quotes in them. */
    private String withoutDoubledQuotes() {
        StringBuilder result = new StringBuilder();
        int end = 0;
        for (int at = 0; at < text.length(); at = Math.max(at + 1, end)) {
            if (!isQuoted[at]) {
                continue;
            }
            int close = closing(at);
            String string = text.substring(at + 1, close);
            if (text.charAt(at) == '\'' && string.contains("''")) {
                if (string.contains("\"")) {
                    throw new NucleusUserException(
                            "a string with both kinds of quotes is not supported; use a parameter: " + text);
                }
                result.append(text, end, at)
                        .append('"')
                        .append(string.replace("''", "'"))
                        .append('"');
            } else {
                result.append(text, end, close + 1);
            }
            end = close + 1;
        }
        return result.append(text.substring(end)).toString();
    }

    /** Where a string that begins at an offset ends. Two single quotes do not end it. */
    private int closing(int start) {
        char quote = text.charAt(start);
        for (int at = start + 1; at < text.length(); at++) {
            if (text.charAt(at) == quote) {
                boolean isDoubled = quote == '\'' && at + 1 < text.length() && text.charAt(at + 1) == quote;
                if (!isDoubled) {
                    return at;
                }
                at++;
            }
        }
        throw new NucleusUserException("a string has no end: " + text);
    }
}
