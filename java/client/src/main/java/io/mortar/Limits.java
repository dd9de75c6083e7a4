package io.mortar;

/** Limits of values and objects, as in {@code crates/model/src/limits.rs}. */
final class Limits {
    /** Bytes of a record. */
    static final int RECORD = 16 << 20;
    /** Nested levels of lists, sets and maps. */
    static final int NESTING = 32;
    /** Bytes of the unscaled number of a decimal. */
    static final int DECIMAL = 4096;
    /** Bytes that are read or written at once when a blob is read or written as a stream. */
    static final int PIECE = 1 << 20;

    private Limits() {}

    static TooLargeException recordTooLarge(long bytes) {
        return new TooLargeException("a record is malformed: it has " + bytes + " bytes; " + RECORD + " are allowed");
    }

    static TooLargeException nestedTooDeep() {
        return new TooLargeException("lists, sets and maps are nested deeper than the limit of " + NESTING + " levels");
    }
}
