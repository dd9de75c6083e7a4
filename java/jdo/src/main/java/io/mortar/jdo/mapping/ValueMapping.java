package io.mortar.jdo.mapping;

import io.mortar.Record;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ColumnMetaData;
import org.datanucleus.metadata.NullValue;
import org.datanucleus.metadata.VersionMetaData;
import org.datanucleus.store.types.converters.TypeConversionHelper;

/** A member with a value: a number, a text, a date, and so on, in one column. */
public sealed class ValueMapping extends ColumnMapping permits SerializedObjectMapping, ZonedCalendarMapping {
    private final ValueCodec codec;

    ValueMapping(AbstractMemberMetaData member, Column column, ValueCodec codec) {
        super(member, column);
        this.codec = codec;
    }

    public ValueCodec codec() {
        return codec;
    }

    /** Whether the value is in this column alone, and is no object with a state. */
    public boolean isPlain() {
        return getClass() == ValueMapping.class;
    }

    /** The Java value in a record. */
    public Object value(Record record) {
        return decoded(record.get(column().number()));
    }

    /** Replaces the value in a record of an object of a class. */
    public void replace(AbstractClassMetaData owner, Record.Builder record, Object value) {
        requireAllowed(owner, value);
        record.set(column().number(), codec.encode(value == null ? ofNull() : value));
    }

    /** Refuses null if the metadata does not permit it. */
    void requireAllowed(AbstractClassMetaData owner, Object value) {
        if (value == null && !allowsNull(owner)) {
            throw new NucleusUserException(
                    member().getFullFieldName() + " is null, and its metadata does not permit that");
        }
    }

    private boolean allowsNull(AbstractClassMetaData owner) {
        VersionMetaData version = owner.getVersionMetaDataForClass();
        if (version != null && member().getName().equals(version.getMemberName())) {
            // It is set later.
            return true;
        }
        ColumnMetaData[] columns = member().getColumnMetaData();
        boolean isForbiddenByColumn =
                columns != null && columns.length > 0 && Boolean.FALSE.equals(columns[0].getAllowsNull());
        return member().getNullValue() != NullValue.EXCEPTION && !isForbiddenByColumn;
    }

    /** What is stored for null: the default of the column if the metadata says so. */
    private Object ofNull() {
        ColumnMetaData[] columns = member().getColumnMetaData();
        String text = member().getNullValue() != NullValue.DEFAULT || columns == null || columns.length == 0
                ? null
                : columns[0].getDefaultValue();
        if (text == null || text.equalsIgnoreCase("#NULL")) {
            return null;
        }
        Object value =
                member().getType() == String.class ? text : TypeConversionHelper.convertTo(text, member().getType());
        if (value == null) {
            throw new NucleusUserException("the default '" + text + "' of " + member().getFullFieldName() + " is not a "
                    + member().getTypeName());
        }
        return value;
    }

    private Object decoded(Object stored) {
        return codec.decode(stored == null ? column().initial() : stored);
    }

    @Override
    Object read(RecordReader from) {
        return decoded(from.get(column()));
    }

    @Override
    void write(RecordWriter to, Object value) {
        to.set(column(), codec.encode(value == null ? ofNull() : value));
    }
}
