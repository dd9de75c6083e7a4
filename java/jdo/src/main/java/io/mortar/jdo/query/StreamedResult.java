package io.mortar.jdo.query;

import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.jdo.StoreQueries;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.ListIterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import org.datanucleus.FetchPlan;
import org.datanucleus.store.query.AbstractQueryResult;
import org.datanucleus.store.query.AbstractQueryResultIterator;
import org.datanucleus.store.query.Query;

/**
 * The objects that a query returns, in a list that is read as far as it is used. The list keeps the identifiers of the
 * objects that were read, and the first objects as long as there is memory. It finds the others again by their
 * identifiers.
 */
final class StreamedResult<E> extends AbstractQueryResult<E> {
    /** A longer result has only identifiers of what follows. */
    private static final int OBJECTS_KEPT = 10_000;

    private final transient StoreQueries queries;
    private final transient FetchPlan plan;
    private final boolean ignoreCache;
    private transient Rows rows;
    /** The transaction of the rows. */
    private final transient long epoch;

    private final transient OidList oids = new OidList();
    private final transient List<Entry> entries = new ArrayList<>();
    /** The object that was read last. */
    private transient Object last;

    /** An object that was read. Once the connection is closed the list keeps it. */
    private record Entry(SoftReference<Object> object, Object kept) {
        static Entry of(Object object) {
            return new Entry(new SoftReference<>(object), null);
        }

        Object get() {
            return kept != null ? kept : object.get();
        }
    }

    StreamedResult(Query<E> query, StoreQueries queries, Rows rows, FetchPlan plan, boolean ignoreCache) {
        super(query);
        this.queries = queries;
        this.rows = rows;
        this.epoch = queries.epoch();
        this.plan = plan;
        this.ignoreCache = ignoreCache;
    }

    private boolean readNext() {
        if (rows == null || !queries.hasNext(rows)) {
            return false;
        }
        Row row = queries.next(rows);
        last = queries.object(row, epoch, plan, ignoreCache);
        oids.add(row.oid());
        if (entries.size() < OBJECTS_KEPT) {
            entries.add(Entry.of(last));
        }
        return true;
    }

    @Override
    public synchronized E get(int index) {
        if (!has(index)) {
            throw new IndexOutOfBoundsException(
                    "the result has " + oids.size() + " objects; there is no number " + index);
        }
        if (index == oids.size() - 1) {
            return (E) last;
        }
        Object object = index < entries.size() ? entries.get(index).get() : null;
        if (object == null) {
            object = queries.object(oids.get(index));
            if (index < entries.size()) {
                entries.set(index, Entry.of(object));
            }
        }
        return (E) object;
    }

    private synchronized boolean has(int index) {
        assertIsOpen();
        while (oids.size() <= index) {
            if (!readNext()) {
                return false;
            }
        }
        return true;
    }

    @Override
    protected int getSizeUsingMethod() {
        if ("last".equalsIgnoreCase(resultSizeMethod)) {
            has(Integer.MAX_VALUE);
            return oids.size();
        }
        return super.getSizeUsingMethod();
    }

    @Override
    public boolean isEmpty() {
        return !has(0);
    }

    @Override
    protected void closingConnection() {
        if (loadResultsAtCommit && isOpen() && rows != null) {
            has(Integer.MAX_VALUE);
        }
        entries.replaceAll(entry -> new Entry(entry.object(), entry.get()));
    }

    @Override
    protected synchronized void closeResults() {
        if (rows != null) {
            rows.close();
            rows = null;
        }
    }

    @Override
    public boolean contains(Object object) {
        return indexOf(object) >= 0;
    }

    @Override
    public boolean containsAll(Collection objects) {
        return objects.stream().allMatch(this::contains);
    }

    @Override
    public int indexOf(Object object) {
        int index = 0;
        while (has(index) && !Objects.equals(object, get(index))) {
            index++;
        }
        return index < oids.size() ? index : -1;
    }

    @Override
    public int lastIndexOf(Object object) {
        int index = size() - 1;
        while (index >= 0 && !Objects.equals(object, get(index))) {
            index--;
        }
        return index;
    }

    /** A result is serialized as a list of its objects. */
    private Object writeReplace() {
        return new ArrayList<>(this);
    }

    @Override
    public boolean equals(Object other) {
        return this == other;
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(this);
    }

    @Override
    public Iterator<E> iterator() {
        return new ResultIterator();
    }

    @Override
    public ListIterator<E> listIterator() {
        return new ResultIterator();
    }

    private final class ResultIterator extends AbstractQueryResultIterator<E> {
        private int next;

        @Override
        public boolean hasNext() {
            return isOpen() && has(next);
        }

        @Override
        public boolean hasPrevious() {
            return isOpen() && next > 0;
        }

        @Override
        public E next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return get(next++);
        }

        @Override
        public E previous() {
            if (!hasPrevious()) {
                throw new NoSuchElementException();
            }
            return get(--next);
        }

        @Override
        public int nextIndex() {
            return next;
        }

        @Override
        public int previousIndex() {
            return next - 1;
        }
    }
}
