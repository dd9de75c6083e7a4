package io.mortar;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * The fields of an object of a class: values by field number. A record is immutable.
 *
 * <p>The number of a field is {@link SchemaField#number()}; unlike the name of the field it never changes. A record
 * that was written before its class had a field lacks that field: {@link SchemaField#valueIn} then returns the field's
 * default.
 *
 * <p>Values of fields are:
 *
 * <table>
 *   <caption>Java types of values</caption>
 *   <tr><th>type of the field</th><th>returned</th><th>also accepted</th></tr>
 *   <tr><td>any, if the field is optional</td><td>null</td><td></td></tr>
 *   <tr><td>bool</td><td>{@link Boolean}</td><td></td></tr>
 *   <tr><td>int64</td><td>{@link Long}</td><td>{@link Integer}, {@link Short}, {@link Byte}</td></tr>
 *   <tr><td>float64</td><td>{@link Double}</td><td>{@link Float}</td></tr>
 *   <tr><td>decimal</td><td>{@link java.math.BigDecimal}</td><td></td></tr>
 *   <tr><td>string</td><td>{@link String}</td><td></td></tr>
 *   <tr><td>bytes</td><td>{@code byte[]}; a read-only {@link java.nio.ByteBuffer} in a set and in the key of a map,
 *       because an array is equal to no other array; each access returns another buffer with all bytes</td><td>both, everywhere</td></tr>
 *   <tr><td>date</td><td>{@link java.time.LocalDate}</td><td></td></tr>
 *   <tr><td>timestamp</td><td>{@link java.time.Instant}</td><td></td></tr>
 *   <tr><td>ref</td><td>{@link Oid}</td><td></td></tr>
 *   <tr><td>list</td><td>unmodifiable {@link List}</td><td>any {@link List}</td></tr>
 *   <tr><td>set</td><td>unmodifiable {@link java.util.Set} in Mortar's order</td>
 *       <td>any {@link java.util.Set}</td></tr>
 *   <tr><td>map</td><td>unmodifiable {@link Map} in Mortar's order of the keys</td><td>any {@link Map}</td></tr>
 * </table>
 *
 * <p>A record has at most 16 MiB, at most 32 nested levels of lists, sets and maps, and decimals of at most 4096
 * unscaled bytes. Equal fields have equal bytes, so records are compared by their bytes.
 *
 * <p>{@code java.lang} has a class of the same name: import this one by its name, not by {@code io.mortar.*}.
 */
public final class Record {
    private static final byte VERSION = 1;
    private static final Record EMPTY = wrap(new byte[] {VERSION});

    private final byte[] encoded;
    private final Table table;

    private Record(byte[] encoded, Table table) {
        this.encoded = encoded;
        this.table = table;
    }

    /**
     * Returns a builder without fields.
     *
     * @return the builder
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Returns the record with these fields.
     *
     * @param fields values by field number
     * @return the record
     * @throws InvalidRequestException as {@link Builder#set}
     * @throws TooLargeException as {@link Builder#set} and {@link Builder#build}
     */
    public static Record of(Map<Integer, ?> fields) {
        return builder().setAll(fields).build();
    }

    /**
     * Returns the record without fields.
     *
     * @return the record
     */
    public static Record empty() {
        return EMPTY;
    }

    /**
     * Decodes a record. Its header is checked here, and each field when it is read.
     *
     * @param encoded the bytes of {@link #encode}
     * @return the record
     * @throws CorruptException if the bytes are not a record
     * @throws UnsupportedException if a newer version of Mortar has written the record
     */
    public static Record decode(byte[] encoded) {
        return wrap(encoded.clone());
    }

    /** As {@link #decode}, without a copy: nothing else may change the array. */
    static Record wrap(byte[] encoded) {
        if (encoded.length == 0) {
            throw Table.malformed("it is empty");
        }
        if (encoded.length > Limits.RECORD) {
            throw Table.malformed("it has " + encoded.length + " bytes; " + Limits.RECORD + " are allowed");
        }
        if (encoded[0] != VERSION) {
            throw new UnsupportedException("a record is malformed: its version " + (encoded[0] & 0xff)
                    + " is not known here; this program reads version " + VERSION);
        }
        return new Record(encoded, Table.parse(encoded, 1, encoded.length, true));
    }

    /**
     * Returns the encoding, which {@code docs/format.md} describes.
     *
     * @return the bytes, a copy
     */
    public byte[] encode() {
        return encoded.clone();
    }

    /** The encoding, which nothing may change. */
    byte[] encoded() {
        return encoded;
    }

    /**
     * Returns the value of a field.
     *
     * @param field the number of the field
     * @return the value; null if the record lacks the field or the field is null
     * @throws CorruptException if the field is damaged
     * @throws UnsupportedException for a date or a time stamp that {@code java.time} cannot represent
     */
    public Object get(int field) {
        int index = table.find(field);
        return index < 0 ? null : value(index);
    }

    /**
     * Returns the value of a field, which is of a known type.
     *
     * @param <T> the Java type of the value
     * @param field the number of the field
     * @param type the class of the value, such as {@code Long.class}
     * @return the value; null if the record lacks the field or the field is null
     * @throws InvalidRequestException if the value is of another type
     * @throws CorruptException if the field is damaged
     * @throws UnsupportedException for a date or a time stamp that {@code java.time} cannot represent
     */
    public <T> T get(int field, Class<T> type) {
        return cast(get(field), type, "field " + field);
    }

    static <T> T cast(Object value, Class<T> type, String what) {
        if (value != null && !type.isInstance(value)) {
            throw new InvalidRequestException(
                    what + " is a " + value.getClass().getSimpleName() + ", not a " + type.getSimpleName());
        }
        return type.cast(value);
    }

    /**
     * Returns whether the record has a field, perhaps null.
     *
     * @param field the number of the field
     * @return false if the record was written before its class had the field, or without it
     */
    public boolean has(int field) {
        return table.find(field) >= 0;
    }

    /**
     * Returns the number of fields.
     *
     * @return the number of fields
     */
    public int size() {
        return table.count;
    }

    /**
     * Returns the numbers of the fields, ascending.
     *
     * @return the numbers, unmodifiable
     */
    public List<Integer> fieldNumbers() {
        List<Integer> numbers = new ArrayList<>(table.count);
        for (int index = 0; index < table.count; index++) {
            numbers.add(table.number(index));
        }
        return Collections.unmodifiableList(numbers);
    }

    /**
     * Decodes all fields.
     *
     * @return values by field number, ascending; unmodifiable
     * @throws CorruptException if a field is damaged
     * @throws UnsupportedException for a date or a time stamp that {@code java.time} cannot represent
     */
    public SortedMap<Integer, Object> toMap() {
        NavigableMap<Integer, Object> fields = new TreeMap<>();
        for (int index = 0; index < table.count; index++) {
            fields.put(table.number(index), value(index));
        }
        return Collections.unmodifiableSortedMap(fields);
    }

    /**
     * Returns a builder with the fields of this record. Fields that it does not set again stay as they are.
     *
     * @return the builder
     */
    public Builder toBuilder() {
        Builder builder = new Builder();
        for (int index = 0; index < table.count; index++) {
            byte[] value = Arrays.copyOfRange(encoded, table.start(index), table.end(index));
            builder.fields.put(table.number(index), value);
        }
        return builder;
    }

    private Object value(int index) {
        return ValueDecoder.decode(encoded, table.start(index), table.end(index));
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Record record && Arrays.equals(encoded, record.encoded);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(encoded);
    }

    /** Returns the fields for people, such as {@code {1: Ann, 2: 50}}; of a damaged record the error. */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder("{");
        try {
            for (int index = 0; index < table.count; index++) {
                Object value = value(index);
                text.append(index == 0 ? "" : ", ").append(table.number(index)).append(": ");
                text.append(value instanceof byte[] bytes ? bytes.length + " bytes" : value);
            }
        } catch (MortarException damaged) {
            text.append(damaged.getMessage());
        }
        return text.append('}').toString();
    }

    /** Builds a record from its fields, which are set in any order. */
    public static final class Builder {
        /** Encoded values. */
        private final TreeMap<Integer, byte[]> fields = new TreeMap<>();

        private Builder() {}

        /**
         * Sets a field. An earlier value is replaced.
         *
         * @param field the number of the field, not negative
         * @param value the value: of a type in the table of {@link Record}; later changes of it have no effect
         * @return this builder
         * @throws InvalidRequestException for a negative field, an object that is not a value, a text with half of a
         *     surrogate pair, and a map with two keys that are one value
         * @throws TooLargeException for more than 16 MiB, or more than 32 nested levels
         */
        public Builder set(int field, Object value) {
            if (field < 0) {
                throw new InvalidRequestException(field + " is not the number of a field: it is negative");
            }
            byte[] encoded = ValueEncoder.encode(value);
            if (encoded.length > Limits.RECORD) {
                throw Limits.recordTooLarge(encoded.length);
            }
            fields.put(field, encoded);
            return this;
        }

        /**
         * Sets fields. Earlier values are replaced.
         *
         * @param values values by field number
         * @return this builder
         * @throws InvalidRequestException as {@link #set}
         * @throws TooLargeException as {@link #set}
         */
        public Builder setAll(Map<Integer, ?> values) {
            values.forEach(this::set);
            return this;
        }

        /**
         * Removes a field: the record will lack it, as if it had been written before its class had the field.
         *
         * @param field the number of the field
         * @return this builder
         */
        public Builder remove(int field) {
            fields.remove(field);
            return this;
        }

        /**
         * Returns the record. The builder can be used further.
         *
         * @return the record
         * @throws TooLargeException for more than 16 MiB
         */
        public Record build() {
            int count = fields.size();
            int[] numbers = new int[count];
            int[] ends = new int[count];
            int index = 0;
            long size = 0;
            for (Map.Entry<Integer, byte[]> field : fields.entrySet()) {
                size += field.getValue().length;
                if (size > Limits.RECORD) {
                    throw Limits.recordTooLarge(size);
                }
                numbers[index] = field.getKey();
                ends[index++] = (int) size;
            }
            int header = 1 + Table.headerSize(numbers, ends, count);
            if (header + size > Limits.RECORD) {
                throw Limits.recordTooLarge(header + size);
            }
            byte[] encoded = new byte[header + (int) size];
            encoded[0] = VERSION;
            Table.writeHeader(numbers, ends, count, encoded, 1);
            int at = header;
            for (byte[] value : fields.values()) {
                System.arraycopy(value, 0, encoded, at, value.length);
                at += value.length;
            }
            return wrap(encoded);
        }
    }
}
