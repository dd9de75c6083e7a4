package io.mortar.jdo.mapping;

import io.mortar.FieldType;

/**
 * A field of a Mortar class that stores a member of a Java class, or a part of one.
 *
 * <p>Its number in records is known once the class is in the catalogue; see {@link StoreSchema}.
 */
public final class Column {
    private static final int UNKNOWN = -1;

    private final String name;
    private final FieldType type;
    /** The value of records that lack the field. A column with one is never null. */
    private final Object initial;
    /** Whether the column refers to a blob that is deleted with its object. */
    private final boolean isContent;

    private volatile int number = UNKNOWN;

    private Column(String name, FieldType type, Object initial, boolean isContent) {
        this.name = name;
        this.type = type;
        this.initial = initial;
        this.isContent = isContent;
    }

    static Column optional(String name, FieldType type) {
        return new Column(name, type, null, false);
    }

    static Column required(String name, FieldType type, Object initial) {
        return new Column(name, type, initial, false);
    }

    /** A column with a reference to the blob of a large object. */
    static Column content(String name) {
        return new Column(name, FieldType.REFERENCE, null, true);
    }

    /** Whether the column refers to a blob that is deleted with its object. */
    public boolean isContent() {
        return isContent;
    }

    public String name() {
        return name;
    }

    public FieldType type() {
        return type;
    }

    public boolean isRequired() {
        return initial != null;
    }

    public Object initial() {
        return initial;
    }

    /** The number of the field in records. */
    public int number() {
        if (number == UNKNOWN) {
            throw new IllegalStateException("field " + name + " is not in the catalogue yet");
        }
        return number;
    }

    void setNumber(int number) {
        this.number = number;
    }

    @Override
    public String toString() {
        return name + ": " + type + (isRequired() ? "" : "?");
    }
}
