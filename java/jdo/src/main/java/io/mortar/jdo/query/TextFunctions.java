package io.mortar.jdo.query;

import java.util.List;

/**
 * The functions of texts in memory for which those of DataNucleus fail or differ from the store. In capital letters
 * they are those of Jakarta Persistence, whose positions begin with 1: see {@link CriteriaCheck}.
 */
final class TextFunctions {
    static final String LOCATE = "INDEXOF";
    static final String SUBSTRING = "SUBSTRING";

    private TextFunctions() {}

    /** Whether there is a function with a name, for a number of arguments. */
    static boolean has(String name, int arguments) {
        return switch (name) {
            case "length" -> arguments == 0;
            case "substring", "indexOf", "startsWith", "matches", LOCATE, SUBSTRING -> arguments == 1 || arguments == 2;
            case "charAt", "endsWith", "contains", "trim", "trimLeft", "trimRight" -> arguments == 1;
            default -> false;
        };
    }

    /** The result of a function whose arguments are not null. */
    static Object call(String text, String name, List<Object> arguments, boolean isJpql) {
        Object second = arguments.size() < 2 ? null : arguments.get(1);
        return switch (name) {
            case "length" -> text.length();
            case "substring" -> {
                int from = position(text, arguments.get(0));
                yield text.substring(from, second == null ? text.length() : Math.max(from, position(text, second)));
            }
            case SUBSTRING -> {
                long from = ((Number) arguments.get(0)).longValue() - 1;
                int start = position(text, from);
                int end = second == null ? text.length() : position(text, from + ((Number) second).longValue());
                yield text.substring(start, Math.max(start, end));
            }
            case LOCATE -> {
                int start = second == null ? 0 : position(text, ((Number) second).longValue() - 1);
                yield text.indexOf(arguments.get(0).toString(), start) + 1;
            }
            case "charAt" -> {
                int at = ((Number) arguments.get(0)).intValue();
                yield at < 0 || at >= text.length() ? Paths.NOTHING : String.valueOf(text.charAt(at));
            }
            case "indexOf" -> text.indexOf(arguments.get(0).toString(), second == null ? 0 : position(text, second));
            case "startsWith" ->
                text.startsWith(arguments.get(0).toString(), second == null ? 0 : ((Number) second).intValue());
            case "endsWith" -> text.endsWith(arguments.get(0).toString());
            case "contains" -> text.contains(arguments.get(0).toString());
            case "matches" ->
                isJpql
                        ? TextPattern.isLike(text, arguments.get(0).toString(), TextPattern.escape(second))
                        : TextPattern.matches(text, arguments.get(0).toString());
            default -> ValueFunctions.trimmed(text, name, arguments.get(0));
        };
    }

    /** A position in a text; the nearest one for a number outside of it. */
    private static int position(String text, Object number) {
        return (int) Math.max(0, Math.min(text.length(), ((Number) number).longValue()));
    }
}
