package io.mortar.jdo.mapping;

import org.datanucleus.metadata.AbstractMemberMetaData;

/** A member with a value: a number, a text, a date, and so on, in one column. */
public sealed class ValueMapping extends ColumnMapping permits SerializedObjectMapping, ZonedCalendarMapping {
    private final ValueCodec codec;

    ValueMapping(AbstractMemberMetaData member, Column column, ValueCodec codec) {
        super(member, column);
        this.codec = codec;
    }

    public ValueCodec codec() {
        return codec;
    }

    @Override
    Object read(RecordReader from) {
        Object stored = from.get(column());
        return codec.decode(stored == null ? column().initial() : stored);
    }

    @Override
    void write(RecordWriter to, Object value) {
        to.set(column(), codec.encode(value));
    }
}
