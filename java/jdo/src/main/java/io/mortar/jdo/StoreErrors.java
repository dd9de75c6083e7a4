package io.mortar.jdo;

import io.mortar.AlreadyExistsException;
import io.mortar.ConflictException;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.UnavailableException;
import io.mortar.UnsupportedException;
import io.mortar.jdo.mapping.StoreSchema;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusOptimisticException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.identity.IdentityUtils;
import org.datanucleus.state.DNStateManager;

/** Converts errors of Mortar to those of DataNucleus, which each API converts to its own. */
final class StoreErrors {
    /** How the client says that it has waited for the lock of an object as long as for any call. */
    private static final Pattern UNGRANTED_LOCK = Pattern.compile("^no lock of (\\S+)");

    /** How the client names the index that forbids an object. */
    private static final Pattern UNIQUE_INDEX = Pattern.compile("index \"([^\"]+)\" is unique");

    private StoreErrors() {}

    /** Runs a call of Mortar for a context. */
    static <T> T translating(ExecutionContext context, Supplier<T> call) {
        try {
            return call.get();
        } catch (MortarException error) {
            throw translate(context, error);
        }
    }

    /** The error of a use of persistence contexts whose factory was closed. */
    static NucleusUserException closed() {
        return new NucleusUserException("the factory of this persistence manager or entity manager was closed");
    }

    static RuntimeException translate(ExecutionContext context, MortarException error) {
        if (context.getStoreManager().isClosed()) {
            return closed();
        }
        if (error instanceof ConflictException conflict) {
            return conflict(context, conflict.getMessage(), conflict.object());
        }
        if (error instanceof UnsupportedException) {
            return new NucleusUserException(error.getMessage(), error);
        }
        Matcher lock = UNGRANTED_LOCK.matcher(String.valueOf(error.getMessage()));
        if (error instanceof UnavailableException && lock.find()) {
            return lockTimeout(context, Oid.parse(lock.group(1)), error);
        }
        if (error instanceof AlreadyExistsException && isOfIdentity(context, error.getMessage())) {
            return exists(context, error.getMessage(), error);
        }
        String advice = error.isRetryable() ? " (the transaction can be run again)" : "";
        return new NucleusDataStoreException(error.getMessage() + advice, error);
    }

    /** The error of an object with an identity that another object has. */
    static RuntimeException exists(ExecutionContext context, String which, MortarException cause) {
        String message = "an object with this identity exists already: " + which;
        return StoreSchema.isJakarta(context.getNucleusContext())
                ? JakartaErrors.exists(message, cause)
                : new NucleusDataStoreException(message, cause);
    }

    /** Whether the unique index that an error names is that of an application identity. */
    private static boolean isOfIdentity(ExecutionContext context, String message) {
        Matcher index = UNIQUE_INDEX.matcher(String.valueOf(message));
        return index.find()
                && ((MortarStoreManager) context.getStoreManager()).schema().isIdentityIndex(index.group(1));
    }

    /**
     * The error of a transaction that conflicts with another one. It has the object as its failed object if the context
     * has it, and always names it if it is known.
     */
    static NucleusOptimisticException conflict(ExecutionContext context, String reason, Optional<Oid> object) {
        if (object.isEmpty()) {
            return new NucleusOptimisticException("another transaction has committed first: " + reason);
        }
        DNStateManager manager = managerOf(context, object.get());
        if (manager == null) {
            String type = ((MortarStoreManager) context.getStoreManager()).describe(object.get());
            return new NucleusOptimisticException("another transaction has changed " + type + " first: " + reason);
        }
        return conflict(manager, reason);
    }

    private static NucleusOptimisticException conflict(DNStateManager manager, String reason) {
        Object id = manager.getExternalObjectId();
        return new NucleusOptimisticException(
                "another transaction has changed the object " + IdentityUtils.getPersistableIdentityForId(id)
                        + " first: " + reason,
                manager.getObject());
    }

    /**
     * The error of a transaction that conflicts with another one about several objects: it has an error for each of
     * them.
     *
     * @param first the error for one of the objects
     * @param changed the objects that other transactions have changed
     */
    static NucleusOptimisticException conflicts(NucleusOptimisticException first, List<DNStateManager> changed) {
        List<NucleusOptimisticException> all = new ArrayList<>();
        for (DNStateManager each : changed) {
            all.add(
                    each.getObject() == first.getFailedObject()
                            ? first
                            : conflict(each, "it has changed since it was read"));
        }
        if (!all.contains(first)) {
            all.add(0, first);
        }
        return conflicts(all);
    }

    /** The error of a lock that was not obtained in time. */
    static RuntimeException lockTimeout(ExecutionContext context, Oid oid, long limitMs) {
        String message = "another transaction has locked "
                + ((MortarStoreManager) context.getStoreManager()).describe(oid) + " for longer than " + limitMs
                + " ms; this transaction was rolled back";
        return lockTimeout(context, message, null);
    }

    /** The error of a read or a write that has taken longer than a context permits. */
    static RuntimeException tooLong(ExecutionContext context, String what, long limitMs) {
        String consequence = context.getTransaction().isActive() ? "; this transaction was rolled back" : "";
        return new NucleusDataStoreException(what + " has taken longer than " + limitMs + " ms" + consequence);
    }

    /** The error of a lock that was not obtained within the time limit of calls. */
    private static RuntimeException lockTimeout(ExecutionContext context, Oid oid, MortarException error) {
        if (context.getTransaction().isActive()) {
            context.getTransaction().setRollbackOnly();
        }
        String message = "another transaction has locked "
                + ((MortarStoreManager) context.getStoreManager()).describe(oid)
                + "; this transaction must be rolled back, and can be run again: " + error.getMessage();
        return lockTimeout(context, message, error);
    }

    private static RuntimeException lockTimeout(ExecutionContext context, String message, MortarException cause) {
        return StoreSchema.isJakarta(context.getNucleusContext())
                ? JakartaErrors.lockTimeout(message, cause)
                : new NucleusDataStoreException(message, cause);
    }

    /** The error of a commit of a transaction that has read objects which have changed since. */
    static NucleusOptimisticException outdated(Collection<DNStateManager> managers) {
        String reason = "it has changed since it was read";
        List<NucleusOptimisticException> all = managers.stream()
                .filter(DNStateManager::isConnected)
                .map(each -> conflict(each, reason))
                .toList();
        return all.isEmpty()
                ? new NucleusOptimisticException(
                        "another transaction has changed an object first that this one has read")
                : conflicts(all);
    }

    static NucleusOptimisticException conflicts(List<NucleusOptimisticException> all) {
        return all.size() == 1 ? all.get(0) : new Conflicts(all);
    }

    /** Conflicts about several objects, of which the first is the failed object: not all APIs show the others. */
    private static final class Conflicts extends NucleusOptimisticException {
        private static final long serialVersionUID = 1;

        private final transient Object failed;

        Conflicts(List<NucleusOptimisticException> all) {
            super("other transactions have changed " + all.size() + " objects first", all.toArray(Throwable[]::new));
            failed = all.get(0).getFailedObject();
        }

        @Override
        public Object getFailedObject() {
            return failed;
        }
    }

    private static DNStateManager managerOf(ExecutionContext context, Oid oid) {
        if (context.getLevel1Cache() == null) {
            return null;
        }
        for (Object each : context.getLevel1Cache().values()) {
            if (each instanceof MortarStateManager manager && oid.equals(manager.knownOid())) {
                return manager;
            }
        }
        return null;
    }
}
