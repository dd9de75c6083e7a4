package io.mortar.jdo;

import io.mortar.Record;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.MemberMapping;
import io.mortar.jdo.mapping.ValueMapping;
import java.sql.Timestamp;
import java.time.Instant;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.VersionMetaData;
import org.datanucleus.metadata.VersionStrategy;
import org.datanucleus.state.DNStateManager;

/**
 * Versions of objects, in a member or in a column of their own. A detached object is compared with the stored one by
 * them.
 */
final class Versions {
    private Versions() {}

    /** Gives an object the version in its record, if its class has versions. */
    static void load(DNStateManager manager, ClassMapping mapping, Record record) {
        VersionMetaData versions = mapping.metadata().getVersionMetaDataForClass();
        if (versions != null) {
            manager.setVersion(stored(mapping, versions, record));
        }
    }

    /** The version in a record. */
    private static Object stored(ClassMapping mapping, VersionMetaData versions, Record record) {
        if (versions.getMemberName() == null) {
            Object stored = record.get(mapping.version().number());
            return stored instanceof Instant time ? Timestamp.from(time) : stored;
        }
        MemberMapping member = mapping.members().named(versions.getMemberName());
        if (member instanceof ValueMapping value) {
            return value.value(record);
        }
        throw new NucleusUserException(member.member().getFullFieldName() + " cannot hold a version");
    }

    /** Gives a new object its first version, or a changed one the next. */
    static void advance(DNStateManager manager, ClassMapping mapping, Object current, Record.Builder record) {
        VersionMetaData versions = mapping.metadata().getVersionMetaDataForClass();
        if (versions == null) {
            return;
        }
        Object next = manager.getExecutionContext().getLockManager().getNextVersion(versions, current);
        if (versions.getMemberName() == null) {
            record.set(mapping.version().number(), next instanceof Timestamp time ? time.toInstant() : next);
        } else {
            AbstractMemberMetaData member = manager.getClassMetaData().getMetaDataForMember(versions.getMemberName());
            Object value = converted(next, member.getType());
            manager.replaceField(member.getAbsoluteFieldNumber(), value);
            ValueMapping mapped = (ValueMapping) mapping.members().named(versions.getMemberName());
            record.set(mapped.column().number(), mapped.codec().encode(value));
        }
        manager.setTransactionalVersion(next);
    }

    /** Gives an object that is changed by its record alone the next version. */
    static void advance(ExecutionContext context, ClassMapping mapping, Record before, Record.Builder record) {
        VersionMetaData versions = mapping.metadata().getVersionMetaDataForClass();
        if (versions == null) {
            return;
        }
        Object next = context.getLockManager().getNextVersion(versions, stored(mapping, versions, before));
        if (versions.getMemberName() == null) {
            record.set(mapping.version().number(), next instanceof Timestamp time ? time.toInstant() : next);
        } else {
            ValueMapping mapped = (ValueMapping) mapping.members().named(versions.getMemberName());
            record.set(
                    mapped.column().number(),
                    mapped.codec().encode(converted(next, mapped.member().getType())));
        }
    }

    private static Object converted(Object version, Class<?> type) {
        if (version instanceof Number number) {
            if (type == int.class || type == Integer.class) {
                return number.intValue();
            }
            if (type == short.class || type == Short.class) {
                return number.shortValue();
            }
        }
        return version;
    }

    /** Compares the version of an object with the stored one. */
    static void check(DNStateManager manager, ClassMapping mapping, Record stored) {
        VersionMetaData versions = mapping.metadata().getVersionMetaDataForClass();
        boolean isChecked =
                versions != null && versions.getStrategy() != null && versions.getStrategy() != VersionStrategy.NONE;
        if (!isChecked) {
            return;
        }
        Object current = stored(mapping, versions, stored);
        if (current != null) {
            manager.getExecutionContext()
                    .getLockManager()
                    .performOptimisticVersionCheck(manager, versions.getStrategy(), current);
        }
    }
}
