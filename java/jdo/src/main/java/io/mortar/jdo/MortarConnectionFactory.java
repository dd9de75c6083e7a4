package io.mortar.jdo;

import java.util.List;
import java.util.Map;
import javax.transaction.Synchronization;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PropertyNames;
import org.datanucleus.store.StoreManager;
import org.datanucleus.store.connection.AbstractConnectionFactory;
import org.datanucleus.store.connection.AbstractEmulatedXAResource;
import org.datanucleus.store.connection.AbstractManagedConnection;
import org.datanucleus.store.connection.ManagedConnection;
import org.datanucleus.store.connection.ManagedConnectionResourceListener;
import org.datanucleus.transaction.ResourcedTransaction;

/**
 * Gives each transaction of a persistence context a connection with a session of its own, and each context another one
 * for its work outside of transactions. All of them use the client of the store manager.
 */
public final class MortarConnectionFactory extends AbstractConnectionFactory {
    private final boolean isTransactional;

    public MortarConnectionFactory(StoreManager store, String resourceName) {
        super(store, resourceName);
        isTransactional = RESOURCE_NAME_TX.equals(resourceName);
    }

    @Override
    public ManagedConnection createManagedConnection(ExecutionContext context, Map options) {
        if (context != null) {
            BeginListener.register(context);
        }
        return new Connection((MortarStoreManager) storeMgr, context, !isTransactional);
    }

    /** A connection, which has a session. Its native connection is the {@link io.mortar.Client}. */
    static final class Connection extends AbstractManagedConnection {
        private final MortarStoreManager store;
        private final ExecutionContext context;
        private final boolean isImplicit;
        private final StoreSession session;
        private XAResource resource;

        Connection(MortarStoreManager store, ExecutionContext context, boolean isImplicit) {
            this.store = store;
            this.context = context;
            this.isImplicit = isImplicit;
            this.session = new StoreSession(store.client(), context, isImplicit);
        }

        StoreSession session() {
            return session;
        }

        @Override
        public Object getConnection() {
            return store.client();
        }

        @Override
        public XAResource getXAResource() {
            if (isImplicit) {
                return null;
            }
            if (resource == null) {
                resource = new Resource(this);
            }
            return resource;
        }

        /** A connection outside of transactions stays open until its context is closed. */
        @Override
        public void release() {
            useCount--;
            if (isImplicit && useCount == 0) {
                session.release();
            }
        }

        /**
         * Undoes the writes of a change outside of transactions that has failed, unless it is a part of another one.
         */
        void abandonChange() {
            if (isImplicit && useCount == 1) {
                session.abort();
            }
        }

        @Override
        public void transactionFlushed() {
            if (context.isFlushing()) {
                session.orphans().delete(context);
            }
            // Both ends of a transaction flush. The commit of the session sends its writes itself, and a rollback needs
            // none.
            if (!context.getTransaction().isCommitting()) {
                session.flush();
            } else if (session.isIdentityReused()) {
                keepNewObjects();
            }
            super.transactionFlushed();
        }

        /**
         * Before the commit, DataNucleus removes new objects that no persistent one refers to any more. It takes an
         * object for deleted whose identity a deleted one has had, and would remove it with all that only it refers to.
         * A transaction with such an object keeps all of its new objects: DataNucleus forgets which these are.
         */
        private void keepNewObjects() {
            context.setProperty(PropertyNames.PROPERTY_PERSISTENCE_BY_REACHABILITY_AT_COMMIT, "true");
        }

        @Override
        public void close() {
            List<ManagedConnectionResourceListener> notified = List.copyOf(listeners);
            notified.forEach(ManagedConnectionResourceListener::managedConnectionPreClose);
            session.abort();
            notified.forEach(ManagedConnectionResourceListener::managedConnectionPostClose);
            super.close();
        }
    }

    /**
     * Takes part in the transaction of the context. The commit is done before the completion of that transaction,
     * because only an exception from there reaches the application as it is, and a conflict must arrive as one.
     */
    private static final class Resource extends AbstractEmulatedXAResource implements Synchronization {
        private final Connection connection;
        private boolean isCommitted;

        Resource(Connection connection) {
            super(connection);
            this.connection = connection;
        }

        @Override
        public void start(Xid branch, int flags) throws XAException {
            super.start(branch, flags);
            ResourcedTransaction transaction = connection
                    .context
                    .getNucleusContext()
                    .getResourcedTransactionManager()
                    .getTransaction(connection.context);
            if (transaction != null) {
                transaction.registerSynchronization(this);
            }
        }

        @Override
        public void beforeCompletion() {
            isCommitted = true;
            connection.session.commit();
        }

        @Override
        public void afterCompletion(int status) {
            // The session has ended.
        }

        @Override
        public void commit(Xid branch, boolean onePhase) throws XAException {
            super.commit(branch, onePhase);
            if (!isCommitted) {
                connection.session.commit();
            }
        }

        @Override
        public void rollback(Xid branch) throws XAException {
            super.rollback(branch);
            connection.session.abort();
        }
    }
}
