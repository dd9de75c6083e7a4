package io.mortar.jdo.mapping;

import io.mortar.Oid;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** A member that refers to another object. */
public final class ReferenceMapping extends ColumnMapping {

    ReferenceMapping(AbstractMemberMetaData member, Column column) {
        super(member, column);
    }

    @Override
    Object read(RecordReader from) {
        return from.references().object((Oid) from.get(column()));
    }

    @Override
    void write(RecordWriter to, Object value) {
        to.set(column(), value == null ? null : to.references().persist(value, member()));
    }
}
