package io.mortar.jdo.mapping;

import io.mortar.Oid;
import java.util.function.Consumer;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** A member that refers to another object. */
public final class ReferenceMapping extends MemberMapping {
    private final Column column;

    ReferenceMapping(AbstractMemberMetaData member, Column column) {
        super(member);
        this.column = column;
    }

    public Column column() {
        return column;
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        action.accept(column);
    }

    @Override
    Object read(RecordReader from) {
        return from.references().object((Oid) from.get(column));
    }

    @Override
    void write(RecordWriter to, Object value) {
        to.set(column, value == null ? null : to.references().persist(value, member()));
    }
}
