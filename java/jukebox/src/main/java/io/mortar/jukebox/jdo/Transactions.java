package io.mortar.jukebox.jdo;

import io.mortar.AlreadyExistsException;
import io.mortar.ErrorKind;
import io.mortar.MortarException;
import io.mortar.jukebox.model.Refusal;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import javax.jdo.JDOException;
import javax.jdo.JDOObjectNotFoundException;
import javax.jdo.JDOOptimisticVerificationException;
import javax.jdo.PersistenceManager;
import javax.jdo.PersistenceManagerFactory;
import javax.jdo.Transaction;

/** Runs each piece of work in an optimistic transaction, again if another transaction was first. */
final class Transactions {
    private static final int ATTEMPTS = 20;
    /** No attempt begins after this time, because a person waits for the page. */
    private static final long LONGEST_NANOS = TimeUnit.SECONDS.toNanos(10);

    private static final int LONGEST_PAUSE_MS = 250;

    private final PersistenceManagerFactory factory;

    Transactions(PersistenceManagerFactory factory) {
        this.factory = factory;
    }

    /** Runs work, which may run several times. It returns values, not persistent objects. */
    <T> T run(Function<PersistenceManager, T> work) {
        long start = System.nanoTime();
        for (int attempt = 1; ; attempt++) {
            try {
                return runOnce(work);
            } catch (JDOException error) {
                boolean isLast = attempt == ATTEMPTS || System.nanoTime() - start > LONGEST_NANOS;
                if (isLast || !isRepeatable(error)) {
                    throw refusal(error);
                }
            }
            pause(attempt);
        }
    }

    /** Runs work without a result, which may run several times. */
    void execute(Consumer<PersistenceManager> work) {
        run(manager -> {
            work.accept(manager);
            return null;
        });
    }

    private <T> T runOnce(Function<PersistenceManager, T> work) {
        PersistenceManager manager = factory.getPersistenceManager();
        try {
            Transaction transaction = manager.currentTransaction();
            transaction.begin();
            try {
                T result = work.apply(manager);
                transaction.commit();
                return result;
            } finally {
                if (transaction.isActive()) {
                    transaction.rollback();
                }
            }
        } finally {
            manager.close();
        }
    }

    /**
     * Whether the work may succeed when it runs again: after a conflict, after the loss of a server, when an object was
     * removed that this transaction had found, and when another transaction has created the same unique object, which
     * is found now.
     */
    private static boolean isRepeatable(Throwable error) {
        return isBehind(
                error,
                cause -> cause instanceof JDOOptimisticVerificationException
                        || cause instanceof JDOObjectNotFoundException
                        || cause instanceof AlreadyExistsException
                        || cause instanceof MortarException store && store.isRetryable());
    }

    /** Whether work that has failed with an error may have taken effect all the same. */
    static boolean mayHaveCommitted(RuntimeException error) {
        return error instanceof Refusal refusal
                ? refusal.reason() == Refusal.Reason.UNAVAILABLE
                : isBehind(error, cause -> cause instanceof MortarException store && !hasChangedNothing(store.kind()));
    }

    private static boolean hasChangedNothing(ErrorKind kind) {
        return switch (kind) {
            case INVALID, NOT_FOUND, TOO_LARGE, DENIED, FULL, UNSUPPORTED, EXISTS, QUOTA_EXCEEDED -> true;
            default -> false;
        };
    }

    /** Whether an error, or one behind it, is of a kind. */
    private static boolean isBehind(Throwable error, Predicate<Throwable> kind) {
        if (kind.test(error)) {
            return true;
        }
        if (error instanceof JDOException jdo && jdo.getNestedExceptions() != null) {
            for (Throwable nested : jdo.getNestedExceptions()) {
                if (nested != error && isBehind(nested, kind)) {
                    return true;
                }
            }
        }
        return error.getCause() != null && error.getCause() != error && isBehind(error.getCause(), kind);
    }

    /** What the caller of a method of the store gets: UNAVAILABLE if the same call may succeed later. */
    static RuntimeException refusal(RuntimeException error) {
        if (isRepeatable(error)) {
            return new Refusal(Refusal.Reason.UNAVAILABLE, "the store is busy or cannot be reached; try again", error);
        }
        return error;
    }

    private static void pause(int attempt) {
        try {
            Thread.sleep(ThreadLocalRandom.current().nextInt(Math.min(LONGEST_PAUSE_MS, 4 << attempt)) + 1L);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new Refusal(Refusal.Reason.UNAVAILABLE, "the service is stopping", interrupted);
        }
    }
}
