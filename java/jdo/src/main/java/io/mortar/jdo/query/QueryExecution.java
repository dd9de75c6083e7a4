package io.mortar.jdo.query;

import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.StoreQueries;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.StoreSchema;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import java.util.stream.Stream;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.store.connection.ManagedConnection;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.QueryUtils;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.CreatorExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.inmemory.AbstractResultClassMapper;
import org.datanucleus.store.query.inmemory.JDOQLResultClassMapper;
import org.datanucleus.store.query.inmemory.JPQLResultClassMapper;
import org.datanucleus.util.NucleusLogger;

/** Executes one query of JDOQL or JPQL, as far as possible in the store. */
final class QueryExecution implements Evaluator.Source {
    private final MortarStoreManager store;
    private final CompiledQuery compiled;
    private final Query<?> query;
    private final QueryCompilation compilation;
    private final Map<Object, Object> parameters;
    private final boolean isJpql;
    private final ExecutionContext context;
    private final StoreQueries queries;
    /** All objects of classes, for an evaluation in memory. */
    private final Map<Class<?>, List<Object>> extents;

    private NativeQuery nativeQuery;

    QueryExecution(Query<?> query, QueryCompilation compilation, Map<Object, Object> parameters, boolean isJpql) {
        this(
                new CompiledQuery(query, compilation, true),
                parameters,
                isJpql,
                ((MortarStoreManager) query.getStoreManager()).queries(query.getExecutionContext()),
                new HashMap<>());
    }

    private QueryExecution(
            CompiledQuery compiled,
            Map<Object, Object> parameters,
            boolean isJpql,
            StoreQueries queries,
            Map<Class<?>, List<Object>> extents) {
        this.extents = extents;
        this.compiled = compiled;
        this.query = compiled.query();
        this.compilation = compiled.compilation();
        this.store = (MortarStoreManager) query.getStoreManager();
        this.parameters = parameters;
        this.isJpql = isJpql;
        this.context = query.getExecutionContext();
        this.queries = queries;
    }

    NativeQuery nativeQuery() {
        return nativeQuery;
    }

    Object execute(Collection<?> candidates, boolean onlyInMemory, Query.QueryType type) {
        if (query.getDatastoreReadTimeoutMillis() != null) {
            queries.limit(query.getDatastoreReadTimeoutMillis());
        }
        return isBulk(type)
                ? queries.changing(() -> executeLocking(candidates, onlyInMemory, type))
                : executeLocking(candidates, onlyInMemory, type);
    }

    /** Executes the query, and locks what it finds if that is wanted. */
    private Object executeLocking(Collection<?> candidates, boolean onlyInMemory, Query.QueryType type) {
        boolean isLocking = Boolean.TRUE.equals(query.getSerializeRead())
                && context.getTransaction().isActive();
        if (!isLocking) {
            return executeUnlocked(candidates, onlyInMemory, type);
        }
        queries.beginLocks();
        Object result = executeUnlocked(candidates, onlyInMemory, type);
        List<Object> rows = result instanceof Collection<?> ? drained(result) : Arrays.asList(result);
        queries.lock(rows.stream()
                .flatMap(row -> row instanceof Object[] values ? Arrays.stream(values) : Stream.of(row))
                .filter(context.getApiAdapter()::isPersistable)
                .toList());
        return result instanceof StreamedResult<?> ? rows : result;
    }

    private Object executeUnlocked(Collection<?> candidates, boolean onlyInMemory, Query.QueryType type) {
        if (candidates != null) {
            nativeQuery = new NativeQuery("", Map.of(), List.of("the candidates are a collection"));
            return finish(inMemory(candidatesOf(candidates)), type);
        }
        List<ClassMapping> classes = candidateClasses();
        if (classes.size() == 1) {
            return finish(execute(classes.get(0), onlyInMemory, isBulk(type)), type);
        }
        List<Object> all = new ArrayList<>();
        classes.forEach(each -> all.addAll(all(each)));
        nativeQuery = new NativeQuery("from " + classes, Map.of(), List.of("there are several candidate classes"));
        return finish(inMemory(all), type);
    }

    /**
     * The candidates of a collection. JDO 3.2, section 14.6.2: elements of other classes are none. Nor are deleted
     * objects.
     */
    private List<Object> candidatesOf(Collection<?> elements) {
        Class<?> type = candidateClass();
        List<Object> candidates = new ArrayList<>(elements);
        candidates.removeIf(
                each -> !type.isInstance(each) || context.getApiAdapter().isDeleted(each));
        return candidates;
    }

    private Object object(Row row) {
        return queries.object(row, query.getFetchPlan(), query.getIgnoreCache());
    }

    private String allOf(ClassMapping type) {
        QueryText text = new QueryText();
        text.from(type, !compiled.isWithSubclasses(), context, compiled.findsDeleted());
        return text.toString();
    }

    private List<ClassMapping> candidateClasses() {
        return classes(candidateClass());
    }

    private Class<?> candidateClass() {
        return compilation.getCandidateClass() != null ? compilation.getCandidateClass() : query.getCandidateClass();
    }

    /** The mapping of a class, or those of the classes that implement it if it is an interface. */
    private List<ClassMapping> classes(Class<?> type) {
        if (!type.isInterface()) {
            ClassMapping mapping = mapping(type);
            if (mapping == null) {
                throw new NucleusUserException(type.getName() + " is not a persistent class");
            }
            return List.of(mapping);
        }
        List<ClassMapping> classes = new ArrayList<>();
        String[] implementing = context.getMetaDataManager()
                .getClassesImplementingInterface(type.getName(), context.getClassLoaderResolver());
        for (String name : implementing == null ? new String[0] : implementing) {
            classes.add(store.mapping(
                    context.getMetaDataManager().getMetaDataForClass(name, context.getClassLoaderResolver())));
        }
        // A class whose superclass is there too is among its subclasses.
        classes.removeIf(each -> classes.stream().anyMatch(other -> other != each && each.isA(other)));
        if (classes.isEmpty()) {
            throw new NucleusUserException("no persistent class implements " + type.getName());
        }
        return classes;
    }

    /**
     * Executes the query for one class of candidates.
     *
     * @param forChange whether the rows that the store finds are wanted themselves, and not their objects
     */
    private Object execute(ClassMapping candidate, boolean onlyInMemory, boolean forChange) {
        QueryPlan plan = new QueryPlan(store, compiled, candidate, parameters, subqueries(), isJpql, false);
        nativeQuery = plan.nativeQuery();
        if (NucleusLogger.DATASTORE_NATIVE.isDebugEnabled()) {
            NucleusLogger.DATASTORE_NATIVE.debug(nativeQuery.toString());
        }
        if (onlyInMemory) {
            nativeQuery = new NativeQuery(allOf(candidate), Map.of(), List.of("all, as requested"));
        }
        if (plan.isJoin()) {
            nativeQuery = new NativeQuery(
                    "from " + candidate, Map.of(), plan.nativeQuery().inMemory());
            return inMemory(null);
        }
        if (onlyInMemory || !plan.isComplete()) {
            return inMemory(queries.all(nativeQuery.text(), nativeQuery.parameters(), this::object));
        }
        if (plan.columns() != null) {
            return values(plan);
        }
        if (forChange) {
            return queries.all(nativeQuery.text(), nativeQuery.parameters(), row -> row);
        }
        Rows rows = queries.run(nativeQuery.text(), nativeQuery.parameters());
        // The first portion; a short result is complete then, and needs nothing at the server any more.
        queries.hasNext(rows);
        StreamedResult<Object> result = new StreamedResult<>(
                (Query<Object>) query, queries, rows, query.getFetchPlan(), query.getIgnoreCache());
        return isMapped() ? map(drained(result)) : result;
    }

    /** All objects of a class. */
    private List<Object> all(ClassMapping type) {
        return queries.all(allOf(type), Map.of(), this::object);
    }

    /** The mapping of a class; null if it is not persistent. */
    private ClassMapping mapping(Class<?> type) {
        AbstractClassMetaData metadata =
                context.getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver());
        return metadata == null ? null : store.mapping(metadata);
    }

    private List<Object> ranged(List<Object> rows) {
        if (!compiled.hasRange()) {
            return rows;
        }
        int from = (int) Math.min(rows.size(), compiled.rangeFrom(parameters));
        int to = (int) Math.min(rows.size(), compiled.rangeTo(parameters));
        return new ArrayList<>(rows.subList(from, Math.max(from, to)));
    }

    /** Whether the result class is another one than that of the candidates and of objects that the result creates. */
    private boolean isMapped() {
        Expression[] result = compilation.getExprResult();
        return query.getResultClass() != null
                && !query.getResultClass().isAssignableFrom(query.getCandidateClass())
                && (result == null || !(result[0] instanceof CreatorExpression));
    }

    /** What subqueries find, which are executed once if they do not depend on the candidate. */
    private Function<String, List<Object>> subqueries() {
        return name -> {
            QueryCompilation subquery = compilation.getCompilationForSubquery(name);
            if (subquery == null) {
                throw new Untranslatable("the variable " + name + " is not an element of a collection");
            }
            if (subquery.getExprFrom() != null && subquery.getExprFrom().length > 1) {
                throw new Untranslatable("a subquery joins several candidates");
            }
            if (isOfOuter(name)) {
                throw new Untranslatable("a subquery has candidates that depend on the query");
            }
            QueryExecution inner = subquery(name, subquery);
            ClassMapping candidate = mapping(subquery.getCandidateClass());
            if (candidate == null) {
                throw new Untranslatable("a subquery has candidates that depend on the query");
            }
            QueryPlan plan =
                    new QueryPlan(store, inner.compiled, candidate, parameters, inner.subqueries(), isJpql, true);
            if (!plan.isComplete() || plan.isProcessedFurther()) {
                throw new Untranslatable("a subquery is " + plan.nativeQuery());
            }
            return queries.all(
                    plan.nativeQuery().text(),
                    plan.nativeQuery().parameters(),
                    row -> plan.columns() == null ? queries.object(row.oid()) : row(row, plan.columns()));
        };
    }

    /**
     * The execution of a subquery, within the time limit of the query. One of the typed or the criteria API has no
     * query of its own.
     */
    private QueryExecution subquery(String name, QueryCompilation subquery) {
        Query.SubqueryDefinition definition = query.getSubqueryForVariable(name);
        CompiledQuery inner =
                new CompiledQuery(definition == null ? query : definition.getQuery(), subquery, definition != null);
        return new QueryExecution(inner, parameters, isJpql, queries, extents);
    }

    /** Whether the candidates of a subquery are a collection of the query around it. */
    private boolean isOfOuter(String name) {
        Query.SubqueryDefinition definition = query.getSubqueryForVariable(name);
        return definition != null && definition.getCandidateExpression() != null;
    }

    @Override
    public List<Object> subquery(String name, Evaluator.Row row) {
        QueryCompilation subquery = compilation.getCompilationForSubquery(name);
        if (subquery == null) {
            throw new NucleusUserException("the subquery " + name + " cannot be evaluated in memory");
        }
        return subquery(name, subquery).rows(null, row);
    }

    @Override
    public List<Object> extent(Class<?> type) {
        List<Object> known = extents.get(type);
        if (known == null) {
            known = new ArrayList<>();
            for (ClassMapping each : classes(type)) {
                known.addAll(all(each));
            }
            extents.put(type, known);
        }
        return known;
    }

    private Evaluator evaluator() {
        return new Evaluator(query, compilation, parameters, this, isJpql);
    }

    /** The rows of the query, evaluated in memory. */
    private List<Object> rows(List<Object> candidates, Evaluator.Row outer) {
        return new MemoryRows(compiled, evaluator(), this, isJpql).evaluate(candidates, outer);
    }

    /** The result of the query, evaluated in memory for candidates; null for all objects. */
    private Object inMemory(List<Object> candidates) {
        List<Object> rows = ranged(rows(candidates, new Evaluator.Row(Map.of(), null)));
        return isMapped() ? map(rows) : rows;
    }

    // ------------------------------------------------------------------------------------------- results

    private Object values(QueryPlan plan) {
        List<ResultColumn> columns = plan.columns();
        List<Object> values = queries.all(nativeQuery.text(), nativeQuery.parameters(), row -> row(row, columns));
        if (plan.distinctAggregate() != null) {
            values.removeIf(Objects::isNull);
            Expression argument = plan.distinctAggregate().getArguments().get(0).getLeft();
            Object aggregate = Aggregates.compute(
                    plan.distinctAggregate(), values, evaluator().order(argument), isJpql);
            return map(ranged(new ArrayList<>(Collections.singletonList(aggregate))));
        }
        int size = columns.size() - plan.groupFilter().size();
        if (size < columns.size()) {
            values = filtered(values, plan.groupFilter(), size);
        }
        if (plan.hasDuplicates()) {
            values = MemoryRows.distinct(values);
        }
        if (plan.isProcessedFurther()) {
            values = ranged(values);
        }
        Expression[] result = compilation.getExprResult();
        if (result.length == 1 && result[0] instanceof CreatorExpression creator) {
            return created(values, creator, size);
        }
        return map(values);
    }

    /** The rows whose last columns, the values of operands of {@code having}, satisfy it, without these columns. */
    private List<Object> filtered(List<Object> rows, List<String> operands, int size) {
        Evaluator evaluator = evaluator();
        List<Object> filtered = new ArrayList<>();
        for (Object each : rows) {
            Object[] row = (Object[]) each;
            Map<String, Object> values = new HashMap<>();
            for (int i = 0; i < operands.size(); i++) {
                values.put(operands.get(i), row[size + i]);
            }
            if (evaluator.isTrue(compilation.getExprHaving(), new Evaluator.Row(values, null))) {
                filtered.add(size == 1 ? row[0] : Arrays.copyOf(row, size));
            }
        }
        return filtered;
    }

    private static Object row(Row row, List<ResultColumn> columns) {
        Object[] values = new Object[columns.size()];
        int stored = 0;
        for (int i = 0; i < values.length; i++) {
            ResultColumn column = columns.get(i);
            values[i] = column.toJava().apply(column.text() == null ? null : row.get(stored++));
        }
        return values.length == 1 ? values[0] : values;
    }

    private List<Object> created(List<Object> values, CreatorExpression creator, int columns) {
        Class<?> type = query.resolveClassDeclaration(creator.getId());
        List<Object> created = new ArrayList<>();
        for (Object value : values) {
            created.add(create(type, columns == 1 ? new Object[] {value} : (Object[]) value));
        }
        return created;
    }

    /** A new object, made by the constructor that accepts these arguments. */
    static Object create(Class<?> type, Object[] arguments) {
        Class<?>[] types = new Class<?>[arguments.length];
        for (int i = 0; i < arguments.length; i++) {
            types[i] = arguments[i] == null ? null : arguments[i].getClass();
        }
        Constructor<?> constructor = QueryUtils.getResultClassConstructorForArguments(type, types, arguments);
        if (constructor == null) {
            throw new NucleusUserException(type.getName() + " has no constructor for arguments of the types "
                    + Arrays.stream(types)
                            .map(each -> each == null ? "null" : each.getName())
                            .toList());
        }
        try {
            return constructor.newInstance(arguments);
        } catch (InvocationTargetException error) {
            throw new NucleusUserException(
                    "the constructor of " + type.getName() + " fails: " + error.getCause(), error.getCause());
        } catch (ReflectiveOperationException | IllegalArgumentException error) {
            throw new NucleusUserException("a " + type.getName() + " cannot be created: " + error, error);
        }
    }

    private List<Object> map(List<Object> values) {
        if (query.getResultClass() == null) {
            return values;
        }
        Expression[] result = compilation.getExprResult();
        if (result == null) {
            result = new Expression[] {new PrimaryExpression(List.of(compilation.getCandidateAlias()))};
        }
        if (query.getResultClass() == Object[].class && result.length == 1) {
            return new ArrayList<>(
                    values.stream().map(each -> (Object) new Object[] {each}).toList());
        }
        if (query.getResultClass() == Map.class) {
            List<String> names =
                    Arrays.stream(result).map(QueryExecution::nameOf).toList();
            return new ArrayList<>(
                    values.stream().map(each -> (Object) named(names, each)).toList());
        }
        AbstractResultClassMapper mapper = isJpql
                ? new JPQLResultClassMapper(query.getResultClass())
                : new JDOQLResultClassMapper(query.getResultClass());
        return new ArrayList<>(mapper.map(
                values, Arrays.stream(result).map(QueryExecution::renamed).toArray(Expression[]::new)));
    }

    /** An expression of the result under the name that its member of the result class has. */
    private static Expression renamed(Expression expression) {
        return expression.getAlias() == null ? expression : new PrimaryExpression(List.of(expression.getAlias()));
    }

    /**
     * The name of the member of the result class for an expression: its alias, or that of the member at the end of a
     * path; or null.
     */
    static String columnOf(Expression expression) {
        if (expression.getAlias() != null || !(expression instanceof PrimaryExpression path)) {
            return expression.getAlias();
        }
        return path.getTuples().get(path.getTuples().size() - 1);
    }

    /** The name of an expression of the result: its alias, or the expression itself. */
    private static String nameOf(Expression expression) {
        return expression.getAlias() != null
                ? expression.getAlias()
                : expression instanceof PrimaryExpression path ? path.getId() : expression.toString();
    }

    /** The values of a row by their names. */
    private static Map<String, Object> named(List<String> names, Object row) {
        Map<String, Object> named = new LinkedHashMap<>();
        for (int i = 0; i < names.size(); i++) {
            named.put(names.get(i), names.size() == 1 ? row : ((Object[]) row)[i]);
        }
        return named;
    }

    // ------------------------------------------------------------------------------------------- the end of the
    // execution

    private Object finish(Object result, Query.QueryType type) {
        if (isBulk(type)) {
            BulkExecution bulk = new BulkExecution(compiled, evaluator(), queries);
            List<Object> found = drained(result);
            return queries.limitingWrites(
                    query.getDatastoreWriteTimeoutMillis(),
                    () -> type == Query.QueryType.BULK_DELETE ? bulk.delete(found) : bulk.update(found));
        }
        if (result instanceof StreamedResult<?> streamed) {
            boolean outlivesContext = isJakarta() && !context.getTransaction().isActive();
            if (outlivesContext) {
                return drained(streamed);
            }
            closeWithConnection(streamed);
        }
        return result;
    }

    private static boolean isBulk(Query.QueryType type) {
        return type == Query.QueryType.BULK_DELETE || type == Query.QueryType.BULK_UPDATE;
    }

    /** Jakarta Persistence: a list of entities can be used after its entity manager was closed. */
    private boolean isJakarta() {
        return StoreSchema.isJakarta(context.getNucleusContext());
    }

    /** All objects of a result, which is closed. */
    private static List<Object> drained(Object result) {
        try {
            return new ArrayList<>((Collection<?>) result);
        } finally {
            if (result instanceof StreamedResult<?> streamed) {
                streamed.close();
            }
        }
    }

    /** Reads the rest of a result before its transaction ends. */
    private void closeWithConnection(StreamedResult<?> result) {
        if (!context.getTransaction().isActive()) {
            return;
        }
        ManagedConnection connection = store.getConnectionManager().getConnection(context);
        try {
            OpenResults.add(connection, result);
        } finally {
            connection.release();
        }
    }
}
