package io.mortar.jdo.query;

import io.mortar.jdo.MortarStoreManager;
import java.util.Map;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.StoreManager;
import org.datanucleus.store.query.AbstractJDOQLQuery;

/** A query of JDOQL: a string, or built by the typed API. */
public final class JdoqlQuery extends AbstractJDOQLQuery {
    private transient NativeQuery nativeQuery;

    public JdoqlQuery(StoreManager store, ExecutionContext context) {
        super(store, context);
    }

    public JdoqlQuery(StoreManager store, ExecutionContext context, String text) {
        super(store, context, text);
    }

    public JdoqlQuery(StoreManager store, ExecutionContext context, JdoqlQuery from) {
        super(store, context, from);
    }

    @Override
    protected boolean supportsTimeout() {
        return true;
    }

    @Override
    protected boolean isCompiled() {
        return compilation != null;
    }

    @Override
    public void compileGeneric(Map parameterValues) {
        ((MortarStoreManager) getStoreManager()).requireOpen();
        if (candidateClass == null && candidateClassName == null) {
            throw new NucleusUserException("the query has no class of candidates: " + this);
        }
        if (candidateClass == null) {
            // It fails for an unknown class, before the members of that are looked for.
            resolveClassDeclaration(candidateClassName);
        }
        if (compilation == null) {
            repair();
        }
        super.compileGeneric(parameterValues);
        QueryCheck.check(this, compilation);
        QueryCheck.checkNames(this, compilation);
    }

    /** Writes the clauses as DataNucleus reads them correctly. */
    private void repair() {
        filter = WrittenNumber.withSuffixes(filter, false);
        result = WrittenNumber.withSuffixes(result, false);
        grouping = WrittenNumber.withSuffixes(grouping, false);
        having = WrittenNumber.withSuffixes(having, false);
        ordering = WrittenNumber.withSuffixes(ordering, false);
        update = WrittenNumber.withSuffixes(update, false);
        if (subqueries != null) {
            ((Map<String, SubqueryDefinition>) subqueries)
                    .values()
                    .forEach(each -> ((JdoqlQuery) each.getQuery()).repair());
        }
    }

    @Override
    protected String getQueryCacheKey() {
        return CompiledQuery.cacheKey(
                super.getQueryCacheKey(), subqueries, each -> ((JdoqlQuery) each).getQueryCacheKey());
    }

    /** Makes the changes of the transaction visible to the query. */
    @Override
    protected void prepareDatastore() {
        if (!getIgnoreCache() && ec.getTransaction().isActive()) {
            ec.flushInternal(false);
        } else {
            super.prepareDatastore();
        }
    }

    @Override
    protected Object performExecute(Map parameters) {
        QueryCheck.checkParameters(compilation, parameters);
        QueryExecution execution = new QueryExecution(this, compilation, parameters, false);
        try {
            return execution.execute(candidateCollection, evaluateInMemory(), type);
        } finally {
            nativeQuery = execution.nativeQuery();
        }
    }

    /**
     * Deletes what the query finds, as a bulk delete of JPQL does. One that must find one object at most is executed
     * first.
     */
    @Override
    protected long performDeletePersistentAll(Map parameters) {
        if (isUnique()) {
            return super.performDeletePersistentAll(parameters);
        }
        compileInternal(parameters);
        prepareDatastore();
        QueryCheck.checkParameters(compilation, parameters);
        QueryExecution execution = new QueryExecution(this, compilation, parameters, false);
        try {
            return (Long) execution.execute(candidateCollection, evaluateInMemory(), QueryType.BULK_DELETE);
        } finally {
            nativeQuery = execution.nativeQuery();
        }
    }

    @Override
    protected boolean evaluateInMemory() {
        return candidateCollection == null && super.evaluateInMemory();
    }

    @Override
    public boolean processesRangeInDatastoreQuery() {
        return true;
    }

    /** Returns what the last execution has sent to the store, and what it evaluated in memory. */
    @Override
    public Object getNativeQuery() {
        return nativeQuery;
    }
}
