package io.mortar;

/**
 * The steps of a query, where they ran, and how many objects each has produced.
 *
 * @param text as text: a line for each step, the last step first
 * @param json as JSON: nested steps
 */
public record Explanation(String text, String json) {
    static Explanation read(MessageReader in) {
        return new Explanation(in.string(), in.string());
    }

    /** Returns the text. */
    @Override
    public String toString() {
        return text;
    }
}
