package io.mortar.jdo.mapping;

import io.mortar.Oid;
import io.mortar.Record;
import java.util.function.BiConsumer;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.fieldmanager.AbstractFieldManager;

/** Puts the values of an object's members into a record. Objects that it refers to become persistent. */
public final class RecordWriter extends AbstractFieldManager {
    private final ExecutionContext context;
    private final DNStateManager owner;
    private final MemberMappings members;
    private final BiConsumer<Column, Object> store;
    /** The record that is changed; null for a new object. */
    private final Record changed;
    /** Whether the object is a part of a primary key. */
    private final boolean isKey;

    private RecordWriter(
            ExecutionContext context,
            DNStateManager owner,
            MemberMappings members,
            BiConsumer<Column, Object> store,
            Record changed,
            boolean isKey) {
        this.context = context;
        this.owner = owner;
        this.members = members;
        this.store = store;
        this.changed = changed;
        this.isKey = isKey;
    }

    /**
     * Writes an object of a context into a record.
     *
     * @param changed the record before; null for a new object
     */
    public static RecordWriter of(DNStateManager owner, MemberMappings members, Record.Builder record, Record changed) {
        return new RecordWriter(
                owner.getExecutionContext(),
                owner,
                members,
                (column, value) -> record.set(column.number(), value),
                changed,
                false);
    }

    /** Writes an object that is embedded in a member of this one. */
    RecordWriter within(DNStateManager embedded, MemberMappings itsMembers, AbstractMemberMetaData member) {
        return new RecordWriter(context, embedded, itsMembers, store, changed, isKey || member.isPrimaryKey());
    }

    /** Writes the same object into other columns. */
    RecordWriter to(BiConsumer<Column, Object> otherColumns) {
        return new RecordWriter(context, owner, members, otherColumns, null, isKey);
    }

    ExecutionContext context() {
        return context;
    }

    DNStateManager owner() {
        return owner;
    }

    References references() {
        return References.of(context);
    }

    /** Whether the object is stored for the first time. */
    boolean isNew() {
        return changed == null;
    }

    /** The stored value of a column before the object is written. */
    Object before(Column column) {
        return changed == null ? null : changed.get(column.number());
    }

    void set(Column column, Object stored) {
        if (column.isContent() && before(column) instanceof Oid blob && !blob.equals(stored)) {
            references().deleteContent(blob);
        }
        store.accept(column, stored);
    }

    private void write(int position, Object value) {
        MemberMapping mapping = members.at(position);
        if (mapping != null && mapping.isWritten(isNew())) {
            if (value == null && (isKey || mapping.member().isPrimaryKey())) {
                throw new NucleusUserException(mapping.member().getFullFieldName()
                        + " is null, and it is a part of the primary key: assign it before the object is stored, or"
                        + " have it generated");
            }
            // A reference may always be null: an object can lose it for a while before it is deleted with its owner.
            if (mapping instanceof ValueMapping plain) {
                plain.requireAllowed(owner.getClassMetaData(), value);
            }
            mapping.write(this, value);
        }
    }

    @Override
    public void storeObjectField(int position, Object value) {
        write(position, value);
        if (value != null) {
            // From now on changes of a collection or a date are noticed.
            Containers.wrap(owner, position, value);
        }
    }

    @Override
    public void storeStringField(int position, String value) {
        write(position, value);
    }

    @Override
    public void storeBooleanField(int position, boolean value) {
        write(position, value);
    }

    @Override
    public void storeCharField(int position, char value) {
        write(position, value);
    }

    @Override
    public void storeByteField(int position, byte value) {
        write(position, value);
    }

    @Override
    public void storeShortField(int position, short value) {
        write(position, value);
    }

    @Override
    public void storeIntField(int position, int value) {
        write(position, value);
    }

    @Override
    public void storeLongField(int position, long value) {
        write(position, value);
    }

    @Override
    public void storeFloatField(int position, float value) {
        write(position, value);
    }

    @Override
    public void storeDoubleField(int position, double value) {
        write(position, value);
    }
}
