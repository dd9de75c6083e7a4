package io.mortar.jdo;

import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDateTime;
import java.util.Date;
import java.util.stream.IntStream;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/** Members that say when and by whom an object was created and last changed. */
final class AuditMembers {
    private AuditMembers() {}

    /** Sets the members of a new object. It has not been changed yet. */
    static void ofNew(DNStateManager manager) {
        AbstractClassMetaData metadata = manager.getClassMetaData();
        set(manager, metadata.getCreateUserMemberPosition(), user(manager));
        setTime(manager, metadata.getCreateTimestampMemberPosition());
        set(manager, metadata.getUpdateUserMemberPosition(), null);
        set(manager, metadata.getUpdateTimestampMemberPosition(), null);
    }

    /** Sets the members of a changed object, and returns the positions of what is changed with those of the members. */
    static int[] ofChanged(DNStateManager manager, int[] positions) {
        AbstractClassMetaData metadata = manager.getClassMetaData();
        set(manager, metadata.getUpdateUserMemberPosition(), user(manager));
        setTime(manager, metadata.getUpdateTimestampMemberPosition());
        IntStream set =
                IntStream.of(metadata.getUpdateUserMemberPosition(), metadata.getUpdateTimestampMemberPosition());
        return IntStream.concat(IntStream.of(positions), set.filter(each -> each >= 0))
                .distinct()
                .toArray();
    }

    private static String user(DNStateManager manager) {
        return manager.getExecutionContext().getCurrentUser();
    }

    private static void set(DNStateManager manager, int position, Object value) {
        if (position >= 0) {
            manager.replaceField(position, value);
        }
    }

    private static void setTime(DNStateManager manager, int position) {
        if (position >= 0) {
            manager.replaceField(
                    position, now(manager.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position)));
        }
    }

    private static Object now(AbstractMemberMetaData member) {
        Instant now = Instant.now();
        Class<?> type = member.getType();
        if (type == Instant.class) {
            return now;
        }
        if (type == Timestamp.class) {
            return Timestamp.from(now);
        }
        if (type == Date.class) {
            return Date.from(now);
        }
        if (type == LocalDateTime.class) {
            return LocalDateTime.now();
        }
        throw new NucleusUserException(
                member.getFullFieldName() + " is the time of a change: its type must be Instant, LocalDateTime, "
                        + "java.sql.Timestamp or java.util.Date, and not " + type.getName());
    }
}
