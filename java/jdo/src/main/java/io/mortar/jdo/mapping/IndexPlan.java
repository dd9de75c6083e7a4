package io.mortar.jdo.mapping;

import io.mortar.IndexDefinition;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.UUID;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ColumnMetaData;
import org.datanucleus.metadata.ConstraintMetaData;
import org.datanucleus.metadata.IdentityType;
import org.datanucleus.metadata.IndexMetaData;
import org.datanucleus.metadata.IndexedValue;
import org.datanucleus.metadata.MultitenancyMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.metadata.UniqueMetaData;
import org.datanucleus.util.NucleusLogger;

/**
 * The indexes that a class needs: of its application identity, its unique constraints, its declared indexes, and of the
 * references by which the other side of a relation finds its elements.
 */
final class IndexPlan {
    private static final int NAME_LIMIT = 255;

    private final ClassMapping type;
    private final ClassLoaderResolver loaders;
    private final Map<String, IndexDefinition> byName = new LinkedHashMap<>();
    /** The name of the index of the application identity; null if there is none. */
    private String identity;

    IndexPlan(ClassMapping type, ClassLoaderResolver loaders) {
        this.type = type;
        this.loaders = loaders;
        // Values are unique within each class that inherits a member from one without objects, so each has its own
        // indexes.
        if (type.hasObjects()) {
            addIdentity();
            addDeclared();
            addOfTenant();
            type.members().all().stream().filter(this::isOwn).forEach(mapping -> addOfMember(mapping, ""));
        }
    }

    Collection<IndexDefinition> indexes() {
        return byName.values();
    }

    Optional<String> identity() {
        return Optional.ofNullable(identity);
    }

    private boolean isOwn(MemberMapping mapping) {
        return mapping != null && mapping.position() >= type.membersIndexedAbove();
    }

    private void addIdentity() {
        AbstractClassMetaData metadata = type.metadata();
        if (metadata.getIdentityType() != IdentityType.APPLICATION || !type.declaresIdentity()) {
            return;
        }
        List<String> columns = new ArrayList<>();
        for (int position : metadata.getPKMemberPositions()) {
            columns.addAll(valueColumns(type.members().at(position)));
        }
        add(columns, true);
        identity = byName.keySet().stream().findFirst().orElse(null);
    }

    private void addDeclared() {
        List<UniqueMetaData> uniques = type.metadata().getUniqueMetaData();
        if (uniques != null) {
            uniques.forEach(unique -> add(columnsOf(unique), true));
        }
        List<IndexMetaData> indexes = type.metadata().getIndexMetaData();
        if (indexes != null) {
            indexes.forEach(index -> add(columnsOf(index), index.isUnique()));
        }
    }

    private void addOfTenant() {
        MultitenancyMetaData tenants = type.metadata().getMultitenancyMetaData();
        Column column = type.visibility().tenant();
        if (column != null
                && type.ownColumns().contains(column)
                && tenants != null
                && tenants.getIndexMetaData() != null) {
            add(List.of(column.name()), false);
        }
    }

    /** @param path the path of the object that has the member, with a dot at its end, if that is embedded */
    private void addOfMember(MemberMapping mapping, String path) {
        String name = path + mapping.member().getName();
        embedded(mapping).forEach(each -> addOfMember(each, name + '.'));
        AbstractMemberMetaData member = mapping.member();
        boolean unique = member.getUniqueMetaData() != null
                || member.isUnique()
                || member.getIndexed() == IndexedValue.UNIQUE
                || hasUniqueColumn(member);
        boolean indexed = member.getIndexMetaData() != null || member.getIndexed() == IndexedValue.TRUE;
        boolean relation = mapping instanceof ReferenceMapping && (hasInverse(member) || isMappedBy(member, name));
        if (unique || indexed || relation) {
            add(valueColumns(mapping), unique);
        }
    }

    private static boolean hasUniqueColumn(AbstractMemberMetaData member) {
        ColumnMetaData[] columns = member.getColumnMetaData();
        return columns != null && Arrays.stream(columns).anyMatch(column -> Boolean.TRUE.equals(column.getUnique()));
    }

    /** Whether the other side of the relation finds its elements by this member. */
    private boolean hasInverse(AbstractMemberMetaData member) {
        RelationType relation = member.getRelationType(loaders);
        return relation == RelationType.MANY_TO_ONE_BI
                || relation == RelationType.ONE_TO_ONE_BI && member.getMappedBy() == null;
    }

    /** The members of the object that is embedded in a member; none if it is another one. */
    private static List<MemberMapping> embedded(MemberMapping mapping) {
        return mapping instanceof EmbeddedMapping embedded ? existing(embedded.members()) : List.of();
    }

    private static List<MemberMapping> existing(MemberMappings members) {
        return members.all().stream().filter(Objects::nonNull).toList();
    }

    /** Whether the other side of a relation names the path of a member in an embedded object. */
    private boolean isMappedBy(AbstractMemberMetaData member, String path) {
        AbstractClassMetaData target =
                type.metadata().getMetaDataManager().getMetaDataForClass(member.getType(), loaders);
        return target != null
                && Arrays.stream(target.getAllMemberPositions())
                        .mapToObj(target::getMetaDataForManagedMemberAtAbsolutePosition)
                        .anyMatch(each -> path.equals(each.getMappedBy()));
    }

    /** The columns of a constraint; none if one of its members is not known or has no columns of values. */
    private List<String> columnsOf(ConstraintMetaData constraint) {
        List<List<String>> columns = new ArrayList<>();
        if (constraint.getMemberNames() != null) {
            for (String path : constraint.getMemberNames()) {
                columns.add(valueColumns(type.members().atEnd(path)));
            }
        } else if (constraint.getColumnNames() != null) {
            for (String name : constraint.getColumnNames()) {
                columns.add(valueColumns(withColumn(name, existing(type.members()))));
            }
        }
        return columns.stream().anyMatch(List::isEmpty)
                ? List.of()
                : columns.stream().flatMap(List::stream).toList();
    }

    /**
     * The mapping of the member that the metadata gives this column, or that has its name. Those of embedded objects
     * come last.
     */
    private static MemberMapping withColumn(String name, List<MemberMapping> mappings) {
        for (MemberMapping mapping : mappings) {
            ColumnMetaData[] columns = mapping.member().getColumnMetaData();
            boolean named = columns != null && columns.length == 1 && name.equalsIgnoreCase(columns[0].getName());
            if (named || mapping.member().getName().equalsIgnoreCase(name)) {
                return mapping;
            }
        }
        List<MemberMapping> inner =
                mappings.stream().flatMap(each -> embedded(each).stream()).toList();
        return inner.isEmpty() ? null : withColumn(name, inner);
    }

    private static List<String> valueColumns(MemberMapping mapping) {
        List<String> columns = new ArrayList<>();
        if (mapping instanceof EmbeddedMapping embedded) {
            embedded.members().forEachColumn(column -> columns.add(column.name()));
        } else if (mapping instanceof OptionalMapping optional) {
            return valueColumns(optional.content());
        } else if (mapping instanceof ValueMapping || mapping instanceof ReferenceMapping) {
            mapping.forEachColumn(column -> columns.add(column.name()));
        }
        return columns;
    }

    private void add(List<String> columns, boolean unique) {
        if (columns.isEmpty()) {
            NucleusLogger.DATASTORE_SCHEMA.warn(
                    "an index of " + type + " is not created: its members are not columns of values");
            return;
        }
        String name = type.name() + '.' + String.join(".", columns) + (unique ? ".unique" : "");
        byName.putIfAbsent(permitted(name), new IndexDefinition(type.name(), permitted(name), columns, unique));
    }

    /** A name as the catalogue permits it. One that must be changed has a hash, so that two do not become the same. */
    static String permitted(String name) {
        String plain = name.replaceAll("[^A-Za-z0-9_.-]", "-");
        if (plain.equals(name) && name.length() <= NAME_LIMIT) {
            return name;
        }
        String hash = '-'
                + UUID.nameUUIDFromBytes(name.getBytes(StandardCharsets.UTF_8))
                        .toString()
                        .substring(0, 8);
        return plain.substring(Math.max(0, plain.length() + hash.length() - NAME_LIMIT)) + hash;
    }
}
