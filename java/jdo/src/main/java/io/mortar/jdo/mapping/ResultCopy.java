package io.mortar.jdo.mapping;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.util.Calendar;
import java.util.Collection;
import java.util.Date;
import java.util.Map;
import org.datanucleus.ExecutionContext;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.SCO;

/** Copies the values of members for results: a change of a result does not change the object that has the original. */
public final class ResultCopy {
    private ResultCopy() {}

    /**
     * A copy of an embedded object, a container, an array, a date or a calendar, which belongs to no object; another
     * value as it is.
     */
    public static Object of(Object value, ExecutionContext context) {
        if (value instanceof SCO<?> wrapper) {
            return unwrapped(wrapper, context);
        }
        if (value instanceof Date date) {
            return date.clone();
        }
        if (value instanceof Calendar calendar) {
            return calendar.clone();
        }
        if (value != null && value.getClass().isArray()) {
            return ofArray(value);
        }
        DNStateManager manager = value instanceof Persistable ? context.findStateManager(value) : null;
        return manager != null && manager.isEmbedded() ? ofEmbedded((Persistable) value, manager) : value;
    }

    /** The value without the wrapper by which a persistent object notices its changes. */
    private static Object unwrapped(SCO<?> wrapper, ExecutionContext context) {
        if (!Containers.isContainer(wrapper)) {
            return wrapper.getValue();
        }
        AbstractMemberMetaData member = context.findStateManager(wrapper.getOwner())
                .getClassMetaData()
                .getMetaDataForMember(wrapper.getFieldName());
        if (wrapper instanceof Map<?, ?> map) {
            Map<Object, Object> entries = Containers.newMap(context, member);
            entries.putAll(map);
            return entries;
        }
        Collection<Object> elements = Containers.newCollection(context, member);
        elements.addAll((Collection<?>) wrapper);
        return elements;
    }

    private static Object ofArray(Object array) {
        int length = Array.getLength(array);
        Object copy = Array.newInstance(array.getClass().getComponentType(), length);
        System.arraycopy(array, 0, copy, 0, length);
        return copy;
    }

    private static Object ofEmbedded(Persistable value, DNStateManager manager) {
        manager.loadUnloadedFields();
        int[] positions = manager.getClassMetaData().getAllMemberPositions();
        Persistable copy = value.dnNewInstance(manager);
        copy.dnCopyFields(value, positions);
        copy.dnReplaceStateManager(null);
        for (int position : positions) {
            AbstractMemberMetaData member =
                    manager.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position);
            Object original = manager.provideField(position);
            Object copied = of(original, manager.getExecutionContext());
            if (copied != original && member.getMemberRepresented() instanceof Field field) {
                set(field, copy, copied);
            }
        }
        return copy;
    }

    private static void set(Field field, Object object, Object value) {
        try {
            field.setAccessible(true);
            field.set(object, value);
        } catch (ReflectiveOperationException | RuntimeException error) {
            throw new NucleusException("the member " + field + " of a result cannot be set", error);
        }
    }
}
