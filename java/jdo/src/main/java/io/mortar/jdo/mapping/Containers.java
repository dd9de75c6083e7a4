package io.mortar.jdo.mapping;

import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.ExecutionContext;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.OrderMetaData;
import org.datanucleus.metadata.PropertyMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.types.SCO;
import org.datanucleus.store.types.SCOUtils;

/** Takes arrays, collections and maps apart, and builds those of the type of a member. */
public final class Containers {
    private Containers() {}

    /** A copy of the elements of an array or a collection, or of the values of a map. */
    public static List<Object> elements(Object container) {
        if (container instanceof PriorityQueue<?> queue) {
            return inOrder(queue);
        }
        if (container instanceof Collection<?> collection) {
            return new ArrayList<>(collection);
        }
        if (container instanceof Map<?, ?> map) {
            return new ArrayList<>(map.values());
        }
        List<Object> elements = new ArrayList<>(Array.getLength(container));
        for (int i = 0; i < Array.getLength(container); i++) {
            elements.add(Array.get(container, i));
        }
        return elements;
    }

    /** The elements of a queue as it would give them; its iterator has no order. */
    private static List<Object> inOrder(PriorityQueue<?> queue) {
        List<Object> elements = new ArrayList<>(queue);
        PriorityQueue<?> ordered = queue instanceof SCO<?> wrapper ? (PriorityQueue<?>) wrapper.getValue() : queue;
        elements.sort((Comparator<Object>) ordered.comparator());
        return elements;
    }

    /**
     * Replaces a value of a member by one that notices its changes: a collection or a date. The setter of a property
     * may read the value, so it is complete before the setter gets it.
     *
     * @return the value that the member has now
     */
    static Object wrap(DNStateManager owner, int position, Object value) {
        boolean isProperty = owner.getClassMetaData().getMetaDataForManagedMemberAtAbsolutePosition(position)
                instanceof PropertyMetaData;
        Object wrapped = SCOUtils.wrapSCOField(owner, position, value, !isProperty);
        if (isProperty && wrapped != value) {
            owner.replaceField(position, wrapped);
        }
        return wrapped;
    }

    /** Whether a value has elements. */
    public static boolean isContainer(Object value) {
        return value instanceof Collection
                || value instanceof Map
                || value != null && value.getClass().isArray();
    }

    /** The array or collection with these elements. */
    static Object build(ExecutionContext context, AbstractMemberMetaData member, List<Object> elements) {
        if (member.getType().isArray()) {
            Object array = Array.newInstance(member.getType().getComponentType(), elements.size());
            for (int i = 0; i < elements.size(); i++) {
                Array.set(array, i, elements.get(i));
            }
            return array;
        }
        Collection<Object> collection = newCollection(context, member);
        elements.forEach(element -> addExisting(context, element, () -> collection.add(element)));
        return collection;
    }

    /**
     * Adds an element to a container, unless it is deleted. That it is may show only when its hash code or its order is
     * computed. A reference to a deleted object does not keep its holder from being read.
     */
    static void addExisting(ExecutionContext context, Object element, Runnable add) {
        if (element instanceof Persistable && context.getApiAdapter().isDeleted(element)) {
            return;
        }
        try {
            add.run();
        } catch (RuntimeException error) {
            if (!isMissing(context, element, error)) {
                throw error;
            }
        }
    }

    private static boolean isMissing(ExecutionContext context, Object element, Throwable error) {
        Object id = context.getApiAdapter().getIdForObject(element);
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof NucleusObjectNotFoundException missing) {
                return id != null && id.equals(missing.getFailedObject());
            }
        }
        return false;
    }

    static Collection<Object> newCollection(ExecutionContext context, AbstractMemberMetaData member) {
        Comparator<Object> comparator = comparator(context, member);
        if (comparator != null && SortedSet.class.isAssignableFrom(member.getType())) {
            return new TreeSet<>(comparator);
        }
        if (Queue.class.isAssignableFrom(member.getType())) {
            return newQueue(member.getType(), comparator);
        }
        return instantiate(SCOUtils.getContainerInstanceType(member.getType(), member.getOrderMetaData() != null));
    }

    /**
     * A queue. One that is declared by an interface is in the order of insertion unless the metadata has a comparator.
     */
    private static Collection<Object> newQueue(Class<?> type, Comparator<Object> comparator) {
        if (comparator != null && type.isAssignableFrom(PriorityQueue.class)) {
            return new PriorityQueue<>(comparator);
        }
        return type.isInterface() ? new LinkedList<>() : instantiate(type);
    }

    static Map<Object, Object> newMap(ExecutionContext context, AbstractMemberMetaData member) {
        Comparator<Object> comparator = comparator(context, member);
        if (comparator != null && SortedMap.class.isAssignableFrom(member.getType())) {
            return new TreeMap<>(comparator);
        }
        return instantiate(SCOUtils.getContainerInstanceType(member.getType(), null));
    }

    /**
     * Sorts persistent objects as the metadata of a member says, if it gives an order by their members. Objects that no
     * longer exist are left out.
     */
    static void sort(ExecutionContext context, AbstractMemberMetaData member, List<Object> elements) {
        OrderMetaData order = member.getOrderMetaData();
        if (order == null || order.isIndexedList() && order.getMappedBy() == null) {
            return;
        }
        ClassLoaderResolver loaders = context.getClassLoaderResolver();
        // Elements may have been given other positions by the application.
        List<OrderMetaData.FieldOrder> keys = order.getMappedBy() != null
                ? List.of(new OrderMetaData.FieldOrder(order.getMappedBy()))
                : orderKeys(
                        order,
                        member.hasArray()
                                ? member.getArray().getElementClassMetaData(loaders)
                                : member.getCollection().getElementClassMetaData(loaders));
        if (keys.isEmpty()) {
            return;
        }
        elements.removeIf(element -> !exists(context, element, keys.get(0).getFieldName()));
        elements.sort((left, right) -> {
            for (OrderMetaData.FieldOrder key : keys) {
                Comparable<Object> first = (Comparable<Object>) value(context, left, key.getFieldName());
                Object second = value(context, right, key.getFieldName());
                int result = first == null || second == null
                        ? Boolean.compare(first != null, second != null)
                        : first.compareTo(second);
                if (result != 0) {
                    return key.isForward() ? result : -result;
                }
            }
            return 0;
        });
    }

    /**
     * The members by which objects of a class are ordered: those of their primary key if the order names none, as
     * {@code @OrderBy} alone.
     */
    public static List<OrderMetaData.FieldOrder> orderKeys(OrderMetaData order, AbstractClassMetaData type) {
        OrderMetaData.FieldOrder[] named = order.getFieldOrders();
        if (named != null && named.length > 0) {
            return List.of(named);
        }
        if (type == null || order.getOrdering() == null || !order.getOrdering().isBlank()) {
            return List.of();
        }
        int[] positions = type.getPKMemberPositions();
        return IntStream.of(positions == null ? new int[0] : positions)
                .mapToObj(type::getMetaDataForManagedMemberAtAbsolutePosition)
                .map(key -> new OrderMetaData.FieldOrder(key.getName()))
                .toList();
    }

    /** Whether a persistent object exists, one of whose members is needed. */
    private static boolean exists(ExecutionContext context, Object element, String name) {
        try {
            value(context, element, name);
            return true;
        } catch (NucleusObjectNotFoundException missing) {
            return false;
        }
    }

    private static Object value(ExecutionContext context, Object element, String name) {
        DNStateManager manager = context.findStateManager(element);
        int position = manager.getClassMetaData().getAbsolutePositionOfMember(name);
        manager.loadField(position);
        Object value = manager.provideField(position);
        if (value != null && !(value instanceof Comparable)) {
            throw new NucleusUserException(manager.getClassMetaData().getFullClassName() + '.' + name
                    + " cannot be the order of a list: values of "
                    + value.getClass().getName() + " have none");
        }
        return value;
    }

    private static Comparator<Object> comparator(ExecutionContext context, AbstractMemberMetaData member) {
        return SCOUtils.getComparator(member, context.getClassLoaderResolver());
    }

    private static <T> T instantiate(Class<?> type) {
        try {
            return (T) type.getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException error) {
            throw new NucleusException("a " + type.getName() + " cannot be created", error);
        }
    }
}
