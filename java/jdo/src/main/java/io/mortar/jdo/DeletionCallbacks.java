package io.mortar.jdo;

import org.datanucleus.state.CallbackHandler;

/**
 * The callbacks of an object whose deletion is flushed. DataNucleus announces a deletion when the application deletes
 * the object, and again when that is flushed: the callbacks and listeners of the application learn of it once.
 */
record DeletionCallbacks(CallbackHandler all) implements CallbackHandler {
    @Override
    public void preDelete(Object deleted) {
        // The deletion was announced before.
    }

    @Override
    public void postDelete(Object deleted) {
        all.postDelete(deleted);
    }

    @Override
    public void postLoad(Object deleted) {
        all.postLoad(deleted);
    }

    @Override
    public void addListener(Object listener, Class[] classes) {
        all.addListener(listener, classes);
    }

    @Override
    public void removeListener(Object listener) {
        all.removeListener(listener);
    }

    @Override
    public void close() {
        all.close();
    }
}
