package io.mortar.jdo.mapping;

import java.util.function.Consumer;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** A member with a value: a number, a text, a date, and so on, in one column. */
public final class ValueMapping extends MemberMapping {
    private final Column column;
    private final ValueCodec codec;

    ValueMapping(AbstractMemberMetaData member, Column column, ValueCodec codec) {
        super(member);
        this.column = column;
        this.codec = codec;
    }

    public Column column() {
        return column;
    }

    public ValueCodec codec() {
        return codec;
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        action.accept(column);
    }

    @Override
    Object read(RecordReader from) {
        Object stored = from.get(column);
        return codec.decode(stored == null ? column.initial() : stored);
    }

    @Override
    void write(RecordWriter to, Object value) {
        to.set(column, codec.encode(value));
    }
}
