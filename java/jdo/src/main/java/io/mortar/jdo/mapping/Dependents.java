package io.mortar.jdo.mapping;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;

/**
 * Which objects of a member are deleted with their owner, and which also when they are removed from it.
 *
 * <p>DataNucleus deletes a dependent object when it is removed from a container, at once or in the order of the
 * changes, whatever has become of it: also one that only gets another place in its list, or another owner. The plugin
 * decides that after the flush. So it takes these properties out of the metadata that DataNucleus reads, and keeps them
 * in an extension of the metadata.
 */
public final class Dependents {
    private static final String EXTENSION = "mortar-dependent";
    private static final String ELEMENTS = "elements";
    private static final String KEYS = "keys";
    private static final String VALUES = "values";
    private static final String OBJECT = "object";
    private static final String REMOVED = "removed";

    private Dependents() {}

    /**
     * Takes the properties of the members of a class over from DataNucleus.
     *
     * @param isJakarta whether an object that is removed from its owner is deleted only if the metadata has
     *     {@code orphanRemoval}; in JDO every dependent object is
     */
    public static void takeOver(AbstractClassMetaData metadata, boolean isJakarta) {
        for (int position = 0; position < metadata.getMemberCount(); position++) {
            AbstractMemberMetaData member = metadata.getMetaDataForManagedMemberAtAbsolutePosition(position);
            if (!member.hasExtension(EXTENSION)) {
                member.addExtension(EXTENSION, String.join(" ", takeOver(member, isJakarta)));
            }
        }
    }

    private static List<String> takeOver(AbstractMemberMetaData member, boolean isJakarta) {
        List<String> properties = new ArrayList<>();
        boolean hasOrphans = member.isCascadeRemoveOrphans();
        if (member.getCollection() != null
                && (hasOrphans || member.getCollection().isDependentElement())) {
            properties.add(ELEMENTS);
            member.getCollection().setDependentElement(false);
        }
        if (member.getArray() != null && (hasOrphans || member.getArray().isDependentElement())) {
            properties.add(ELEMENTS);
            member.getArray().setDependentElement(false);
        }
        if (member.getMap() != null && member.getMap().isDependentKey()) {
            properties.add(KEYS);
            member.getMap().setDependentKey(false);
        }
        if (member.getMap() != null && (hasOrphans || member.getMap().isDependentValue())) {
            properties.add(VALUES);
            member.getMap().setDependentValue(false);
        }
        if (hasOrphans || member.isDependent()) {
            properties.add(OBJECT);
        }
        if (hasOrphans || !isJakarta) {
            properties.add(REMOVED);
        } else {
            member.setDependent(false);
        }
        return properties;
    }

    /** Whether the properties of a member were taken over: its class is known to the store. */
    public static boolean areKnown(AbstractMemberMetaData member) {
        return member.hasExtension(EXTENSION);
    }

    /** Whether the elements of an array or a collection are deleted with their owner. */
    public static boolean elements(AbstractMemberMetaData member) {
        return has(member, ELEMENTS);
    }

    /** Whether the keys of a map are deleted with their owner. */
    public static boolean keys(AbstractMemberMetaData member) {
        return has(member, KEYS);
    }

    /** Whether the values of a map are deleted with their owner. */
    public static boolean values(AbstractMemberMetaData member) {
        return has(member, VALUES);
    }

    /** Whether the object that a member refers to is deleted with its owner. */
    public static boolean object(AbstractMemberMetaData member) {
        return has(member, OBJECT);
    }

    /** Runs an action for each object in the value of a member that is deleted with its owner. */
    public static void forEach(AbstractMemberMetaData member, Object value, Consumer<Object> action) {
        List<Object> dependents = new ArrayList<>();
        if (value instanceof Map<?, ?> map) {
            dependents.addAll(keys(member) ? map.keySet() : List.of());
            dependents.addAll(values(member) ? map.values() : List.of());
        } else if (Containers.isContainer(value)) {
            dependents.addAll(elements(member) ? Containers.elements(value) : List.of());
        } else if (value != null && object(member)) {
            dependents.add(value);
        }
        dependents.forEach(action);
    }

    /** Whether objects that are deleted with their owner are also deleted when they are removed from it. */
    static boolean removed(AbstractMemberMetaData member) {
        return has(member, REMOVED);
    }

    private static boolean has(AbstractMemberMetaData member, String property) {
        String properties = member.getValueForExtension(EXTENSION);
        if (properties == null) {
            throw new IllegalStateException(member.getFullFieldName() + " is not a member of a class of the store");
        }
        return List.of(properties.split(" ")).contains(property);
    }
}
