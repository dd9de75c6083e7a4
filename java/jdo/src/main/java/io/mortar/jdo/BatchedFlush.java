package io.mortar.jdo;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusOptimisticException;
import org.datanucleus.flush.FlushOrdered;
import org.datanucleus.flush.OperationQueue;
import org.datanucleus.state.DNStateManager;

/**
 * Flushes objects in the order in which they have become dirty. It first reads all changed objects that the transaction
 * has not read, with one call; the session sends all writes with another.
 */
final class BatchedFlush extends FlushOrdered {
    private final MortarStoreManager store;

    BatchedFlush(MortarStoreManager store) {
        this.store = store;
    }

    @Override
    public List<NucleusOptimisticException> execute(
            ExecutionContext context,
            Collection<DNStateManager> primary,
            Collection<DNStateManager> secondary,
            OperationQueue operations) {
        try {
            return store.changing(context, session -> flush(session, context, primary, secondary, operations));
        } catch (NucleusException error) {
            if (context.getTransaction().isActive()) {
                throw error;
            }
            // An assignment outside of transactions is flushed at once, so errors reach the application from here.
            throw context.getApiAdapter().getApiExceptionForNucleusException(error);
        }
    }

    private List<NucleusOptimisticException> flush(
            StoreSession session,
            ExecutionContext context,
            Collection<DNStateManager> primary,
            Collection<DNStateManager> secondary,
            OperationQueue operations) {
        Orphans orphans = session.orphans();
        try {
            List<DNStateManager> changed = new ArrayList<>();
            addChanged(primary, changed);
            addChanged(secondary, changed);
            if (changed.size() > 1) {
                ((MortarPersistenceHandler) store.getPersistenceHandler()).readForUpdate(context, changed);
            }
            List<NucleusOptimisticException> conflicts =
                    orphans.duringFlush(() -> super.execute(context, primary, secondary, operations));
            boolean isComplete = context.isDelayDatastoreOperationsEnabled()
                    || !context.getTransaction().isActive();
            if (isComplete) {
                orphans.delete(context);
            }
            if (conflicts != null) {
                // Within the exception that DataNucleus makes of them, the APIs do not show the objects.
                throw StoreErrors.conflicts(conflicts);
            }
            return null;
        } finally {
            if (!orphans.isFlushing() && !context.isManagingRelations()) {
                session.flushed();
            }
        }
    }

    private static void addChanged(Collection<DNStateManager> dirty, List<DNStateManager> changed) {
        if (dirty != null) {
            dirty.stream()
                    .filter(each ->
                            !each.isEmbedded() && !each.getLifecycleState().isNew())
                    .forEach(changed::add);
        }
    }
}
