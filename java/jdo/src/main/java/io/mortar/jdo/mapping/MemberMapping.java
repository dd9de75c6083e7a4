package io.mortar.jdo.mapping;

import java.util.function.Consumer;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** How a persistent member of a Java class is stored: in which columns, and in what form. */
public abstract sealed class MemberMapping
        permits ColumnMapping, EmbeddedElementsMapping, EmbeddedMapping, InverseMapping, OptionalMapping {
    private final AbstractMemberMetaData member;
    private volatile ColumnLimits limits;

    MemberMapping(AbstractMemberMetaData member) {
        this.member = member;
    }

    /** The metadata of the member. */
    public final AbstractMemberMetaData member() {
        return member;
    }

    /** Whether the member is stored with a new object, or with one that is changed. */
    final boolean isWritten(boolean isNew) {
        ColumnLimits known = limits;
        if (known == null) {
            known = ColumnLimits.of(member);
            limits = known;
        }
        return isNew ? known.isInserted() : known.isUpdated();
    }

    /** Whether a change of the member of a stored object is stored. */
    public final boolean isUpdatable() {
        return isWritten(false);
    }

    /** The position of the member in its class. */
    final int position() {
        return member.getAbsoluteFieldNumber();
    }

    /** Passes the columns of the member, which its class in Mortar has. */
    public abstract void forEachColumn(Consumer<Column> action);

    /** The Java value of the member. */
    abstract Object read(RecordReader from);

    /** Stores the Java value of the member. */
    abstract void write(RecordWriter to, Object value);
}
