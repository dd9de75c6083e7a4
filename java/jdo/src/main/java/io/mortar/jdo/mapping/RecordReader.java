package io.mortar.jdo.mapping;

import io.mortar.Record;
import java.util.function.Function;
import org.datanucleus.ExecutionContext;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.fieldmanager.AbstractFieldManager;

/** Gives the members of an object the values in a record. */
public final class RecordReader extends AbstractFieldManager {
    private final ExecutionContext context;
    private final DNStateManager owner;
    private final MemberMappings members;
    private final Function<Column, Object> stored;

    private RecordReader(
            ExecutionContext context, DNStateManager owner, MemberMappings members, Function<Column, Object> stored) {
        this.context = context;
        this.owner = owner;
        this.members = members;
        this.stored = stored;
    }

    /** Reads an object of a context; the owner may be null if only its identity is read. */
    public static RecordReader of(
            ExecutionContext context, DNStateManager owner, MemberMappings members, Record record) {
        return new RecordReader(context, owner, members, column -> record.get(column.number()));
    }

    /** Reads an object that is embedded in this one. */
    RecordReader within(DNStateManager embedded, MemberMappings itsMembers) {
        return new RecordReader(context, embedded, itsMembers, stored);
    }

    /** Reads the same object from other columns. */
    RecordReader from(Function<Column, Object> otherColumns) {
        return new RecordReader(context, owner, members, otherColumns);
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

    Object get(Column column) {
        return stored.apply(column);
    }

    private Object read(int position) {
        MemberMapping mapping = members.at(position);
        return mapping == null ? null : mapping.read(this);
    }

    @Override
    public Object fetchObjectField(int position) {
        Object value = read(position);
        return owner == null || value == null ? value : Containers.wrap(owner, position, value);
    }

    @Override
    public String fetchStringField(int position) {
        return (String) read(position);
    }

    @Override
    public boolean fetchBooleanField(int position) {
        return Boolean.TRUE.equals(read(position));
    }

    @Override
    public char fetchCharField(int position) {
        return read(position) instanceof Character character ? character : 0;
    }

    @Override
    public byte fetchByteField(int position) {
        return number(position).byteValue();
    }

    @Override
    public short fetchShortField(int position) {
        return number(position).shortValue();
    }

    @Override
    public int fetchIntField(int position) {
        return number(position).intValue();
    }

    @Override
    public long fetchLongField(int position) {
        return number(position).longValue();
    }

    @Override
    public float fetchFloatField(int position) {
        return number(position).floatValue();
    }

    @Override
    public double fetchDoubleField(int position) {
        return number(position).doubleValue();
    }

    private Number number(int position) {
        return read(position) instanceof Number number ? number : 0;
    }
}
