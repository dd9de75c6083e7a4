package io.mortar.jdo.mapping;

import java.util.function.Consumer;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.metadata.AbstractMemberMetaData;

/**
 * A member with an embedded object. The members of the embedded object are columns of the class that contains it, such
 * as {@code address_street}; the column {@code address} is true unless the embedded object is null.
 */
public final class EmbeddedMapping extends MemberMapping {
    private final Column presence;
    private final EmbeddedForm form;

    EmbeddedMapping(AbstractMemberMetaData member, Column presence, EmbeddedForm form) {
        super(member);
        this.presence = presence;
        this.form = form;
    }

    /** The column that is true unless the embedded object is null. */
    public Column presence() {
        return presence;
    }

    /** The members of the class that the member declares; an object of a subclass has more. */
    public MemberMappings members() {
        return form.declared();
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        action.accept(presence);
        form.forEachColumn(action);
    }

    @Override
    Object read(RecordReader from) {
        if (!Boolean.TRUE.equals(from.get(presence))) {
            return null;
        }
        return form.read(from, position(), PersistableObjectType.EMBEDDED_PC);
    }

    @Override
    void write(RecordWriter to, Object value) {
        if (value == null) {
            forEachColumn(column -> to.set(column, column.initial()));
            return;
        }
        to.set(presence, true);
        form.write(to, value, member(), PersistableObjectType.EMBEDDED_PC);
    }
}
