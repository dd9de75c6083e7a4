package io.mortar.jdo.mapping;

import java.util.function.Consumer;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/**
 * A member with an embedded object. The members of the embedded object are columns of the class that contains it, such as
 * {@code address_street}; the column {@code address} is true unless the embedded object is null.
 */
public final class EmbeddedMapping extends MemberMapping {
    private final Column presence;
    private final MemberMappings members;

    EmbeddedMapping(AbstractMemberMetaData member, Column presence, MemberMappings members) {
        super(member);
        this.presence = presence;
        this.members = members;
    }

    /** The column that is true unless the embedded object is null. */
    public Column presence() {
        return presence;
    }

    /** The members of the embedded object. */
    public MemberMappings members() {
        return members;
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        action.accept(presence);
        members.forEachColumn(action);
    }

    @Override
    Object read(RecordReader from) {
        if (!Boolean.TRUE.equals(from.get(presence))) {
            return null;
        }
        return read(from, members, position(), PersistableObjectType.EMBEDDED_PC);
    }

    /** The object with these members that is embedded in a member of the reader's object. */
    static Object read(RecordReader from, MemberMappings members, int position, PersistableObjectType type) {
        ExecutionContext context = from.context();
        DNStateManager embedded = context.getNucleusContext().getStateManagerFactory()
                .newForEmbedded(context, members.metadata(), from.owner(), position, type);
        embedded.replaceFields(members.positions(), from.within(embedded, members));
        return embedded.getObject();
    }

    @Override
    void write(RecordWriter to, Object value) {
        if (value == null) {
            forEachColumn(column -> to.set(column, column.initial()));
            return;
        }
        to.set(presence, true);
        DNStateManager embedded =
                to.context().findStateManagerForEmbedded(value, to.owner(), member(), PersistableObjectType.EMBEDDED_PC);
        embedded.provideFields(members.positions(), to.within(embedded, members));
    }
}
