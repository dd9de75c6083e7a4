package io.mortar.jdo;

import java.util.Collection;
import org.datanucleus.NucleusContext;
import org.datanucleus.cache.AbstractLevel2Cache;
import org.datanucleus.cache.CachedPC;

/**
 * A second-level cache that keeps no objects. An entity manager factory has it unless a property asks for another one:
 * Jakarta Persistence 3.1, section 7.10, wants a factory to have a {@code Cache}, and DataNucleus has none without a
 * second-level cache. Contexts do not use it; see {@link BeginListener#register}.
 */
public final class EmptyLevel2Cache extends AbstractLevel2Cache {
    /** The value of the property {@code datanucleus.cache.level2.type}. */
    static final String NAME = "mortar-empty";

    private static final long serialVersionUID = 1;

    public EmptyLevel2Cache(NucleusContext nucleus) {
        super(nucleus);
    }

    @Override
    public void close() {
        // Nothing is kept.
    }

    @Override
    public void evict(Object id) {
        // Nothing is kept.
    }

    @Override
    public void evictAll() {
        // Nothing is kept.
    }

    @Override
    public void evictAll(Class type, boolean subclasses) {
        // Nothing is kept.
    }

    @Override
    public void evictAll(Collection ids) {
        // Nothing is kept.
    }

    @Override
    public void evictAll(Object[] ids) {
        // Nothing is kept.
    }

    @Override
    public boolean containsOid(Object id) {
        return false;
    }

    @Override
    public CachedPC get(Object id) {
        return null;
    }

    @Override
    public int getSize() {
        return 0;
    }

    @Override
    public boolean isEmpty() {
        return true;
    }

    @Override
    public CachedPC put(Object id, CachedPC object) {
        return null;
    }
}
