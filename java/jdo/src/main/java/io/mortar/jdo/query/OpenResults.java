package io.mortar.jdo.query;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import org.datanucleus.store.connection.ManagedConnection;
import org.datanucleus.store.connection.ManagedConnectionResourceListener;
import org.datanucleus.store.connection.ManagedConnectionWithListenerAccess;

/**
 * The results of the queries of a transaction that the program still has. They read their rest before the transaction
 * ends.
 */
final class OpenResults implements ManagedConnectionResourceListener {
    private final Set<StreamedResult<?>> results =
            Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

    private OpenResults() {}

    /** Adds a result of the transaction of a connection. */
    static void add(ManagedConnection connection, StreamedResult<?> result) {
        of((ManagedConnectionWithListenerAccess) connection).results.add(result);
    }

    private static OpenResults of(ManagedConnectionWithListenerAccess connection) {
        for (ManagedConnectionResourceListener each : connection.getListeners()) {
            if (each instanceof OpenResults known) {
                return known;
            }
        }
        OpenResults first = new OpenResults();
        connection.addListener(first);
        return first;
    }

    private void disconnect() {
        List<StreamedResult<?>> open;
        synchronized (results) {
            open = new ArrayList<>(results);
            results.clear();
        }
        RuntimeException failure = null;
        for (StreamedResult<?> result : open) {
            try {
                result.disconnect();
            } catch (RuntimeException failed) {
                // The others are disconnected all the same.
                if (failure == null) {
                    failure = failed;
                } else {
                    failure.addSuppressed(failed);
                }
            }
        }
        if (failure != null) {
            throw failure;
        }
    }

    @Override
    public void transactionFlushed() {
        // The results are of the state before.
    }

    @Override
    public void transactionPreClose() {
        disconnect();
    }

    @Override
    public void managedConnectionPreClose() {
        disconnect();
    }

    @Override
    public void managedConnectionPostClose() {
        // Nothing is left to close.
    }

    @Override
    public void resourcePostClose() {
        // A closed result has nothing to read.
    }
}
