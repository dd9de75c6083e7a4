package io.mortar.jdo.mapping;

import java.util.Arrays;
import java.util.stream.IntStream;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ColumnMetaData;

/**
 * Whether the columns of a member may be written: {@code insertable} and {@code updatable} of Jakarta Persistence.
 *
 * <p>A member that names the column of another one is always written. In a database it is another view of that column;
 * in Mortar each member has a field of its own.
 */
record ColumnLimits(boolean isInserted, boolean isUpdated) {
    private static final ColumnMetaData[] NONE = {};
    /** An embedded key has embedded members, and so on. */
    private static final int MAXIMUM_DEPTH = 5;

    /** The limits of a member, after the metadata of all classes has been loaded. */
    static ColumnLimits of(AbstractMemberMetaData member) {
        ColumnMetaData[] columns = columns(member);
        boolean isInserted = Arrays.stream(columns).allMatch(ColumnMetaData::getInsertable);
        boolean isUpdated = Arrays.stream(columns).allMatch(ColumnMetaData::getUpdateable);
        boolean isAlways = (!isInserted || !isUpdated) && isAlwaysWritten(member);
        return new ColumnLimits(isInserted || isAlways, isUpdated || isAlways);
    }

    private static ColumnMetaData[] columns(AbstractMemberMetaData member) {
        return member.getColumnMetaData() == null ? NONE : member.getColumnMetaData();
    }

    private static boolean isAlwaysWritten(AbstractMemberMetaData member) {
        return member.isPrimaryKey() || member.hasContainer() || sharesColumn(member);
    }

    private static boolean sharesColumn(AbstractMemberMetaData member) {
        return Arrays.stream(columns(member))
                .map(ColumnMetaData::getName)
                .anyMatch(
                        name -> name != null && isColumnOfAnother(name, member, member.getAbstractClassMetaData(), 0));
    }

    private static boolean isColumnOfAnother(
            String name, AbstractMemberMetaData member, AbstractClassMetaData type, int depth) {
        if (type == null || depth > MAXIMUM_DEPTH) {
            return false;
        }
        return IntStream.range(0, type.getMemberCount())
                .mapToObj(type::getMetaDataForManagedMemberAtAbsolutePosition)
                .filter(other -> !other.getFullFieldName().equals(member.getFullFieldName()))
                .anyMatch(other -> hasColumn(other, name)
                        || other.isEmbedded() && isColumnOfAnother(name, member, embedded(other, type), depth + 1));
    }

    private static boolean hasColumn(AbstractMemberMetaData member, String name) {
        ColumnMetaData[] columns = columns(member);
        boolean isNamed = Arrays.stream(columns).anyMatch(column -> column.getName() != null);
        return isNamed
                ? Arrays.stream(columns).anyMatch(column -> name.equalsIgnoreCase(column.getName()))
                : name.equalsIgnoreCase(member.getName());
    }

    private static AbstractClassMetaData embedded(AbstractMemberMetaData member, AbstractClassMetaData owner) {
        return owner.getMetaDataManager().getMetaDataForClass(member.getType(), null);
    }
}
