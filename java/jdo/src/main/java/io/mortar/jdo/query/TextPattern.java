package io.mortar.jdo.query;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.datanucleus.exceptions.NucleusUserException;

/** A pattern of JPQL's LIKE or a regular expression of JDOQL's matches that consists of texts and gaps. */
final class TextPattern {
    /** The texts between the gaps; the first and the last may be empty. */
    private final List<String> texts;

    private TextPattern(List<String> texts) {
        this.texts = texts;
    }

    /** A pattern with `%` for any text and `_` for one character. */
    static TextPattern ofLike(String pattern, char escape) {
        List<String> texts = new ArrayList<>();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < pattern.length(); i++) {
            char character = pattern.charAt(i);
            if (character == escape && i + 1 < pattern.length()) {
                text.append(pattern.charAt(++i));
            } else if (character == '%') {
                texts.add(text.toString());
                text.setLength(0);
            } else if (character == '_') {
                throw new Untranslatable("a pattern stands for a single character");
            } else {
                text.append(character);
            }
        }
        texts.add(text.toString());
        return new TextPattern(texts);
    }

    /** A regular expression of texts and `.*`. */
    static TextPattern ofRegularExpression(String expression) {
        List<String> texts = new ArrayList<>();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < expression.length(); i++) {
            char character = expression.charAt(i);
            if (character == '.' && i + 1 < expression.length() && expression.charAt(i + 1) == '*') {
                i++;
                texts.add(text.toString());
                text.setLength(0);
            } else if (character == '\\'
                    && i + 1 < expression.length()
                    && !Character.isLetterOrDigit(expression.charAt(i + 1))) {
                text.append(expression.charAt(++i));
            } else if ("\\.[]{}()*+?^$|".indexOf(character) >= 0) {
                throw new Untranslatable("a regular expression is more than texts with .* between them");
            } else {
                text.append(character);
            }
        }
        texts.add(text.toString());
        return new TextPattern(texts);
    }

    /** The character that a pattern of LIKE has before one that stands for itself; null for the default. */
    static char escape(Object character) {
        String text = character == null ? "\\" : character.toString();
        if (text.length() != 1) {
            throw new NucleusUserException("ESCAPE needs one character, and '" + text + "' has " + text.length());
        }
        return text.charAt(0);
    }

    /** Whether a text has the form of a pattern of LIKE. */
    static boolean isLike(String text, String pattern, char escape) {
        StringBuilder expression = new StringBuilder();
        int[] characters = pattern.codePoints().toArray();
        for (int i = 0; i < characters.length; i++) {
            boolean isEscaped = characters[i] == escape && i + 1 < characters.length;
            int character = characters[isEscaped ? ++i : i];
            expression.append(
                    !isEscaped && character == '%'
                            ? ".*"
                            : !isEscaped && character == '_' ? "." : Pattern.quote(Character.toString(character)));
        }
        return matches(text, expression.toString());
    }

    /** Whether a text has the form of a regular expression, in which {@code .} is any character. */
    static boolean matches(String text, String expression) {
        try {
            return Pattern.compile(expression, Pattern.DOTALL).matcher(text).matches();
        } catch (PatternSyntaxException error) {
            throw new NucleusUserException("not a regular expression: " + error.getMessage(), error);
        }
    }

    /** The test whether a string has this form. */
    String test(Term value, Operands operands) {
        if (!value.isText() || value.isConstant()) {
            throw new Untranslatable("a pattern is applied to something that is not a string");
        }
        String first = texts.get(0);
        String last = texts.get(texts.size() - 1);
        if (texts.size() == 1) {
            return value.text() + " == " + operands.parameters().string(first);
        }
        if (texts.size() > 3 || texts.size() == 3 && !(first.isEmpty() && last.isEmpty())) {
            throw new Untranslatable("a pattern has several gaps");
        }
        List<String> tests = new ArrayList<>();
        if (texts.size() == 3) {
            tests.add(value.text() + ".contains(" + operands.parameters().string(texts.get(1)) + ')');
        } else {
            if (!first.isEmpty()) {
                tests.add(value.text() + ".startsWith(" + operands.parameters().string(first) + ')');
            }
            if (!last.isEmpty()) {
                tests.add(value.text() + ".endsWith(" + operands.parameters().string(last) + ')');
            }
            if (!first.isEmpty() && !last.isEmpty()) {
                int characters = first.codePointCount(0, first.length()) + last.codePointCount(0, last.length());
                tests.add(value.text() + ".length() >= " + characters);
            }
        }
        return tests.isEmpty() ? value.text() + " != null" : String.join(" && ", tests);
    }
}
