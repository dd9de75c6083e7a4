package io.mortar.jdo.mapping;

import io.mortar.Oid;
import io.mortar.jdo.LargeObject;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** A member with a large object: a reference to a blob that belongs to this member only. */
public final class LargeObjectMapping extends ColumnMapping {
    LargeObjectMapping(AbstractMemberMetaData member, Column column) {
        super(member, column);
    }

    @Override
    Object read(RecordReader from) {
        return from.references().content((Oid) from.get(column()));
    }

    @Override
    void write(RecordWriter to, Object value) {
        Oid before = (Oid) to.before(column());
        to.set(column(), value == null ? null : to.references().store((LargeObject) value, before));
    }
}
