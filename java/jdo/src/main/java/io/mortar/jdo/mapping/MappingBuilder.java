package io.mortar.jdo.mapping;

import io.mortar.FieldType;
import io.mortar.jdo.LargeObject;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Calendar;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.PersistenceNucleusContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractElementMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ColumnMetaData;
import org.datanucleus.metadata.EmbeddedMetaData;
import org.datanucleus.metadata.FieldPersistenceModifier;
import org.datanucleus.metadata.FieldRole;
import org.datanucleus.metadata.InterfaceMetaData;
import org.datanucleus.metadata.MapMetaData;
import org.datanucleus.metadata.MetaDataManager;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.metadata.VersionMetaData;
import org.datanucleus.metadata.VersionStrategy;

/** Builds the mapping of a class from its metadata. */
final class MappingBuilder {
    private static final String VERSION = "_version";
    private static final String TENANT = "_tenant";
    private static final String DELETED = "_deleted";
    /** Of embedded objects: the name of their class if it is a subclass of the declared one. */
    private static final String CLASS = "_class";
    /** Of calendars whose time zone is kept. */
    private static final String ZONE = "_zone";
    /** Deeper embedded objects would be of a class that embeds itself. */
    private static final int EMBEDDED_DEPTH = 8;

    private final PersistenceNucleusContext nucleus;
    private final MetaDataManager metadata;
    private final ClassLoaderResolver loaders;
    private final ValueCodecs codecs;

    MappingBuilder(PersistenceNucleusContext nucleus, ClassLoaderResolver loaders) {
        this.nucleus = nucleus;
        this.metadata = nucleus.getMetaDataManager();
        this.loaders = loaders;
        this.codecs = new ValueCodecs(nucleus.getTypeManager(), loaders);
    }

    /** The mapping of a class whose superclass has the mapping `parent`. */
    ClassMapping build(AbstractClassMetaData type, ClassMapping parent) {
        UnstoredMembers.report(type, StoreSchema.isJakarta(nucleus));
        Set<String> taken = new HashSet<>();
        for (ClassMapping above = parent; above != null; above = above.parent()) {
            above.ownColumns().forEach(column -> taken.add(column.name()));
        }
        int inherited = parent == null ? 0 : parent.members().all().size();
        List<MemberMapping> mappings = new ArrayList<>();
        List<Column> columns = new ArrayList<>();
        for (int position = 0; position < type.getMemberCount(); position++) {
            MemberMapping mapping = position < inherited ? parent.members().at(position) : null;
            AbstractMemberMetaData member = type.getMetaDataForManagedMemberAtAbsolutePosition(position);
            boolean isPersistent = member.getPersistenceModifier() == FieldPersistenceModifier.PERSISTENT;
            if (mapping == null && isPersistent && (ClassMapping.hasObjects(type) || !hasOpenType(member))) {
                // A subclass may have a private field of the same name.
                String prefix = taken.contains(member.getName()) ? type.getName() + "_" : "";
                mapping = member(member, prefix, 0);
                mapping.forEachColumn(columns::add);
            }
            mappings.add(mapping);
        }
        Column version = parent == null ? null : parent.version();
        VersionMetaData versions = type.getVersionMetaDataForClass();
        if (version == null && versions != null && versions.getMemberName() == null) {
            boolean isTime = versions.getStrategy() == VersionStrategy.DATE_TIME;
            version = Column.optional(VERSION, isTime ? FieldType.TIMESTAMP : FieldType.INT64);
            columns.add(version);
        }
        Visibility visibility = visibility(type, parent, columns);
        return new ClassMapping(type, parent, new MemberMappings(type, mappings), columns, version, visibility);
    }

    /**
     * Whether the type of a member is a type variable that a subclass replaces. Such a member is stored with the
     * subclass.
     */
    static boolean hasOpenType(AbstractMemberMetaData member) {
        Type declared = member.getMemberRepresented() instanceof Field field
                ? field.getGenericType()
                : member.getMemberRepresented() instanceof Method method ? method.getGenericReturnType() : null;
        if (!(declared instanceof TypeVariable<?> variable)) {
            return false;
        }
        // DataNucleus gives the member of a class that replaces the variable another type than the variable's bound.
        Type bound = variable.getBounds()[0] instanceof ParameterizedType generic
                ? generic.getRawType()
                : variable.getBounds()[0];
        return member.getType() == bound;
    }

    private static Visibility visibility(AbstractClassMetaData type, ClassMapping parent, List<Column> columns) {
        Visibility inherited = parent == null ? Visibility.ALL : parent.visibility();
        Column tenant = inherited.tenant();
        if (tenant == null && type.getMultitenancyMetaData() != null) {
            tenant = Column.optional(TENANT, FieldType.STRING);
            addToTopmost(type, parent, tenant, columns);
        }
        Column deleted = inherited.deleted();
        if (deleted == null && type.isSoftDelete()) {
            deleted = Column.optional(DELETED, FieldType.BOOL);
            addToTopmost(type, parent, deleted, columns);
        }
        if (tenant != null) {
            // Persistence contexts of several tenants share the second-level cache.
            type.setCacheable(false);
        }
        return new Visibility(tenant, deleted);
    }

    /**
     * Adds a column by which queries filter. Queries of a superclass find objects of its subclasses, so it must have
     * the column too.
     */
    private static void addToTopmost(
            AbstractClassMetaData type, ClassMapping parent, Column column, List<Column> columns) {
        for (ClassMapping above = parent; above != null; above = above.parent()) {
            if (!above.metadata().isMappedSuperclass()) {
                throw new NucleusUserException(
                        type.getFullClassName() + " has tenants or soft delete, and its superclass " + above.name()
                                + " has not; declare them there");
            }
        }
        columns.add(column);
    }

    private MemberMapping member(AbstractMemberMetaData member, String prefix, int depth) {
        String name = prefix + member.getName();
        RelationType relation = member.getRelationType(loaders);
        if (member.getType() == LargeObject.class) {
            return new LargeObjectMapping(member, Column.content(name));
        }
        if (member.isSerialized() && nucleus.getApiAdapter().isPersistable(member.getType())) {
            ValueCodec codec = codecs.serialized();
            return new SerializedObjectMapping(member, Column.optional(name, codec.type()), codec);
        }
        if (member.isSerialized()) {
            return value(member, name, codecs.serialized());
        }
        if (Optional.class.isAssignableFrom(member.getType())) {
            return optional(member, name, relation, depth);
        }
        if (RelationType.isRelationSingleValued(relation)) {
            return single(member, name, member.getType(), depth);
        }
        if (isContainer(member)) {
            return container(member, name, relation, depth);
        }
        ValueCodec codec = codecs.of(member.getType(), member, FieldRole.ROLE_FIELD);
        if (Calendar.class.isAssignableFrom(member.getType())
                && codec.type().equals(FieldType.TIMESTAMP)
                && hasTwoColumns(member)) {
            return new ZonedCalendarMapping(
                    member, Column.optional(name, codec.type()), Column.optional(name + ZONE, FieldType.STRING), codec);
        }
        return value(member, name, codec);
    }

    private static boolean hasTwoColumns(AbstractMemberMetaData member) {
        ColumnMetaData[] columns = member.getColumnMetaData();
        return columns != null && columns.length == 2;
    }

    private MemberMapping value(AbstractMemberMetaData member, String name, ValueCodec codec) {
        Column column = codec.zero() == null
                ? Column.optional(name, codec.type())
                : Column.required(name, codec.type(), codec.zero());
        return new ValueMapping(member, column, codec);
    }

    private MemberMapping optional(AbstractMemberMetaData member, String name, RelationType relation, int depth) {
        Class<?> content = loaders.classForName(member.getCollection().getElementType());
        if (relation != RelationType.NONE) {
            return new OptionalMapping(single(member, name, content, depth));
        }
        ValueCodec codec = codecs.of(content, member, FieldRole.ROLE_COLLECTION_ELEMENT);
        return new OptionalMapping(new ValueMapping(member, Column.optional(name, codec.type()), codec));
    }

    private MemberMapping single(AbstractMemberMetaData member, String name, Class<?> type, int depth) {
        AbstractClassMetaData target =
                type.isInterface() ? embeddedType(member, type) : metadata.getMetaDataForClass(type, loaders);
        if (target != null && (member.isEmbedded() || target.isEmbeddedOnly())) {
            Column presence = Column.optional(name, FieldType.BOOL);
            return new EmbeddedMapping(
                    member, presence, form(target, member, member.getEmbeddedMetaData(), name + "_", depth));
        }
        if (target != null
                && member.getMappedBy() != null
                && member.getRelationType(loaders) == RelationType.ONE_TO_ONE_BI) {
            return new InverseMapping(member, target);
        }
        return new ReferenceMapping(member, Column.optional(name, reference(target)));
    }

    /** The class of the objects in a member of an interface if these are embedded; null if they are not. */
    private AbstractClassMetaData embeddedType(AbstractMemberMetaData member, Class<?> type) {
        String[] types = member.getFieldTypes();
        Class<?> stored = types != null && types.length == 1 ? loaders.classForName(types[0]) : type;
        AbstractClassMetaData target = stored.isInterface()
                ? metadata.getMetaDataForInterface(stored, loaders)
                : metadata.getMetaDataForClass(stored, loaders);
        if (target == null || !member.isEmbedded() && !target.isEmbeddedOnly()) {
            return null;
        }
        // DataNucleus looks at the interface that the member declares, and would store the object on its own.
        member.setEmbedded(true);
        return implementation(target);
    }

    /** The generated class of a persistent interface; a class itself. */
    private AbstractClassMetaData implementation(AbstractClassMetaData type) {
        return type instanceof InterfaceMetaData
                ? metadata.getMetaDataForImplementationOfReference(
                        loaders.classForName(type.getFullClassName()), null, loaders)
                : type;
    }

    /** The type of a reference to an object of a class or an interface. */
    private static FieldType reference(AbstractClassMetaData target) {
        return target == null || target instanceof InterfaceMetaData
                ? FieldType.REFERENCE
                : FieldType.reference(target.getFullClassName());
    }

    /**
     * How objects that are embedded in a member are stored.
     *
     * @param settings what the metadata of the member, or of its elements, keys or values, says about that; null for
     *     nothing
     */
    private EmbeddedForm form(
            AbstractClassMetaData type,
            AbstractMemberMetaData in,
            EmbeddedMetaData settings,
            String prefix,
            int depth) {
        if (depth == EMBEDDED_DEPTH) {
            throw new NucleusUserException(in.getFullFieldName() + " is embedded in objects of its own class");
        }
        String owner = settings == null ? null : settings.getOwnerMember();
        MemberMappings declared = embedded(type, List.of(), owner, prefix, depth);
        boolean isPolymorphic =
                type.hasDiscriminatorStrategy() || settings != null && settings.getDiscriminatorMetaData() != null;
        if (!isPolymorphic) {
            return new EmbeddedForm(declared, null, Map.of(), owner);
        }
        Map<String, MemberMappings> mapped = new LinkedHashMap<>();
        mapped.put(type.getFullClassName(), declared);
        for (String name : subclasses(type)) {
            addSubclass(metadata.getMetaDataForClass(name, loaders), mapped, owner, prefix, depth);
        }
        mapped.remove(type.getFullClassName());
        return new EmbeddedForm(declared, Column.optional(prefix + CLASS, FieldType.STRING), mapped, owner);
    }

    private Collection<String> subclasses(AbstractClassMetaData type) {
        String[] names = metadata.getSubclassesForClass(type.getFullClassName(), true);
        return names == null ? List.of() : new TreeSet<>(Arrays.asList(names));
    }

    /** Maps a subclass of an embedded class, after its superclass. */
    private MemberMappings addSubclass(
            AbstractClassMetaData type, Map<String, MemberMappings> mapped, String owner, String prefix, int depth) {
        MemberMappings known = mapped.get(type.getFullClassName());
        if (known != null) {
            return known;
        }
        MemberMappings above = addSubclass(type.getSuperAbstractClassMetaData(), mapped, owner, prefix, depth);
        MemberMappings members = embedded(type, above.all(), owner, prefix + type.getName() + '_', depth);
        mapped.put(type.getFullClassName(), members);
        return members;
    }

    private MemberMappings embedded(
            AbstractClassMetaData type, List<MemberMapping> inherited, String owner, String prefix, int depth) {
        UnstoredMembers.report(type, StoreSchema.isJakarta(nucleus));
        List<MemberMapping> mappings = new ArrayList<>(inherited);
        for (int position = inherited.size(); position < type.getMemberCount(); position++) {
            AbstractMemberMetaData member = type.getMetaDataForManagedMemberAtAbsolutePosition(position);
            boolean stored = member.getPersistenceModifier() == FieldPersistenceModifier.PERSISTENT
                    && !member.getName().equals(owner);
            mappings.add(stored ? member(member, prefix, depth + 1) : null);
        }
        return new MemberMappings(type, mappings);
    }

    private boolean isContainer(AbstractMemberMetaData member) {
        Class<?> type = member.getType();
        boolean asOne = type == byte[].class || type == Byte[].class || type == char[].class;
        boolean converted = member.getTypeConverterName() != null
                || nucleus.getTypeManager().getAutoApplyTypeConverterForType(type) != null;
        return !asOne && !converted && (member.hasCollection() || member.hasMap() || member.hasArray());
    }

    private MemberMapping container(AbstractMemberMetaData member, String name, RelationType relation, int depth) {
        if (member.hasMap()) {
            return map(member, name, relation, depth);
        }
        boolean isArray = member.hasArray();
        Class<?> elementType = isArray
                ? member.getType().getComponentType()
                : loaders.classForName(member.getCollection().getElementType());
        AbstractClassMetaData target = isArray
                ? member.getArray().getElementClassMetaData(loaders)
                : member.getCollection().getElementClassMetaData(loaders);
        boolean embedded = isArray
                ? member.getArray().isEmbeddedElement()
                : member.getCollection().isEmbeddedElement();
        boolean serialized = isArray
                ? member.getArray().isSerializedElement()
                : member.getCollection().isSerializedElement();
        if (target != null && !serialized && (embedded || target.isEmbeddedOnly())) {
            PersistableObjectType type = isArray
                    ? PersistableObjectType.EMBEDDED_ARRAY_ELEMENT_PC
                    : PersistableObjectType.EMBEDDED_COLLECTION_ELEMENT_PC;
            return new EmbeddedElementsMapping(
                    member,
                    Column.optional(name, FieldType.INT64),
                    null,
                    part(target, member, embeddedMetaData(member.getElementMetaData()), name + "_", type, depth));
        }
        // The classes that implement an interface have no common class in which to look for the elements.
        if (target != null && !(target instanceof InterfaceMetaData) && isInverse(member, relation)) {
            return new InverseMapping(member, target);
        }
        FieldRole role = isArray ? FieldRole.ROLE_ARRAY_ELEMENT : FieldRole.ROLE_COLLECTION_ELEMENT;
        Element element = element(member, role, elementType, target, relation, serialized);
        boolean isSet = Set.class.isAssignableFrom(member.getType()) && member.getOrderMetaData() == null;
        FieldType type = isSet ? FieldType.set(element.type()) : FieldType.list(element.type());
        return new ContainerMapping(
                member,
                Column.optional(name, type),
                isSet ? ContainerMapping.Shape.SET : ContainerMapping.Shape.LIST,
                null,
                element);
    }

    /**
     * Whether the elements own the relation and can be found by their references. The order of a list is kept by its
     * owner.
     */
    private boolean isInverse(AbstractMemberMetaData member, RelationType relation) {
        if (member.getMappedBy() == null) {
            return false;
        }
        if (relation == RelationType.MANY_TO_MANY_BI) {
            return Collection.class.isAssignableFrom(member.getType());
        }
        if (relation != RelationType.ONE_TO_MANY_BI) {
            return false;
        }
        if (!List.class.isAssignableFrom(member.getType())) {
            return Collection.class.isAssignableFrom(member.getType()) || member.hasMap();
        }
        return member.getOrderMetaData() == null
                ? StoreSchema.isJakarta(nucleus)
                : !member.getOrderMetaData().isIndexedList();
    }

    private Element element(
            AbstractMemberMetaData member,
            FieldRole role,
            Class<?> type,
            AbstractClassMetaData target,
            RelationType relation,
            boolean serialized) {
        if (serialized) {
            return new Element(FieldType.BYTES, codecs.serialized());
        }
        if (target != null) {
            return new Element(reference(target), null);
        }
        if (relation != RelationType.NONE && (type.isInterface() || type == Object.class)) {
            return new Element(FieldType.REFERENCE, null);
        }
        if (type == LargeObject.class) {
            throw noElement(member);
        }
        ValueCodec codec = codecs.of(type, member, role);
        return new Element(codec.type(), codec);
    }

    private static NucleusUserException noElement(AbstractMemberMetaData member) {
        return new NucleusUserException(member.getFullFieldName()
                + " has large objects in a collection, an array or a map; " + "give each an object of its own");
    }

    private MemberMapping map(AbstractMemberMetaData member, String name, RelationType relation, int depth) {
        MapMetaData map = member.getMap();
        AbstractClassMetaData keyClass = map.getKeyClassMetaData(loaders);
        AbstractClassMetaData valueClass = map.getValueClassMetaData(loaders);
        if (isInverse(member, relation)) {
            boolean hasKeys = member.getValueMetaData() != null
                    && member.getValueMetaData().getMappedBy() != null;
            if ((hasKeys ? keyClass : valueClass) != null) {
                return new InverseMapping(member, hasKeys ? keyClass : valueClass);
            }
        }
        boolean keyEmbedded =
                keyClass != null && !map.isSerializedKey() && (map.isEmbeddedKey() || keyClass.isEmbeddedOnly());
        boolean valueEmbedded = valueClass != null
                && !map.isSerializedValue()
                && (map.isEmbeddedValue() || valueClass.isEmbeddedOnly());
        RelationType ofKey = map.keyIsPersistent() ? relation : RelationType.NONE;
        RelationType ofValue = map.valueIsPersistent() ? relation : RelationType.NONE;
        Element key = keyEmbedded
                ? null
                : element(
                        member,
                        FieldRole.ROLE_MAP_KEY,
                        loaders.classForName(map.getKeyType()),
                        keyClass,
                        ofKey,
                        map.isSerializedKey());
        Element value = valueEmbedded
                ? null
                : element(
                        member,
                        FieldRole.ROLE_MAP_VALUE,
                        loaders.classForName(map.getValueType()),
                        valueClass,
                        ofValue,
                        map.isSerializedValue());
        if (key != null && value != null) {
            Column column = Column.optional(name, FieldType.map(key.type(), value.type()));
            return new ContainerMapping(member, column, ContainerMapping.Shape.MAP, key, value);
        }
        return new EmbeddedElementsMapping(
                member,
                Column.optional(name, FieldType.INT64),
                key == null
                        ? part(
                                keyClass,
                                member,
                                embeddedMetaData(member.getKeyMetaData()),
                                name + "_key_",
                                PersistableObjectType.EMBEDDED_MAP_KEY_PC,
                                depth)
                        : EmbeddedElementsMapping.Part.plain(
                                Column.optional(name + "_key", FieldType.list(key.type())), key),
                value == null
                        ? part(
                                valueClass,
                                member,
                                embeddedMetaData(member.getValueMetaData()),
                                name + "_",
                                PersistableObjectType.EMBEDDED_MAP_VALUE_PC,
                                depth)
                        : EmbeddedElementsMapping.Part.plain(
                                Column.optional(name + "_value", FieldType.list(value.type())), value));
    }

    private EmbeddedElementsMapping.Part part(
            AbstractClassMetaData type,
            AbstractMemberMetaData member,
            EmbeddedMetaData settings,
            String prefix,
            PersistableObjectType objectType,
            int depth) {
        EmbeddedForm form = form(type, member, settings, prefix, depth);
        form.forEachColumn(column -> {
            if (column.isContent()) {
                throw noElement(member);
            }
        });
        Map<Column, Column> lists = new LinkedHashMap<>();
        form.forEachColumn(column -> lists.put(column, Column.optional(column.name(), FieldType.list(column.type()))));
        return EmbeddedElementsMapping.Part.embedded(form, lists, objectType);
    }

    private static EmbeddedMetaData embeddedMetaData(AbstractElementMetaData part) {
        return part == null ? null : part.getEmbeddedMetaData();
    }
}
