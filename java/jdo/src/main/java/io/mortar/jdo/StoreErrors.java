package io.mortar.jdo;

import io.mortar.ConflictException;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.UnsupportedException;
import java.util.Optional;
import java.util.function.Supplier;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusOptimisticException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.identity.IdentityUtils;
import org.datanucleus.state.DNStateManager;

/** Converts errors of Mortar to those of DataNucleus, which each API converts to its own. */
final class StoreErrors {
    private StoreErrors() {}

    /** Runs a call of Mortar for a context. */
    static <T> T translating(ExecutionContext context, Supplier<T> call) {
        try {
            return call.get();
        } catch (MortarException error) {
            throw translate(context, error);
        }
    }

    static NucleusException translate(ExecutionContext context, MortarException error) {
        if (error instanceof ConflictException conflict) {
            return conflict(context, conflict.getMessage(), conflict.object());
        }
        if (error instanceof UnsupportedException) {
            return new NucleusUserException(error.getMessage(), error);
        }
        String advice = error.isRetryable() ? " (the transaction can be run again)" : "";
        return new NucleusDataStoreException(error.getMessage() + advice, error);
    }

    /**
     * The error of a transaction that conflicts with another one. It has the object as its failed object if the context has it,
     * and always names it if it is known.
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
        Object id = manager.getExternalObjectId();
        return new NucleusOptimisticException("another transaction has changed the object "
                + IdentityUtils.getPersistableIdentityForId(id) + " first: " + reason, manager.getObject());
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
