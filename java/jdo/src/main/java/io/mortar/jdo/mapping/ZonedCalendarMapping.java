package io.mortar.jdo.mapping;

import java.util.Calendar;
import java.util.TimeZone;
import java.util.function.Consumer;
import org.datanucleus.metadata.AbstractMemberMetaData;

/**
 * A member with a calendar whose time zone is kept, in a column of its own: the metadata gives the member two columns.
 */
final class ZonedCalendarMapping extends ValueMapping {
    private final Column zone;

    ZonedCalendarMapping(AbstractMemberMetaData member, Column time, Column zone, ValueCodec codec) {
        super(member, time, codec);
        this.zone = zone;
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        super.forEachColumn(action);
        action.accept(zone);
    }

    @Override
    Object read(RecordReader from) {
        Object value = super.read(from);
        if (value instanceof Calendar calendar && from.get(zone) instanceof String id) {
            calendar.setTimeZone(TimeZone.getTimeZone(id));
        }
        return value;
    }

    @Override
    void write(RecordWriter to, Object value) {
        super.write(to, value);
        to.set(zone, value instanceof Calendar calendar ? calendar.getTimeZone().getID() : null);
    }
}
