package io.mortar.jdo.query;

import io.mortar.Rows;
import io.mortar.jdo.StoreQueries;
import io.mortar.jdo.mapping.ClassMapping;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.datanucleus.ExecutionContext;
import org.datanucleus.FetchPlan;
import org.datanucleus.store.query.AbstractExtent;

/** All objects of a class, which an iterator reads one portion at a time and does not keep. */
public final class MortarExtent<T> extends AbstractExtent<T> {
    private final ClassMapping mapping;
    private final StoreQueries queries;
    private final FetchPlan plan;
    private final Map<Iterator<T>, Rows> open = new ConcurrentHashMap<>();

    public MortarExtent(
            ExecutionContext context, Class<T> type, boolean subclasses, ClassMapping mapping, StoreQueries queries) {
        super(context, type, subclasses, mapping.metadata());
        this.mapping = mapping;
        this.queries = queries;
        this.plan = context.getFetchPlan().getCopy();
    }

    @Override
    public Iterator<T> iterator() {
        if (ec.getTransaction().isActive()) {
            ec.flushInternal(false);
        }
        QueryText text = new QueryText();
        text.from(mapping, !subclasses, ec);
        Rows rows = queries.run(text.toString(), Map.of());
        Iterator<T> iterator = StreamedResult.forEachOnce(queries, rows, plan, open::containsKey);
        open.put(iterator, rows);
        return iterator;
    }

    @Override
    public FetchPlan getFetchPlan() {
        return plan;
    }

    @Override
    public void close(Iterator<T> iterator) {
        Rows rows = open.remove(iterator);
        if (rows != null) {
            rows.close();
        }
    }

    @Override
    public void closeAll() {
        open.values().forEach(Rows::close);
        open.clear();
    }
}
