package io.mortar.jdo.query;

import io.mortar.jdo.MortarStoreManager;
import java.util.Map;
import org.datanucleus.ExecutionContext;
import org.datanucleus.store.StoreManager;
import org.datanucleus.store.query.AbstractJPQLQuery;
import org.datanucleus.store.query.compiler.QueryCompilation;

/** A query of JPQL: a string, or built by the criteria API. */
public final class JpqlQuery extends AbstractJPQLQuery {
    private transient NativeQuery nativeQuery;

    public JpqlQuery(StoreManager store, ExecutionContext context) {
        super(store, context);
    }

    public JpqlQuery(StoreManager store, ExecutionContext context, String text) {
        super(store, context, text);
    }

    public JpqlQuery(StoreManager store, ExecutionContext context, JpqlQuery from) {
        super(store, context, from);
    }

    @Override
    public void compileGeneric(Map parameterValues) {
        ((MortarStoreManager) getStoreManager()).requireOpen();
        boolean isNew = compilation == null;
        if (isNew) {
            repair();
        }
        super.compileGeneric(parameterValues);
        if (isNew) {
            AliasCase.unify(compilation);
        }
        QueryCheck.checkNames(this, compilation);
    }

    @Override
    protected String getQueryCacheKey() {
        return CompiledQuery.cacheKey(
                super.getQueryCacheKey(), subqueries, each -> ((JpqlQuery) each).getQueryCacheKey());
    }

    private void repair() {
        from = JpqlText.repairedFrom(from);
        filter = JpqlText.repaired(filter);
        result = JpqlText.repaired(result);
        grouping = JpqlText.repaired(grouping);
        having = JpqlText.repaired(having);
        ordering = JpqlText.repaired(ordering);
        update = JpqlText.repairedUpdate(update);
        if (subqueries != null) {
            ((Map<String, SubqueryDefinition>) subqueries)
                    .values()
                    .forEach(each -> ((JpqlQuery) each.getQuery()).repair());
        }
    }

    /** Takes the compilation of a query of the criteria API. */
    @Override
    public void setCompilation(QueryCompilation criteria) {
        CriteriaCheck.check(criteria);
        super.setCompilation(criteria);
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
    protected Object performExecute(Map parameters) {
        QueryExecution execution = new QueryExecution(this, compilation, parameters, true);
        try {
            return execution.execute(null, evaluateInMemory(), type);
        } finally {
            nativeQuery = execution.nativeQuery();
        }
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
