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
        Object referenced = value == null ? null : to.references().persistent(value, member());
        if (referenced != value && to.owner().provideField(position()) == value) {
            // The member referred to a detached object, and refers to that of the context from now on.
            to.owner().replaceField(position(), referenced);
        }
        Oid now = referenced == null ? null : to.references().identifier(referenced);
        if (Dependents.object(member()) && Dependents.removed(member())) {
            to.references().written(to.owner(), member());
            if (to.before(column()) instanceof Oid before && !before.equals(now)) {
                left(to, to.references().object(before));
            }
        }
        to.set(column(), now);
    }

    /**
     * The member does not refer to an object any more, which is deleted after the flush unless it has another owner.
     */
    private void left(RecordWriter to, Object object) {
        if (object != null) {
            to.references().removed(to.owner(), member(), null, object);
        }
    }
}
