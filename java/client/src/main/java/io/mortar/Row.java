package io.mortar;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/** A row of a query: a whole object, or values of columns. It is immutable. */
public final class Row {
    private static final int OBJECT = 0;
    private static final int VALUES = 1;

    private final Oid oid;
    private final Record record;
    private final List<String> columns;
    private final List<Object> values;

    private Row(Oid oid, Record record, List<String> columns, List<Object> values) {
        this.oid = oid;
        this.record = record;
        this.columns = columns;
        this.values = values;
    }

    static Row read(MessageReader in, List<String> columns) {
        int type = in.u8();
        return switch (type) {
            case OBJECT -> new Row(in.oid(), Record.wrap(in.bytes()), columns, List.of());
            case VALUES -> {
                List<Object> values = in.list(MessageReader::value);
                if (values.size() != columns.size()) {
                    throw MessageReader.malformed(
                            "a row of " + columns.size() + " columns has " + values.size() + " values");
                }
                yield new Row(null, null, columns, values);
            }
            default -> throw MessageReader.malformed("a row is of type " + type);
        };
    }

    /**
     * Returns whether the row is a whole object: that of a query without {@code select}.
     *
     * @return false if the row has values of columns
     */
    public boolean isObject() {
        return oid != null;
    }

    /**
     * Returns the identifier of the object.
     *
     * @return the identifier, temporary for an object that the transaction of the query has created
     * @throws InvalidRequestException if the row has values of columns
     */
    public Oid oid() {
        requireObject();
        return oid;
    }

    /**
     * Returns the fields of the object.
     *
     * @return the record
     * @throws InvalidRequestException if the row has values of columns
     */
    public Record record() {
        requireObject();
        return record;
    }

    private void requireObject() {
        if (!isObject()) {
            throw new InvalidRequestException(
                    "the query selects the columns " + String.join(", ", columns) + ": its rows are not objects");
        }
    }

    /**
     * Returns the values of the columns; {@link Record} lists their types.
     *
     * @return the values, perhaps null, in the order of {@link Rows#columns}; unmodifiable; empty for a whole object
     */
    public List<Object> values() {
        return values;
    }

    /**
     * Returns the value of a column.
     *
     * @param column the index of the column, from 0
     * @return the value, perhaps null
     * @throws InvalidRequestException if there is no such column
     */
    public Object get(int column) {
        if (column < 0 || column >= values.size()) {
            throw new InvalidRequestException(
                    "there is no column " + column + ": the query has " + values.size() + " columns");
        }
        return values.get(column);
    }

    /**
     * Returns the value of a column.
     *
     * @param column the name of the column
     * @return the value, perhaps null
     * @throws InvalidRequestException if there is no such column
     */
    public Object get(String column) {
        int index = columns.indexOf(column);
        if (index < 0) {
            throw new InvalidRequestException("there is no column " + column + ": the query has "
                    + (columns.isEmpty() ? "no columns" : String.join(", ", columns)));
        }
        return values.get(index);
    }

    /**
     * Returns the value of a column, which is of a known type.
     *
     * @param <T> the Java type of the value
     * @param column the index of the column, from 0
     * @param type the class of the value, such as {@code Long.class}
     * @return the value, perhaps null
     * @throws InvalidRequestException if there is no such column, or the value is of another type
     */
    public <T> T get(int column, Class<T> type) {
        return Record.cast(get(column), type, "column " + column);
    }

    /**
     * Returns the value of a column, which is of a known type.
     *
     * @param <T> the Java type of the value
     * @param column the name of the column
     * @param type the class of the value, such as {@code Long.class}
     * @return the value, perhaps null
     * @throws InvalidRequestException if there is no such column, or the value is of another type
     */
    public <T> T get(String column, Class<T> type) {
        return Record.cast(get(column), type, "column " + column);
    }

    /**
     * Returns whether the other row has the same object in the same state, or the same values, of which arrays are
     * compared by content.
     */
    @Override
    public boolean equals(Object other) {
        return other instanceof Row row
                && Objects.equals(oid, row.oid)
                && Objects.equals(record, row.record)
                && Arrays.deepEquals(values.toArray(), row.values.toArray());
    }

    @Override
    public int hashCode() {
        return Objects.hash(oid, record, Arrays.deepHashCode(values.toArray()));
    }

    /** Returns the object or the values, for people. */
    @Override
    public String toString() {
        return isObject() ? oid + " " + record : values.toString();
    }
}
