package io.mortar.jdo.query;

import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.mapping.Containers;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.MemberMapping;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.datanucleus.ExecutionContext;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.query.Query;
import org.datanucleus.util.ClassUtils;

/** Follows paths through the members of objects in memory, with what only the store knows of these. */
final class Paths {
    /** The value of a path through a reference that is null. */
    static final Object NOTHING = new Object();

    private final Query<?> query;
    private final ExecutionContext context;
    private final boolean isJpql;
    /** The members of objects in memory that the other sides of relations decide, as the store has them. */
    private final Map<DNStateManager, Map<Integer, Optional<Object>>> inverses = new IdentityHashMap<>();

    Paths(Query<?> query, boolean isJpql) {
        this.query = query;
        this.context = query.getExecutionContext();
        this.isJpql = isJpql;
    }

    /** The value at the end of a path from an object; {@link #NOTHING} behind a null reference in JPQL. */
    Object walk(Object from, List<String> path) {
        Object value = from;
        for (int i = 0; i < path.size(); i++) {
            if (value instanceof Optional<?> optional) {
                value = optional.orElse(null);
            }
            if (value == null || value == NOTHING) {
                return i == 0 || !isJpql ? value : NOTHING;
            }
            // The key or the value of a map in FROM: the join takes it from the elements of the map.
            String name = path.get(i).replaceFirst("(" + Evaluator.KEY + '|' + Evaluator.VALUE + ")$", "");
            Object member = member(value, name);
            boolean isNullEmbedded = member == null && isEmbedded(metadata(value.getClass(), name));
            if (isNullEmbedded) {
                return null;
            }
            value = member;
        }
        return value;
    }

    /**
     * The value of JPQL at the end of a path from an alias of an outer join that is null. Its members are null, and
     * there is {@link #NOTHING} behind its references.
     */
    Object ofNull(Class<?> type, List<String> path) {
        AbstractMemberMetaData member = path.size() < 2 || type == null ? null : metadata(type, path.get(0));
        if (member == null) {
            return null;
        }
        return isEmbedded(member) ? ofNull(member.getType(), path.subList(1, path.size())) : NOTHING;
    }

    private Object member(Object object, String name) {
        DNStateManager manager = context.findStateManager(object);
        int position = manager == null ? -1 : manager.getClassMetaData().getAbsolutePositionOfMember(name);
        if (position < 0) {
            return ClassUtils.getValueOfFieldByReflection(object, name);
        }
        if (manager.isFieldLoaded(position) && inverse(manager, position) instanceof InverseMapping inverse) {
            // An object in memory may not know yet of the objects that refer to it.
            Object stored = inverses.computeIfAbsent(manager, unused -> new HashMap<>())
                    .computeIfAbsent(position, unused -> Optional.ofNullable(inverse.stored(manager)))
                    .orElse(null);
            return completed(manager.provideField(position), stored);
        }
        manager.loadField(position);
        return manager.provideField(position);
    }

    /** The value of a member in memory, with the objects that only the store has. */
    private static Object completed(Object value, Object stored) {
        if (value instanceof Collection<?> known && stored instanceof Collection<?> others) {
            List<Object> all = new ArrayList<>(known);
            others.stream().filter(each -> !known.contains(each)).forEach(all::add);
            return all;
        }
        return value == null
                        || Containers.isContainer(value)
                                && Containers.elements(value).isEmpty()
                ? stored
                : value;
    }

    /** The mapping of a member of a stored object if it is the other side of a relation, or null. */
    private MemberMapping inverse(DNStateManager manager, int position) {
        AbstractMemberMetaData member =
                manager.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position);
        boolean isStored = !query.getIgnoreCache()
                && !manager.isEmbedded()
                && manager.getLifecycleState().isPersistent();
        return member.getMappedBy() == null || !isStored
                ? null
                : ((MortarStoreManager) context.getStoreManager())
                        .mapping(manager.getClassMetaData())
                        .members()
                        .at(position);
    }

    /** Whether a type is one of persistent objects. */
    boolean isPersistent(Class<?> type) {
        return type.isInterface()
                ? context.getMetaDataManager().isPersistentInterface(type.getName())
                        || context.getMetaDataManager()
                                        .getClassesImplementingInterface(
                                                type.getName(), context.getClassLoaderResolver())
                                != null
                : context.getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver()) != null;
    }

    private AbstractMemberMetaData metadata(Class<?> type, String member) {
        AbstractClassMetaData metadata =
                context.getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver());
        return metadata == null ? null : metadata.getMetaDataForMember(member);
    }

    private boolean isEmbedded(AbstractMemberMetaData member) {
        return member != null
                && (member.isEmbedded()
                        || !RelationType.isRelationSingleValued(
                                member.getRelationType(context.getClassLoaderResolver())));
    }

    /** Whether the other side of a relation decides a member of an object. */
    boolean isInverse(Object owner, String name) {
        DNStateManager manager = context.findStateManager(owner);
        AbstractMemberMetaData member =
                manager == null ? null : manager.getClassMetaData().getMetaDataForMember(name);
        return member != null && member.getMappedBy() != null;
    }
}
