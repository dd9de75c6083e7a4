package io.mortar.jukebox.model;

/** The part of a list that a page asks for. */
public record Slice(int offset, int limit) {
    /** The most elements of a page. */
    public static final int LIMIT = 200;

    private static final int LAST_OFFSET = 1_000_000;

    public Slice {
        if (offset < 0 || offset > LAST_OFFSET || limit < 1 || limit > LIMIT) {
            throw new Refusal(
                    Refusal.Reason.INVALID, "a page has 1 to " + LIMIT + " elements and begins at 0 to " + LAST_OFFSET);
        }
    }
}
