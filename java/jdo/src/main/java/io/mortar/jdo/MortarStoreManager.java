package io.mortar.jdo;

import io.mortar.Client;
import io.mortar.ConnectOptions;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.Dependents;
import io.mortar.jdo.mapping.References;
import io.mortar.jdo.mapping.StoreSchema;
import io.mortar.jdo.query.JdoqlQuery;
import io.mortar.jdo.query.JpqlQuery;
import io.mortar.jdo.query.MortarExtent;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Function;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.Configuration;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PersistenceNucleusContext;
import org.datanucleus.PropertyNames;
import org.datanucleus.cache.NullLevel2Cache;
import org.datanucleus.enhancer.ImplementationCreator;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.identity.DatastoreId;
import org.datanucleus.identity.IdentityUtils;
import org.datanucleus.identity.SCOID;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ClassMetaData;
import org.datanucleus.metadata.ClassPersistenceModifier;
import org.datanucleus.metadata.IdentityType;
import org.datanucleus.metadata.QueryLanguage;
import org.datanucleus.metadata.ValueGenerationStrategy;
import org.datanucleus.store.AbstractStoreManager;
import org.datanucleus.store.StoreManager;
import org.datanucleus.store.connection.ManagedConnection;
import org.datanucleus.store.query.Extent;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.schema.SchemaAwareStoreManager;

/**
 * Stores the objects of a persistence manager factory in a space of Mortar.
 *
 * <p>Properties of its own: {@code mortar.snapshot} makes transactions read a group snapshot, which they cannot change;
 * {@code mortar.cacheBytes}, {@code mortar.caFile}, {@code mortar.certificateFile}, {@code mortar.keyFile} and
 * {@code mortar.insecure} are those of {@link ConnectOptions}.
 */
public final class MortarStoreManager extends AbstractStoreManager
        implements SchemaAwareStoreManager, References.Source {
    static final String SNAPSHOT = "mortar.snapshot";

    private static final String CACHE_BYTES = "mortar.cachebytes";
    private static final String CA_FILE = "mortar.cafile";
    private static final String CERTIFICATE_FILE = "mortar.certificatefile";
    private static final String KEY_FILE = "mortar.keyfile";
    private static final String INSECURE = "mortar.insecure";

    private static final Set<String> SUPPORTED = Set.of(
            StoreManager.OPTION_APPLICATION_ID,
            StoreManager.OPTION_APPLICATION_COMPOSITE_ID,
            StoreManager.OPTION_DATASTORE_ID,
            StoreManager.OPTION_ORM,
            StoreManager.OPTION_ORM_EMBEDDED_PC,
            StoreManager.OPTION_ORM_EMBEDDED_COLLECTION,
            StoreManager.OPTION_ORM_EMBEDDED_MAP,
            StoreManager.OPTION_ORM_EMBEDDED_ARRAY,
            StoreManager.OPTION_ORM_SERIALISED_PC,
            StoreManager.OPTION_ORM_SERIALISED_COLLECTION_ELEMENT,
            StoreManager.OPTION_ORM_INHERITANCE_COMPLETE_TABLE,
            // All levels are served by the strongest.
            StoreManager.OPTION_TXN_ISOLATION_READ_UNCOMMITTED,
            StoreManager.OPTION_TXN_ISOLATION_READ_COMMITTED,
            StoreManager.OPTION_TXN_ISOLATION_REPEATABLE_READ,
            StoreManager.OPTION_TXN_ISOLATION_SERIALIZABLE,
            StoreManager.OPTION_DATASTORE_TIME_STORES_NANOSECS,
            StoreManager.OPTION_DATASTORE_TIMEOUT,
            StoreManager.OPTION_QUERY_JDOQL_BULK_DELETE,
            StoreManager.OPTION_QUERY_JDOQL_BULK_UPDATE,
            StoreManager.OPTION_QUERY_JPQL_BULK_DELETE,
            StoreManager.OPTION_QUERY_JPQL_BULK_UPDATE);

    private final StoreLocation location;
    private final Client client;
    private volatile boolean isClosed;
    private final StoreSchema schema;
    private final Identities identities = new Identities(this);
    private final Set<IdentityOfClass> checkedIdentities = ConcurrentHashMap.newKeySet();

    /** A class of identities, and the name of the class whose objects they identify. */
    private record IdentityOfClass(Class<?> identityClass, String className) {}

    public MortarStoreManager(
            ClassLoaderResolver loaders, PersistenceNucleusContext nucleus, Map<String, Object> properties) {
        super("mortar", loaders, nucleus, properties);
        Configuration configuration = nucleus.getConfiguration();
        // Embedded objects are columns of their owner.
        configuration.setProperty(PropertyNames.PROPERTY_METADATA_EMBEDDED_PC_FLAT, "true");
        if (!isSet(configuration, PropertyNames.PROPERTY_CACHE_L2_TYPE)) {
            // The client's cache of pages is coherent with the cluster; the second-level cache of DataNucleus is not.
            configuration.setProperty(
                    PropertyNames.PROPERTY_CACHE_L2_TYPE,
                    StoreSchema.isJakarta(nucleus) ? EmptyLevel2Cache.NAME : NullLevel2Cache.NAME);
        }
        location = StoreLocation.parse(getConnectionURL());
        try {
            client = location.open(options());
        } catch (MortarException error) {
            throw new NucleusDataStoreException(getConnectionURL() + ": " + error.getMessage(), error);
        }
        schema = new StoreSchema(client, nucleus, permissions(configuration));
        persistenceHandler = new MortarPersistenceHandler(this);
        flushProcess = new BatchedFlush(this);
        logConfiguration();
    }

    private static boolean isSet(Configuration configuration, String property) {
        return configuration.getPersistenceProperties().containsKey(property.toLowerCase(Locale.ROOT));
    }

    private static StoreSchema.Permissions permissions(Configuration configuration) {
        return new StoreSchema.Permissions(
                mayCreate(configuration, PropertyNames.PROPERTY_SCHEMA_AUTOCREATE_TABLES),
                mayCreate(configuration, PropertyNames.PROPERTY_SCHEMA_AUTOCREATE_COLUMNS),
                mayCreate(configuration, PropertyNames.PROPERTY_SCHEMA_AUTOCREATE_CONSTRAINTS));
    }

    /** What is missing is created unless a property says no. */
    private static boolean mayCreate(Configuration configuration, String property) {
        if (isSet(configuration, property)) {
            return configuration.getBooleanProperty(property);
        }
        return !isSet(configuration, PropertyNames.PROPERTY_SCHEMA_AUTOCREATE_ALL)
                || configuration.getBooleanProperty(PropertyNames.PROPERTY_SCHEMA_AUTOCREATE_ALL);
    }

    /** The options of the client, from the properties of the factory. */
    ConnectOptions options() {
        ConnectOptions.Builder options = ConnectOptions.builder().agent("mortar-jdo");
        if (getConnectionUserName() != null) {
            options.credentials(
                    getConnectionUserName(), getConnectionPassword() == null ? "" : getConnectionPassword());
        }
        options.snapshots(Boolean.parseBoolean(text(SNAPSHOT)));
        if (text(CACHE_BYTES) != null) {
            options.cacheBytes(number(CACHE_BYTES, 1, Long.MAX_VALUE));
        }
        if (callLimitMs() > 0) {
            options.timeout(Duration.ofMillis(callLimitMs()));
        }
        if (text(CA_FILE) != null) {
            options.trustedCertificates(Path.of(text(CA_FILE)));
        }
        if ((text(CERTIFICATE_FILE) == null) != (text(KEY_FILE) == null)) {
            throw new NucleusUserException("mortar.certificateFile and mortar.keyFile need each other");
        }
        if (text(CERTIFICATE_FILE) != null) {
            options.certificate(Path.of(text(CERTIFICATE_FILE)), Path.of(text(KEY_FILE)));
        }
        options.insecure(Boolean.parseBoolean(text(INSECURE)));
        return options.build();
    }

    private String text(String property) {
        Object value = nucleusContext.getConfiguration().getProperty(property);
        return value == null ? null : value.toString();
    }

    private long number(String property, long least, long greatest) {
        return number(property, text(property), least, greatest);
    }

    static long number(String property, String text, long least, long greatest) {
        try {
            long number = Long.parseLong(text);
            if (number >= least && number <= greatest) {
                return number;
            }
        } catch (NumberFormatException notANumber) {
            // It is refused with those out of the range.
        }
        throw new NucleusUserException("the property " + property + " is " + text + ", which is not a number from "
                + least + " to " + greatest);
    }

    /** The limit of all calls of the client, in milliseconds; 0 if the properties of the factory set none. */
    long callLimitMs() {
        return Math.max(
                milliseconds(PropertyNames.PROPERTY_DATASTORE_READ_TIMEOUT),
                milliseconds(PropertyNames.PROPERTY_DATASTORE_WRITE_TIMEOUT));
    }

    private long milliseconds(String property) {
        return text(property) == null ? 0 : number(property, 0, Integer.MAX_VALUE);
    }

    /** Whether the transactions of a context read a group snapshot. */
    static boolean isSnapshot(ExecutionContext context) {
        Object value = context.getProperty(SNAPSHOT);
        if (value == null) {
            value = context.getNucleusContext().getConfiguration().getProperty(SNAPSHOT);
        }
        return value != null && Boolean.parseBoolean(value.toString());
    }

    /**
     * Closes the client, so that the calls of other threads end with an error that says so. What they use beside it
     * stays as it is; {@code super.close()} would make null of it.
     */
    @Override
    public synchronized void close() {
        if (!isClosed) {
            isClosed = true;
            location.close(client);
        }
    }

    @Override
    public boolean isClosed() {
        return isClosed;
    }

    /** Fails if the factory of the persistence contexts was closed. */
    public void requireOpen() {
        if (isClosed) {
            throw StoreErrors.closed();
        }
    }

    @Override
    public Collection<String> getSupportedOptions() {
        return SUPPORTED;
    }

    @Override
    public String getDefaultStateManagerClassName() {
        return MortarStateManager.class.getName();
    }

    Client client() {
        return client;
    }

    StoreSchema schema() {
        return schema;
    }

    Identities identities() {
        return identities;
    }

    @Override
    public References references(ExecutionContext context) {
        return new ObjectReferences(this, context);
    }

    /** The queries of a context. */
    public StoreQueries queries(ExecutionContext context) {
        return new StoreQueries(this, context);
    }

    /** Whether a context finds an object: it is not of another tenant, and was not deleted. */
    boolean isVisible(ExecutionContext context, Oid oid, Record record) {
        ClassMapping mapping = schema.mapping(oid.classNumber());
        return mapping == null || mapping.visibility().includes(context, record);
    }

    // ------------------------------------------------------------------------------------------- sessions

    <T> T withSession(ExecutionContext context, Function<StoreSession, T> use) {
        requireOpen();
        ManagedConnection connection = connectionMgr.getConnection(context);
        try {
            return use.apply(((MortarConnectionFactory.Connection) connection).session());
        } finally {
            connection.release();
        }
    }

    /** Uses the session of a context for a change, of which nothing is stored if it fails outside of transactions. */
    <T> T changing(ExecutionContext context, Function<StoreSession, T> change) {
        requireOpen();
        MortarConnectionFactory.Connection connection =
                (MortarConnectionFactory.Connection) connectionMgr.getConnection(context);
        try {
            connection.session().beginChange();
            return change.apply(connection.session());
        } catch (RuntimeException | Error failed) {
            connection.abandonChange();
            throw failed;
        } finally {
            connection.release();
        }
    }

    void useSession(ExecutionContext context, Consumer<StoreSession> use) {
        withSession(context, session -> {
            use.accept(session);
            return null;
        });
    }

    // ------------------------------------------------------------------------------------------- classes

    /**
     * Searches and checks the class of an identity once for all identities of that class: the search takes a sixth of a
     * lookup.
     */
    @Override
    public String manageClassForIdentity(Object id, ClassLoaderResolver loaders) {
        String name = IdentityUtils.getTargetClassNameForIdentity(id);
        if (name == null) {
            return super.manageClassForIdentity(id, loaders);
        }
        IdentityOfClass key = new IdentityOfClass(id.getClass(), name);
        if (!checkedIdentities.contains(key) || !storeDataMgr.managesClass(name)) {
            if (getMetaDataManager().getMetaDataForClass(name, loaders) == null) {
                throw notPersistent("the identity " + id, name);
            }
            name = super.manageClassForIdentity(id, loaders);
            checkedIdentities.add(key);
        }
        return name;
    }

    @Override
    public synchronized void manageClasses(ClassLoaderResolver loaders, String... classNames) {
        if (classNames == null) {
            return;
        }
        List<ClassMetaData> added = persistentClasses(loaders, classNames);
        added.forEach(each -> Dependents.takeOver(each, StoreSchema.isJakarta(nucleusContext)));
        added.removeIf(each -> storeDataMgr.managesClass(each.getFullClassName()));
        if (added.isEmpty()) {
            return;
        }
        try {
            schema.add(ofTheirOwn(added), loaders);
        } catch (MortarException error) {
            throw new NucleusDataStoreException("the classes cannot be stored: " + error.getMessage(), error);
        }
        added.forEach(metadata -> registerStoreData(newStoreData(metadata, loaders)));
    }

    /** The persistent ones of these classes, and those that they refer to. */
    private List<ClassMetaData> persistentClasses(ClassLoaderResolver loaders, String... classNames) {
        String[] persistent = nucleusContext.getTypeManager().filterOutSupportedSecondClassNames(classNames);
        List<ClassMetaData> classes = new ArrayList<>();
        for (AbstractClassMetaData metadata : getMetaDataManager().getReferencedClasses(persistent, loaders)) {
            if (metadata.getPersistenceModifier() == ClassPersistenceModifier.PERSISTENCE_CAPABLE
                    && metadata instanceof ClassMetaData type) {
                classes.add(type);
            }
        }
        return classes;
    }

    /** The classes whose objects are not always embedded in others. */
    private static List<ClassMetaData> ofTheirOwn(List<ClassMetaData> classes) {
        return classes.stream().filter(each -> !each.isEmbeddedOnly()).toList();
    }

    /**
     * The class loaders of the factory, with that of the generated implementations of persistent interfaces and
     * abstract classes.
     */
    private ClassLoaderResolver loaders() {
        ClassLoaderResolver loaders = nucleusContext.getClassLoaderResolver(null);
        ImplementationCreator creator = nucleusContext.getImplementationCreator();
        if (creator != null) {
            loaders.setRuntimeClassLoader(creator.getClassLoader());
        }
        return loaders;
    }

    /** The mapping of a class. */
    public ClassMapping mapping(AbstractClassMetaData metadata) {
        if (!schema.has(metadata.getFullClassName())) {
            manageClasses(loaders(), metadata.getFullClassName());
        }
        return schema.mapping(metadata);
    }

    /** The mapping of the class of an object. */
    public ClassMapping mapping(Oid oid, ClassLoaderResolver loaders) {
        ClassMapping mapping = mapping(oid.classNumber(), loaders);
        if (mapping == null) {
            throw notPersistent("the object " + oid, schema.className(oid.classNumber()));
        }
        return mapping;
    }

    private static NucleusUserException notPersistent(String what, String className) {
        return new NucleusUserException(what + " is of class " + className
                + ", which is not a persistent Java class: is it on the class path, and enhanced?");
    }

    /** The mapping of the class with a number; null if it is not a persistent Java class. */
    private ClassMapping mapping(int classNumber, ClassLoaderResolver loaders) {
        ClassMapping known = schema.mapping(classNumber);
        if (known != null) {
            return known;
        }
        AbstractClassMetaData metadata =
                getMetaDataManager().getMetaDataForClass(schema.className(classNumber), loaders);
        return metadata == null ? null : mapping(metadata);
    }

    /** Whether the class with a number is a class or extends it. */
    boolean isA(int classNumber, ClassMapping ancestor) {
        ClassMapping known = schema.mapping(classNumber);
        ClassMapping mapping = known != null || classNumber == 0 ? known : mapping(classNumber, loaders());
        return mapping != null && mapping.isA(ancestor);
    }

    /** Names an object for a message. */
    String describe(Oid oid) {
        try {
            return "the object " + oid + " of class " + schema.className(oid.classNumber());
        } catch (NucleusException | MortarException error) {
            return "the object " + oid;
        }
    }

    @Override
    public String getClassNameForObjectID(Object id, ClassLoaderResolver loaders, ExecutionContext context) {
        if (id == null) {
            return null;
        }
        if (id instanceof SCOID embedded) {
            return embedded.getSCOClass();
        }
        if (id instanceof DatastoreId datastoreId) {
            Oid oid = Identities.oid(datastoreId);
            return oid.classNumber() == 0 ? null : schema.className(oid.classNumber());
        }
        if (IdentityUtils.getTargetClassNameForIdentity(id) == null) {
            Collection<AbstractClassMetaData> classes = getMetaDataManager()
                    .getClassMetaDataWithApplicationId(id.getClass().getName());
            return classes == null || classes.isEmpty() || context == null
                    ? super.getClassNameForObjectID(id, loaders, context)
                    : identities.className(context, id, classes);
        }
        String name = super.getClassNameForObjectID(id, loaders, context);
        if (name == null) {
            return null;
        }
        AbstractClassMetaData metadata = getMetaDataManager().getMetaDataForClass(name, loaders);
        String[] subclasses = getMetaDataManager().getSubclassesForClass(name, true);
        boolean isExact = subclasses == null || subclasses.length == 0;
        if (isExact || metadata.getIdentityType() != IdentityType.APPLICATION || context == null) {
            return name;
        }
        return withSession(context, session -> {
            Identities.Found found = identities.find(session, context, metadata, id);
            return found == null ? null : schema.className(found.oid().classNumber());
        });
    }

    // ------------------------------------------------------------------------------------------- generated values

    @Override
    public boolean isValueGenerationStrategyDatastoreAttributed(AbstractClassMetaData metadata, int position) {
        // Identifiers are allocated before an object is stored.
        return false;
    }

    @Override
    public Object getValueGenerationStrategyValue(
            ExecutionContext context, AbstractClassMetaData metadata, AbstractMemberMetaData member) {
        if (member == null) {
            int number = mapping(metadata).number();
            return withSession(context, session -> session.allocate(number));
        }
        return super.getValueGenerationStrategyValue(context, metadata, member);
    }

    @Override
    public boolean supportsValueGenerationStrategy(String strategy) {
        return "identity".equalsIgnoreCase(strategy) || super.supportsValueGenerationStrategy(strategy);
    }

    @Override
    public String getValueGenerationStrategyForNative(AbstractClassMetaData metadata) {
        return ValueGenerationStrategy.IDENTITY.toString();
    }

    // ------------------------------------------------------------------------------------------- queries

    @Override
    public <T> Extent<T> getExtent(ExecutionContext context, Class<T> type, boolean subclasses) {
        AbstractClassMetaData metadata =
                getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver());
        if (type.isInterface() || metadata == null || !metadata.isRequiresExtent()) {
            return super.getExtent(context, type, subclasses);
        }
        return new MortarExtent<>(context, type, subclasses, mapping(metadata), queries(context));
    }

    @Override
    public Query newQuery(String language, ExecutionContext context) {
        return switch (language(language)) {
            case JDOQL -> new JdoqlQuery(this, context);
            case JPQL -> new JpqlQuery(this, context);
            default -> throw unsupported(language);
        };
    }

    @Override
    public Query newQuery(String language, ExecutionContext context, String text) {
        return switch (language(language)) {
            case JDOQL -> new JdoqlQuery(this, context, text);
            case JPQL -> new JpqlQuery(this, context, text);
            default -> throw unsupported(language);
        };
    }

    @Override
    public Query newQuery(String language, ExecutionContext context, Query from) {
        return switch (language(language)) {
            case JDOQL -> new JdoqlQuery(this, context, (JdoqlQuery) from);
            case JPQL -> new JpqlQuery(this, context, (JpqlQuery) from);
            default -> throw unsupported(language);
        };
    }

    private static QueryLanguage language(String name) {
        try {
            return QueryLanguage.valueOf(name);
        } catch (IllegalArgumentException error) {
            throw unsupported(name);
        }
    }

    private static NucleusUserException unsupported(String language) {
        return new NucleusUserException("queries in " + language + " are not supported; JDOQL and JPQL are");
    }

    // ------------------------------------------------------------------------------------------- schema tools

    /** Permits the creation of what is missing, while {@code schema-generation.database.action} is carried out. */
    @Override
    public void enableSchemaGeneration() {
        schema.permit(new StoreSchema.Permissions(true, true, true));
    }

    @Override
    public void resetSchemaGeneration() {
        schema.permit(permissions(nucleusContext.getConfiguration()));
    }

    @Override
    public void createDatabase(String catalog, String schemaName, Properties properties) {
        // A space is created by its administrator.
    }

    @Override
    public void deleteDatabase(String catalog, String schemaName, Properties properties) {
        throw new NucleusUserException("a space is removed by its administrator: mortar space rm");
    }

    @Override
    public void createSchemaForClasses(Set<String> classNames, Properties properties) {
        manageClasses(loaders(), classNames.toArray(String[]::new));
    }

    @Override
    public void deleteSchemaForClasses(Set<String> classNames, Properties properties) {
        try {
            schema.remove(classNames);
        } catch (MortarException error) {
            throw new NucleusDataStoreException("the classes cannot be removed: " + error.getMessage(), error);
        }
        classNames.forEach(storeDataMgr::deregisterClass);
    }

    @Override
    public void validateSchemaForClasses(Set<String> classNames, Properties properties) {
        ClassLoaderResolver loaders = loaders();
        schema.validate(ofTheirOwn(persistentClasses(loaders, classNames.toArray(String[]::new))), loaders);
    }
}
