package io.mortar.jdo.query;

import io.mortar.Rows;
import io.mortar.jdo.StoreQueries;
import io.mortar.jdo.mapping.ClassMapping;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.WeakHashMap;
import org.datanucleus.ExecutionContext;
import org.datanucleus.FetchPlan;
import org.datanucleus.store.query.AbstractExtent;

/**
 * All objects of a class, which an iterator reads one portion at a time and does not keep. An iterator is closed at its
 * end, and one that the program has forgotten is freed with its rows.
 */
public final class MortarExtent<T> extends AbstractExtent<T> {
    private final ClassMapping mapping;
    private final StoreQueries queries;
    private final FetchPlan plan;
    private final Set<ExtentIterator> open =
            Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

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
        ExtentIterator iterator = new ExtentIterator(queries.run(text.toString(), Map.of()));
        open.add(iterator);
        return iterator;
    }

    @Override
    public FetchPlan getFetchPlan() {
        return plan;
    }

    @Override
    public void close(Iterator<T> iterator) {
        if (open.remove(iterator)) {
            ((ExtentIterator) iterator).rows.close();
        }
    }

    @Override
    public void closeAll() {
        synchronized (open) {
            new ArrayList<>(open).forEach(this::close);
        }
    }

    /** Walks once through the objects. A closed iterator has no next object. */
    private final class ExtentIterator implements Iterator<T> {
        private final Rows rows;
        /** The transaction of the rows. */
        private final long epoch;

        ExtentIterator(Rows rows) {
            this.rows = rows;
            this.epoch = queries.epoch();
        }

        @Override
        public boolean hasNext() {
            boolean hasNext = open.contains(this) && queries.hasNext(rows);
            if (!hasNext) {
                close(this);
            }
            return hasNext;
        }

        @Override
        public T next() {
            if (!open.contains(this)) {
                throw new NoSuchElementException("the iterator is closed");
            }
            return (T) queries.object(queries.next(rows), epoch, plan, false);
        }
    }
}
