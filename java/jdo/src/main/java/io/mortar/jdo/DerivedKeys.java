package io.mortar.jdo;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.util.ClassUtils;

/**
 * Derives primary keys from those of other objects: {@code @MapsId} of Jakarta Persistence, which DataNucleus ignores.
 *
 * <p>A new object gets its key when it becomes persistent, so the other object must have its own by then: it is
 * persistent already, or the relation cascades.
 */
final class DerivedKeys {
    /** The members that the enhancer adds. */
    private static final Set<String> ENHANCED = Set.of("dnStateManager", "dnFlags", "dnDetachedState");

    private DerivedKeys() {}

    /** Whether the key of a class, or a part of it, is derived. */
    static boolean has(AbstractClassMetaData type) {
        for (int position = 0; position < type.getMemberCount(); position++) {
            if (type.getMetaDataForManagedMemberAtAbsolutePosition(position).getMapsIdAttribute() != null) {
                return true;
            }
        }
        return false;
    }

    /** Assigns the derived parts of the key of a new object. */
    static void assign(DNStateManager manager) {
        AbstractClassMetaData type = manager.getClassMetaData();
        for (int position = 0; position < type.getMemberCount(); position++) {
            AbstractMemberMetaData relation = type.getMetaDataForManagedMemberAtAbsolutePosition(position);
            if (relation.getMapsIdAttribute() != null) {
                assign(manager, relation, keyOf(manager, relation));
            }
        }
    }

    private static void assign(DNStateManager manager, AbstractMemberMetaData relation, Object key) {
        int[] positions = manager.getClassMetaData().getPKMemberPositions();
        if (positions.length != 1) {
            throw unsupported(relation, "the identity of its class has several members: declare the relation as @Id");
        }
        String part = relation.getMapsIdAttribute();
        if (part.isEmpty()) {
            manager.replaceField(positions[0], key);
            return;
        }
        Object identity = manager.provideField(positions[0]);
        AbstractMemberMetaData member =
                manager.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(positions[0]);
        if (identity == null) {
            identity = created(member.getType());
            manager.replaceField(positions[0], identity);
        }
        Field field = ClassUtils.getFieldForClass(identity.getClass(), part);
        if (field == null) {
            throw unsupported(relation, member.getTypeName() + " has no member " + part);
        }
        try {
            field.setAccessible(true);
            field.set(identity, key);
        } catch (ReflectiveOperationException | IllegalArgumentException error) {
            throw new NucleusUserException(
                    relation.getFullFieldName() + " gives the key " + key + ", which " + part + " of "
                            + member.getTypeName() + " cannot have",
                    error);
        }
    }

    /** The key of the object that a relation leads to, which becomes persistent if the relation cascades. */
    private static Object keyOf(DNStateManager manager, AbstractMemberMetaData relation) {
        Object other = manager.provideField(relation.getAbsoluteFieldNumber());
        if (other == null) {
            throw new NucleusUserException(
                    relation.getFullFieldName() + " is null, and the primary key is derived from it");
        }
        ExecutionContext context = manager.getExecutionContext();
        if (!context.getApiAdapter().isPersistent(other)) {
            if (!relation.isCascadePersist()) {
                throw new NucleusUserException(relation.getFullFieldName()
                        + " is not persistent, and the primary key is derived from it: persist that object first, or"
                        + " let the relation cascade");
            }
            context.persistObjectInternal(other, null, PersistableObjectType.PC);
        }
        DNStateManager ofOther = context.findStateManager(other);
        int[] positions = ofOther.getClassMetaData().getPKMemberPositions();
        if (positions == null || positions.length != 1) {
            throw unsupported(relation, "the identity of " + relation.getTypeName() + " has several members");
        }
        Object key = ofOther.provideField(positions[0]);
        return ofOther.getClassMetaData()
                        .getMetaDataForManagedMemberAtAbsolutePosition(positions[0])
                        .isEmbedded()
                ? copyOf(key)
                : key;
    }

    /** A copy of an embedded key: an embedded object has one owner. */
    private static Object copyOf(Object embedded) {
        Object copy = created(embedded.getClass());
        for (Class<?> type = embedded.getClass(); type != Object.class; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                boolean isMember = !Modifier.isStatic(field.getModifiers()) && !ENHANCED.contains(field.getName());
                if (isMember) {
                    copy(field, embedded, copy);
                }
            }
        }
        return copy;
    }

    /** A new object, by the constructor without arguments, which need not be public. */
    private static Object created(Class<?> type) {
        try {
            Constructor<?> constructor = type.getDeclaredConstructor();
            constructor.setAccessible(true);
            return constructor.newInstance();
        } catch (ReflectiveOperationException error) {
            throw new NucleusUserException("a " + type.getName() + " cannot be created: " + error, error);
        }
    }

    private static void copy(Field field, Object from, Object to) {
        try {
            field.setAccessible(true);
            field.set(to, field.get(from));
        } catch (ReflectiveOperationException error) {
            throw new NucleusUserException("the key " + from + " cannot be copied", error);
        }
    }

    private static NucleusUserException unsupported(AbstractMemberMetaData relation, String reason) {
        return new NucleusUserException("@MapsId of " + relation.getFullFieldName() + " is not supported: " + reason);
    }
}
