package io.mortar.jdo.query;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * Repairs clauses of JPQL that the parser of DataNucleus misreads without an error: it ignores {@code SUBSTRING} of a
 * path, and what follows the operator {@code ||}.
 */
final class JpqlText {
    private static final Pattern SUBSTRING = Pattern.compile("\\bSUBSTRING\\s*\\(", Pattern.CASE_INSENSITIVE);
    /**
     * A function whose value is that of its arguments. The parser loses {@code SUBSTRING} of a path, and not of a
     * function.
     */
    private static final String WRAPPER = "COALESCE(";

    private final String text;
    /** Whether a character is in a string. */
    private final boolean[] isQuoted;

    private JpqlText(String text) {
        this.text = text;
        isQuoted = new boolean[text.length()];
        boolean inString = false;
        for (int i = 0; i < text.length(); i++) {
            boolean isQuote = text.charAt(i) == '\'';
            isQuoted[i] = inString || isQuote;
            inString ^= isQuote;
        }
    }

    /** A clause as DataNucleus reads it correctly; null for null. */
    static String repaired(String clause) {
        String text = clause;
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
        return text;
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
}
