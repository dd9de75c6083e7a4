package io.mortar.jdo.mapping;

import io.mortar.Oid;
import java.util.Arrays;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.ExecutionContext;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.FieldRole;
import org.datanucleus.metadata.MetaData;
import org.datanucleus.metadata.MetaDataUtils;

/** A member that refers to another object. */
public final class ReferenceMapping extends ColumnMapping {

    ReferenceMapping(AbstractMemberMetaData member, Column column) {
        super(member, column);
    }

    @Override
    Object read(RecordReader from) {
        return from.references().object((Oid) from.get(column()));
    }

    @Override
    void write(RecordWriter to, Object value) {
        requirePermitted(to.context(), value);
        Object referenced = value == null ? null : to.references().persistent(value, member());
        if (referenced != value && to.owner().provideField(position()) == value) {
            // The member referred to a detached object, and refers to that of the context from now on.
            to.owner().replaceField(position(), referenced);
        }
        Oid now = referenced == null ? null : to.references().identifier(referenced);
        if (Dependents.object(member()) && Dependents.removed(member())) {
            to.references().written(to.owner(), member());
            if (to.before(column()) instanceof Oid before && !before.equals(now)) {
                left(to, to.references().object(before));
            }
        }
        to.set(column(), now);
    }

    /**
     * Requires that an object is of one of the classes that the metadata permits for a member of the type of an
     * interface or of {@code Object}: JDO 3.2, section 6.4.3.
     */
    private void requirePermitted(ExecutionContext context, Object value) {
        boolean isRestricted = member().getFieldTypes() != null
                || member().hasExtension(MetaData.EXTENSION_MEMBER_IMPLEMENTATION_CLASSES);
        if (value == null || !isRestricted) {
            return;
        }
        ClassLoaderResolver loaders = context.getClassLoaderResolver();
        String[] permitted = MetaDataUtils.getInstance()
                .getImplementationNamesForReferenceField(
                        member(), FieldRole.ROLE_FIELD, loaders, context.getMetaDataManager());
        boolean isPermitted = permitted == null
                || Arrays.stream(permitted)
                        .anyMatch(name -> loaders.classForName(name).isInstance(value));
        if (!isPermitted) {
            throw new ClassCastException(member().getFullFieldName() + " cannot refer to an object of "
                    + value.getClass().getName() + ": its metadata permits " + String.join(", ", permitted));
        }
    }

    /**
     * The member does not refer to an object any more, which is deleted after the flush unless it has another owner.
     */
    private void left(RecordWriter to, Object object) {
        if (object != null) {
            to.references().removed(to.owner(), member(), null, object);
        }
    }
}
