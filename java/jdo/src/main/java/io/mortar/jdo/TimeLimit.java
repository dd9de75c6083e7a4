package io.mortar.jdo;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PropertyNames;

/**
 * Limits the time of one call of Mortar. The client has one limit for all calls, so another thread makes the call, and
 * is left alone with it when the time is over; what it returns then is discarded.
 */
final class TimeLimit {
    /** A limit of zero means that nothing should be waited for, but every call takes a round trip. */
    private static final long LEAST_MS = 100;

    private static final String LOCK_TIMEOUT = "jakarta.persistence.lock.timeout";
    private static final Executor THREADS = call -> {
        Thread thread = new Thread(call, "mortar-jdo-limited-call");
        thread.setDaemon(true);
        thread.start();
    };

    private TimeLimit() {}

    /** The limit of a wait for a lock, in milliseconds; negative if there is none. */
    static long ofLocks(ExecutionContext context) {
        Object value = context.getProperty(LOCK_TIMEOUT);
        if (value == null) {
            value = context.getNucleusContext().getConfiguration().getProperty(LOCK_TIMEOUT);
        }
        return value == null ? -1 : MortarStoreManager.number(LOCK_TIMEOUT, value.toString(), -1, Integer.MAX_VALUE);
    }

    /** The limit of a read, in milliseconds; negative if there is none but that of the client. */
    static long ofReads(ExecutionContext context) {
        return ofCalls(context, PropertyNames.PROPERTY_DATASTORE_READ_TIMEOUT);
    }

    /** The limit of a write, in milliseconds; negative if there is none but that of the client. */
    static long ofWrites(ExecutionContext context) {
        return ofCalls(context, PropertyNames.PROPERTY_DATASTORE_WRITE_TIMEOUT);
    }

    private static long ofCalls(ExecutionContext context, String property) {
        Integer limitMs = context.getIntProperty(property);
        long ofClientMs = ((MortarStoreManager) context.getStoreManager()).callLimitMs();
        boolean isShorter = limitMs != null && limitMs > 0 && (ofClientMs == 0 || limitMs < ofClientMs);
        return isShorter ? limitMs : -1;
    }

    /** Runs a call. It fails with a {@link TimeoutException} if the call takes longer than a number of milliseconds. */
    static <T> T run(Supplier<T> call, long limitMs) throws TimeoutException {
        try {
            return CompletableFuture.supplyAsync(call, THREADS).get(Math.max(limitMs, LEAST_MS), TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof RuntimeException error) {
                throw error;
            }
            throw new CompletionException(failed.getCause());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new TimeoutException("the thread was interrupted");
        }
    }
}
