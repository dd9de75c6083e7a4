package io.mortar.jdo;

import java.util.ArrayList;
import java.util.List;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PropertyNames;
import org.datanucleus.cache.NullLevel2Cache;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.state.LifeCycleState;
import org.datanucleus.transaction.Transaction;
import org.datanucleus.transaction.TransactionEventListener;

/**
 * Makes a new transaction read objects anew that its context has read before. In an optimistic transaction of JDO,
 * objects are read without becoming transactional, so DataNucleus leaves their values when the transaction ends.
 *
 * <p>It does nothing if the application wants to retain values, as Jakarta Persistence does by default; see
 * {@link MortarStateManager#basis}.
 */
record BeginListener(ExecutionContext context) implements TransactionEventListener {
    /** Listens to the transactions of a context from now on. The context does not fill a cache that keeps nothing. */
    static void register(ExecutionContext context) {
        if (context.getNucleusContext().getLevel2Cache() instanceof EmptyLevel2Cache) {
            context.setProperty(PropertyNames.PROPERTY_CACHE_L2_TYPE, NullLevel2Cache.NAME);
        }
        Transaction transaction = context.getTransaction();
        BeginListener listener = new BeginListener(context);
        transaction.removeTransactionEventListener(listener);
        transaction.bindTransactionEventListener(listener);
    }

    @Override
    public void transactionStarted() {
        if (context.getLevel1Cache() == null) {
            return;
        }
        if (!context.getTransaction().getOptimistic()) {
            overwrite();
        }
        if (!context.getTransaction().getRetainValues()) {
            evict();
        }
    }

    /**
     * The changes that were made outside of transactions are stored by a datastore transaction whether or not another
     * one has changed their objects meanwhile: JDO 3.2, section 5.6.2.
     */
    private void overwrite() {
        for (Object each : context.getLevel1Cache().values()) {
            if (each instanceof MortarStateManager manager
                    && manager.getLifecycleState() != null
                    && manager.getLifecycleState().stateType() == LifeCycleState.P_NONTRANS_DIRTY) {
                manager.forgetRecord();
                manager.setVersion(null);
            }
        }
    }

    private void evict() {
        List<DNStateManager> read = new ArrayList<>();
        for (Object each : context.getLevel1Cache().values()) {
            if (each instanceof DNStateManager manager
                    && manager.getLifecycleState() != null
                    && manager.getLifecycleState().stateType() == LifeCycleState.P_NONTRANS) {
                read.add(manager);
            }
        }
        for (DNStateManager each : read) {
            each.evict();
            // The version is read with the members.
            each.setVersion(null);
        }
    }

    @Override
    public void transactionEnded() {
        // Objects are evicted when the next transaction begins.
    }

    @Override
    public void transactionPreFlush() {
        // Nothing to do.
    }

    @Override
    public void transactionFlushed() {
        // Nothing to do.
    }

    @Override
    public void transactionPreCommit() {
        // Nothing to do.
    }

    @Override
    public void transactionCommitted() {
        // Nothing to do.
    }

    @Override
    public void transactionPreRollBack() {
        // Nothing to do.
    }

    @Override
    public void transactionRolledBack() {
        // Nothing to do.
    }

    @Override
    public void transactionSetSavepoint(String name) {
        // Mortar has no savepoints.
    }

    @Override
    public void transactionReleaseSavepoint(String name) {
        // Mortar has no savepoints.
    }

    @Override
    public void transactionRollbackToSavepoint(String name) {
        // Mortar has no savepoints.
    }
}
