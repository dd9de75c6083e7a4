package io.mortar.jdo.mapping;

import io.mortar.AlreadyExistsException;
import io.mortar.ClassDefinition;
import io.mortar.Client;
import io.mortar.ConflictException;
import io.mortar.EvolutionStep;
import io.mortar.FieldDefinition;
import io.mortar.FieldType;
import io.mortar.IndexDefinition;
import io.mortar.MortarException;
import io.mortar.Schema;
import io.mortar.SchemaClass;
import io.mortar.SchemaField;
import io.mortar.SchemaIndex;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.PersistenceNucleusContext;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.util.NucleusLogger;

/**
 * The mappings of the persistent classes, and the classes of the space that they are stored in.
 *
 * <p>A class that the space does not have is created. A field that it lacks is added, and one with a narrower type is widened;
 * nothing else is changed, so programs with older and newer versions of a class can run at the same time.
 */
public final class StoreSchema {
    /** Attempts while other programs change the schema. */
    private static final int ATTEMPTS = 8;
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
    private final Permissions permissions;
    private final Map<String, ClassMapping> mappings = new ConcurrentHashMap<>();
    private volatile Map<Integer, String> classNames = Map.of();

    public StoreSchema(Client client, PersistenceNucleusContext nucleus, Permissions permissions) {
        this.client = client;
        this.nucleus = nucleus;
        this.permissions = permissions;
    }

    /** The mapping of a class that has been added. */
    public ClassMapping mapping(AbstractClassMetaData metadata) {
        ClassMapping mapping = mappings.get(metadata.getFullClassName());
        if (mapping == null) {
            throw new NucleusUserException(metadata.getFullClassName() + " is not a persistent class of its own");
        }
        return mapping;
    }

    public boolean has(String className) {
        return mappings.containsKey(className);
    }

    /** The name of the class with a number, which an identifier contains. */
    public String className(int number) {
        String name = classNames.get(number);
        if (name == null) {
            rememberNames(client.schema());
            name = classNames.get(number);
        }
        if (name == null) {
            throw new NucleusDataStoreException("the space has no class with the number " + number);
        }
        return name;
    }

    private void rememberNames(Schema schema) {
        Map<Integer, String> names = new HashMap<>();
        schema.classes().forEach(each -> names.put(each.number(), each.name()));
        classNames = names;
    }

    /** Adds classes, and creates what the space lacks for them. */
    public synchronized void add(Collection<? extends AbstractClassMetaData> classes, ClassLoaderResolver loaders) {
        MappingBuilder builder = new MappingBuilder(nucleus, loaders);
        Map<String, ClassMapping> added = new java.util.LinkedHashMap<>();
        for (AbstractClassMetaData metadata : classes) {
            build(metadata, builder, added);
        }
        if (added.isEmpty()) {
            return;
        }
        Schema schema = synchronize(added.values());
        bind(added.values(), schema);
        mappings.putAll(added);
        createIndexes(added.values(), loaders);
    }

    private ClassMapping build(AbstractClassMetaData metadata, MappingBuilder builder, Map<String, ClassMapping> added) {
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

    private Schema synchronize(Collection<ClassMapping> added) {
        for (int attempt = 1; ; attempt++) {
            try {
                Schema schema = client.schema();
                boolean changed = define(added, schema);
                for (ClassMapping mapping : added) {
                    Optional<SchemaClass> stored = schema.classNamed(mapping.name());
                    if (stored.isPresent()) {
                        changed |= evolve(mapping, stored.get());
                    }
                }
                return changed ? client.schema() : schema;
            } catch (AlreadyExistsException | ConflictException raced) {
                // Another program has created the class meanwhile.
                if (attempt == ATTEMPTS) {
                    throw raced;
                }
            }
        }
    }

    private boolean define(Collection<ClassMapping> added, Schema schema) {
        List<ClassDefinition> missing = new ArrayList<>();
        for (ClassMapping mapping : added) {
            if (schema.classNamed(mapping.name()).isEmpty()) {
                require(permissions.classes(), "class " + mapping.name());
                missing.add(definition(mapping));
            }
        }
        if (!missing.isEmpty()) {
            client.define(missing.toArray(ClassDefinition[]::new));
        }
        return !missing.isEmpty();
    }

    private static void require(boolean permitted, String what) {
        if (!permitted) {
            throw new NucleusUserException("the space has no " + what + ", and the properties datanucleus.schema.autoCreate…"
                    + " do not allow to create it");
        }
    }

    private static ClassDefinition definition(ClassMapping mapping) {
        ClassDefinition.Builder builder = ClassDefinition.builder(mapping.name());
        if (mapping.parent() != null) {
            builder.parent(mapping.parent().name());
        }
        mapping.ownColumns().forEach(column -> builder.field(field(column)));
        return builder.build();
    }

    private static FieldDefinition field(Column column) {
        return column.isRequired()
                ? FieldDefinition.required(column.name(), column.type()).withDefault(column.initial())
                : FieldDefinition.optional(column.name(), column.type());
    }

    private boolean evolve(ClassMapping mapping, SchemaClass stored) {
        List<EvolutionStep> steps = new ArrayList<>();
        for (Column column : mapping.ownColumns()) {
            Optional<SchemaField> known = stored.field(column.name());
            if (known.isEmpty()) {
                require(permissions.fields(), "field " + column.name() + " of " + mapping.name());
                steps.add(EvolutionStep.addField(field(column)));
                continue;
            }
            if (!known.get().type().equals(column.type()) && !isWider(known.get().type(), column.type())) {
                require(permissions.fields(),
                        "field " + column.name() + " of " + mapping.name() + " with the type " + column.type());
                steps.add(EvolutionStep.widenField(column.name(), column.type()));
            }
            if (known.get().required() && !column.isRequired()) {
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
        if (!permissions.indexes()) {
            return;
        }
        List<String> awaited = new ArrayList<>();
        for (ClassMapping mapping : added) {
            for (IndexDefinition index : new IndexPlan(mapping, loaders).indexes()) {
                if (client.schema().indexNamed(index.name()).isEmpty()) {
                    createIndex(index);
                    awaited.add(index.name());
                }
            }
        }
        awaitReady(awaited);
    }

    private void createIndex(IndexDefinition index) {
        try {
            client.createIndex(index);
        } catch (AlreadyExistsException | ConflictException raced) {
            NucleusLogger.DATASTORE_SCHEMA.debug("another program has created the index " + index.name());
        } catch (MortarException error) {
            throw new NucleusDataStoreException("the index " + index.name() + " cannot be created: " + error.getMessage(), error);
        }
    }

    /** Until an index is ready, queries do not use it. */
    private void awaitReady(List<String> names) {
        long deadline = System.nanoTime() + INDEX_WAIT_MS * 1_000_000;
        while (!names.isEmpty() && System.nanoTime() < deadline) {
            Schema schema = client.schema();
            names.removeIf(name -> schema.indexNamed(name).map(StoreSchema::isSettled).orElse(true));
            if (names.isEmpty()) {
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
            throw new NucleusDataStoreException("the index " + index.name() + " cannot be built: " + index.problem().get());
        }
        return index.ready();
    }
}
