package io.mortar.jdo.mapping;

import java.lang.reflect.Field;
import java.util.Collection;
import java.util.Map;
import org.datanucleus.ExecutionContext;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.SCO;

/** Copies embedded objects for results: a change of a result does not change the object that contains the original. */
public final class EmbeddedCopy {
    private EmbeddedCopy() {}

    /** A copy of an embedded object, which belongs to no other object; another value as it is. */
    public static Object of(Object value, ExecutionContext context) {
        DNStateManager manager = value instanceof Persistable ? context.findStateManager(value) : null;
        if (manager == null || !manager.isEmbedded()) {
            return value;
        }
        manager.loadUnloadedFields();
        Persistable copy = ((Persistable) value).dnNewInstance(manager);
        copy.dnCopyFields(value, manager.getClassMetaData().getAllMemberPositions());
        copy.dnReplaceStateManager(null);
        for (int position : manager.getClassMetaData().getAllMemberPositions()) {
            AbstractMemberMetaData member =
                    manager.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position);
            Object original = manager.provideField(position);
            Object copied = copied(original, member, context);
            if (copied != original && member.getMemberRepresented() instanceof Field field) {
                set(field, copy, copied);
            }
        }
        return copy;
    }

    private static Object copied(Object value, AbstractMemberMetaData member, ExecutionContext context) {
        if (!(value instanceof SCO<?> wrapper)) {
            return of(value, context);
        }
        if (value instanceof Collection<?> collection) {
            Collection<Object> elements = Containers.newCollection(context, member);
            elements.addAll(collection);
            return elements;
        }
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> entries = Containers.newMap(context, member);
            entries.putAll(map);
            return entries;
        }
        return wrapper.getValue();
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
