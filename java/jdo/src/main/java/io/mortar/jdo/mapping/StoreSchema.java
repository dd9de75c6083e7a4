package io.mortar.jdo.mapping;

import io.mortar.AlreadyExistsException;
import io.mortar.ClassDefinition;
import io.mortar.Client;
import io.mortar.ConflictException;
import io.mortar.EvolutionStep;
import io.mortar.FieldDefinition;
import io.mortar.FieldType;
import io.mortar.IndexDefinition;
import io.mortar.InvalidRequestException;
import io.mortar.MortarException;
import io.mortar.Schema;
import io.mortar.SchemaClass;
import io.mortar.SchemaField;
import io.mortar.SchemaIndex;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.NucleusContext;
import org.datanucleus.PersistenceNucleusContext;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.util.NucleusLogger;

/**
 * The mappings of the persistent classes, and the classes of the space that they are stored in.
 *
 * <p>A class that the space does not have is created. A field that it lacks is added, and one with a narrower type is
 * widened; nothing else is changed, so programs with older and newer versions of a class can run at the same time.
 */
public final class StoreSchema {
    /** Attempts while other programs change the schema. */
    private static final int ATTEMPTS = 8;
    /** The most that {@link Client#define(List)} accepts. */
    private static final int CLASSES_IN_A_CALL = 40;

    private static final long INDEX_POLL_MS = 5;
    private static final long INDEX_WAIT_MS = 60_000;

    /**
     * What may be created.
     *
     * @param classes whether missing classes are created
     * @param fields whether missing fields are added
     * @param indexes whether missing indexes are created
     */
    public record Permissions(boolean classes, boolean fields, boolean indexes) {}

    private final Client client;
    private final PersistenceNucleusContext nucleus;
    private volatile Permissions permissions;
    private final Map<String, ClassMapping> mappings = new ConcurrentHashMap<>();
    private final Map<Integer, ClassMapping> byNumber = new ConcurrentHashMap<>();
    /** The names of the unique indexes of application identities. */
    private final Set<String> identityIndexes = ConcurrentHashMap.newKeySet();

    private volatile Map<Integer, String> classNames = Map.of();

    public StoreSchema(Client client, PersistenceNucleusContext nucleus, Permissions permissions) {
        this.client = client;
        this.nucleus = nucleus;
        this.permissions = permissions;
    }

    /** Whether the program uses Jakarta Persistence; otherwise it uses JDO. */
    public static boolean isJakarta(NucleusContext nucleus) {
        return nucleus.getApiName().equalsIgnoreCase("Jakarta");
    }

    /** The mapping of a class that has been added. */
    public ClassMapping mapping(AbstractClassMetaData metadata) {
        ClassMapping mapping = mappings.get(metadata.getFullClassName());
        if (mapping == null) {
            throw new NucleusUserException(metadata.getFullClassName() + " is not a persistent class of its own");
        }
        return mapping;
    }

    /** Whether an index is that of an application identity. */
    public boolean isIdentityIndex(String index) {
        return identityIndexes.contains(index);
    }

    public boolean has(String className) {
        return mappings.containsKey(className);
    }

    /** The mapping of the class with a number, or null if it has not been added. */
    public ClassMapping mapping(int number) {
        return byNumber.get(number);
    }

    /** The name of the class with a number, which an identifier contains. */
    public String className(int number) {
        String name = classNames.get(number);
        if (name == null) {
            try {
                rememberNames(client.schema());
            } catch (MortarException error) {
                throw new NucleusDataStoreException(
                        "the classes of the space " + client.space() + " cannot be read: " + error.getMessage(), error);
            }
            name = classNames.get(number);
        }
        if (name == null) {
            throw new NucleusDataStoreException("the space " + client.space() + " has no class with the number "
                    + number + ", which an identifier contains: is it of another space, or was its class removed?");
        }
        return name;
    }

    private void rememberNames(Schema schema) {
        Map<Integer, String> names = new HashMap<>();
        schema.classes().forEach(each -> names.put(each.number(), each.name()));
        classNames = names;
    }

    /** Sets what may be created from now on. */
    public void permit(Permissions permitted) {
        permissions = permitted;
    }

    /** Adds classes, and creates what the space lacks for them. */
    public synchronized void add(Collection<? extends AbstractClassMetaData> classes, ClassLoaderResolver loaders) {
        MappingBuilder builder = new MappingBuilder(nucleus, loaders);
        Map<String, ClassMapping> added = new LinkedHashMap<>();
        for (AbstractClassMetaData metadata : classes) {
            build(metadata, builder, added);
        }
        if (added.isEmpty()) {
            return;
        }
        buildReferred(builder, added, loaders);
        Schema schema = synchronize(added.values());
        bind(added.values(), schema);
        createIndexes(added.values(), loaders);
        added.values().forEach(mapping -> byNumber.put(mapping.number(), mapping));
        mappings.putAll(added);
    }

    /** Fails if the space lacks a class or a field of a class. */
    public void validate(Collection<? extends AbstractClassMetaData> classes, ClassLoaderResolver loaders) {
        new StoreSchema(client, nucleus, new Permissions(false, false, false)).add(classes, loaders);
    }

    /** Removes the classes with these names that the space has, with their indexes. They must have no objects. */
    public synchronized void remove(Collection<String> names) {
        Schema schema = client.schema();
        List<SchemaClass> stored = schema.classes().stream()
                .filter(each -> names.contains(each.name()))
                .toList();
        Set<Integer> numbers = stored.stream().map(SchemaClass::number).collect(Collectors.toSet());
        schema.indexes().stream()
                .filter(index -> numbers.contains(index.classNumber()))
                .forEach(index -> client.removeIndex(index.name()));
        List<SchemaClass> rest = stored;
        while (!rest.isEmpty()) {
            rest = removeUnneeded(rest);
        }
    }

    /** Removes the classes that no other class extends or refers to, and returns those that remain. */
    private List<SchemaClass> removeUnneeded(List<SchemaClass> classes) {
        List<SchemaClass> needed = new ArrayList<>();
        for (SchemaClass each : classes) {
            try {
                client.removeClass(each.name());
                mappings.remove(each.name());
                byNumber.remove(each.number());
            } catch (InvalidRequestException needs) {
                needed.add(each);
                if (needed.size() == classes.size()) {
                    throw needs;
                }
            }
        }
        return needed;
    }

    private ClassMapping build(
            AbstractClassMetaData metadata, MappingBuilder builder, Map<String, ClassMapping> added) {
        ClassMapping known = mappings.getOrDefault(metadata.getFullClassName(), added.get(metadata.getFullClassName()));
        if (known != null) {
            return known;
        }
        AbstractClassMetaData above = metadata.getSuperAbstractClassMetaData();
        ClassMapping parent = above == null ? null : build(above, builder, added);
        ClassMapping mapping = builder.build(metadata, parent);
        added.put(mapping.name(), mapping);
        return mapping;
    }

    /**
     * Adds the classes that columns refer to. DataNucleus does not find all: the metadata of an array may name a class
     * of its elements.
     */
    private void buildReferred(MappingBuilder builder, Map<String, ClassMapping> added, ClassLoaderResolver loaders) {
        int before;
        do {
            before = added.size();
            for (ClassMapping mapping : List.copyOf(added.values())) {
                for (Column column : mapping.ownColumns()) {
                    for (String name : referredClasses(column.type())) {
                        build(nucleus.getMetaDataManager().getMetaDataForClass(name, loaders), builder, added);
                    }
                }
            }
        } while (added.size() > before);
    }

    private static List<String> referredClasses(FieldType type) {
        List<String> names = new ArrayList<>();
        type.className().ifPresent(names::add);
        type.element().ifPresent(element -> names.addAll(referredClasses(element)));
        type.key().ifPresent(key -> names.addAll(referredClasses(key)));
        return names;
    }

    private Schema synchronize(Collection<ClassMapping> added) {
        Set<String> defined = new HashSet<>();
        return retrying(() -> {
            Schema before = client.schema();
            Schema schema = define(added, before, defined) ? client.schema() : before;
            boolean changed = false;
            for (ClassMapping mapping : added) {
                boolean isPermitted = permissions.fields() || defined.contains(mapping.name());
                changed |= evolve(mapping, schema.classNamed(mapping.name()).orElseThrow(), isPermitted);
            }
            return changed ? client.schema() : schema;
        });
    }

    /** Repeats a change that fails because another program has changed the schema at the same time. */
    private static <T> T retrying(Supplier<T> change) {
        for (int attempt = 1; ; attempt++) {
            try {
                return change.get();
            } catch (AlreadyExistsException | ConflictException raced) {
                if (attempt == ATTEMPTS) {
                    throw raced;
                }
            }
        }
    }

    /** The schema with a class and its index, which are created if the space lacks them. */
    public Schema with(ClassDefinition type, IndexDefinition index) {
        return retrying(() -> {
            Schema schema = client.schema();
            boolean hasClass = schema.classNamed(index.className()).isPresent();
            if (hasClass && schema.indexNamed(index.name()).isPresent()) {
                return schema;
            }
            require(permissions.classes(), "class " + index.className());
            client.define(type);
            client.createIndex(index);
            return client.schema();
        });
    }

    /**
     * Creates the classes that the schema lacks, without some of their fields if they are many.
     *
     * @param defined receives the names of the created classes
     */
    private boolean define(Collection<ClassMapping> added, Schema schema, Set<String> defined) {
        List<ClassMapping> missing = added.stream()
                .filter(mapping -> schema.classNamed(mapping.name()).isEmpty())
                .toList();
        missing.forEach(mapping -> require(permissions.classes(), "class " + mapping.name()));
        // Classes may refer to each other if one call creates them. A superclass is before its subclasses.
        boolean isOneCall = missing.size() <= CLASSES_IN_A_CALL;
        for (int from = 0; from < missing.size(); from += CLASSES_IN_A_CALL) {
            List<ClassMapping> some = missing.subList(from, Math.min(missing.size(), from + CLASSES_IN_A_CALL));
            client.define(
                    some.stream().map(mapping -> definition(mapping, isOneCall)).toList());
            some.forEach(mapping -> defined.add(mapping.name()));
        }
        return !missing.isEmpty();
    }

    private static void require(boolean permitted, String what) {
        if (!permitted) {
            throw new NucleusUserException("the space has no " + what
                    + ", and the properties datanucleus.schema.autoCreate…" + " do not allow to create it");
        }
    }

    private static ClassDefinition definition(ClassMapping mapping, boolean withReferences) {
        ClassDefinition.Builder builder = ClassDefinition.builder(mapping.name());
        if (mapping.parent() != null) {
            builder.parent(mapping.parent().name());
        }
        mapping.ownColumns().stream()
                .filter(column ->
                        withReferences || referredClasses(column.type()).isEmpty())
                .forEach(column -> builder.field(field(column)));
        return builder.build();
    }

    private static FieldDefinition field(Column column) {
        return column.isRequired()
                ? FieldDefinition.required(column.name(), column.type()).withDefault(column.initial())
                : FieldDefinition.optional(column.name(), column.type());
    }

    private boolean evolve(ClassMapping mapping, SchemaClass stored, boolean isPermitted) {
        List<EvolutionStep> steps = new ArrayList<>();
        for (Column column : mapping.ownColumns()) {
            Optional<SchemaField> known = stored.field(column.name());
            if (known.isEmpty()) {
                require(isPermitted, "field " + column.name() + " of " + mapping.name());
                steps.add(EvolutionStep.addField(field(column)));
                continue;
            }
            if (!known.get().type().equals(column.type())
                    && !isWider(known.get().type(), column.type())) {
                require(
                        isPermitted,
                        "field " + column.name() + " of " + mapping.name() + " with the type " + column.type());
                steps.add(EvolutionStep.widenField(column.name(), column.type()));
            }
            if (known.get().required() && !column.isRequired()) {
                require(isPermitted, "optional field " + column.name() + " of " + mapping.name());
                steps.add(EvolutionStep.makeOptional(column.name()));
            }
        }
        if (!steps.isEmpty()) {
            client.evolve(mapping.name(), steps);
        }
        return !steps.isEmpty();
    }

    /** Whether a stored type also holds the values of a column, as after a newer program has widened it. */
    private static boolean isWider(FieldType stored, FieldType type) {
        return switch (type.kind()) {
            case INT64 -> stored.kind() == FieldType.Kind.FLOAT64 || stored.kind() == FieldType.Kind.DECIMAL;
            case REFERENCE -> stored.equals(FieldType.REFERENCE);
            default -> false;
        };
    }

    private void bind(Collection<ClassMapping> added, Schema schema) {
        rememberNames(schema);
        for (ClassMapping mapping : added) {
            SchemaClass stored = schema.classNamed(mapping.name()).orElseThrow();
            mapping.setNumber(stored.number());
            for (Column column : mapping.ownColumns()) {
                column.setNumber(stored.field(column.name()).orElseThrow().number());
            }
        }
    }

    private void createIndexes(Collection<ClassMapping> added, ClassLoaderResolver loaders) {
        List<IndexPlan> plans =
                added.stream().map(mapping -> new IndexPlan(mapping, loaders)).toList();
        plans.forEach(plan -> plan.identity().ifPresent(identityIndexes::add));
        List<IndexDefinition> indexes =
                plans.stream().flatMap(plan -> plan.indexes().stream()).toList();
        if (!permissions.indexes() || indexes.isEmpty()) {
            return;
        }
        retrying(() -> {
            Schema schema = client.schema();
            indexes.stream()
                    .filter(index -> schema.indexNamed(index.name()).isEmpty())
                    .forEach(this::createIndex);
            return null;
        });
        awaitReady(new ArrayList<>(indexes.stream().map(IndexDefinition::name).toList()));
    }

    private void createIndex(IndexDefinition index) {
        try {
            client.createIndex(index);
        } catch (AlreadyExistsException | ConflictException raced) {
            throw raced;
        } catch (MortarException error) {
            throw new NucleusDataStoreException(
                    "the index " + index.name() + " cannot be created: " + error.getMessage(), error);
        }
    }

    /** Until an index is ready, queries do not use it. */
    private void awaitReady(List<String> names) {
        long deadline = System.nanoTime() + INDEX_WAIT_MS * 1_000_000;
        while (true) {
            Schema schema = client.schema();
            names.removeIf(
                    name -> schema.indexNamed(name).map(StoreSchema::isSettled).orElse(true));
            if (names.isEmpty()) {
                return;
            }
            if (System.nanoTime() >= deadline) {
                NucleusLogger.DATASTORE_SCHEMA.warn(
                        "the indexes " + names + " are not ready yet, so queries scan their classes");
                return;
            }
            try {
                Thread.sleep(INDEX_POLL_MS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    private static boolean isSettled(SchemaIndex index) {
        if (index.problem().isPresent()) {
            throw new NucleusDataStoreException("the index " + index.name() + " cannot be built: "
                    + index.problem().get());
        }
        return index.ready();
    }
}
