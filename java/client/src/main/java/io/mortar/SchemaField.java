package io.mortar;

/**
 * A field of a class.
 *
 * @param number the field's number in records, which never changes
 * @param name the field's name
 * @param type the type of its values
 * @param required whether it cannot be null
 * @param missingValue the value in records that lack the field, and in records with null if it cannot be null; null for
 *     none
 * @param initialValue the default value for new objects; null for none. Mortar does not insert it: the writer of an
 *     object does
 */
public record SchemaField(
        int number, String name, FieldType type, boolean required, Object missingValue, Object initialValue) {
    static SchemaField read(MessageReader in) {
        return new SchemaField(
                in.u32(),
                in.string(),
                FieldType.read(in),
                in.bool(),
                in.optional(MessageReader::value),
                in.optional(MessageReader::value));
    }

    /**
     * Returns the value of the field in a record that may be older than the class: with the default if the record lacks
     * the field, and converted if the field had a narrower type.
     *
     * @param record a record of the class, of its subclasses, or of an earlier version of them
     * @return the value, perhaps null
     * @throws CorruptException if the field is damaged
     */
    public Object valueIn(Record record) {
        Object stored = record.get(number);
        if (stored != null) {
            return type.convert(stored);
        }
        return required || !record.has(number) ? missingValue : null;
    }
}
