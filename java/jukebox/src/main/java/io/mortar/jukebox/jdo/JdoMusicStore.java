package io.mortar.jukebox.jdo;

import io.mortar.Client;
import io.mortar.InvalidRequestException;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.ChangeWatch;
import io.mortar.jukebox.model.Library;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.PlayLists;
import io.mortar.jukebox.model.Refusal;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import javax.jdo.Constants;
import javax.jdo.JDOHelper;
import javax.jdo.JDOUserException;
import javax.jdo.PersistenceManager;
import javax.jdo.PersistenceManagerFactory;
import javax.jdo.datastore.JDOConnection;

/** A jukebox in a space of Mortar, with JDO for its objects. */
public final class JdoMusicStore implements MusicStore {
    private static final int TIMEOUT_MS = 10_000;
    private static final int CLOSE_ATTEMPTS = 50;
    private static final int CLOSE_PAUSE_MS = 100;

    private final PersistenceManagerFactory factory;
    private final Client client;
    private final Accounts accounts;
    private final Library library;
    private final PlayLists playLists;

    private JdoMusicStore(PersistenceManagerFactory factory) {
        this.factory = factory;
        client = clientOf(factory);
        Transactions transactions = new Transactions(factory);
        accounts = new JdoAccounts(transactions);
        library = new JdoLibrary(transactions, new AudioContents(client));
        playLists = new JdoPlayLists(transactions);
    }

    /**
     * Opens the store of a jukebox; an empty space becomes one.
     *
     * @param url a connection URL of the plugin: {@code mortar://HOST:PORT/SPACE}, {@code mortar:embedded:DIRECTORY} or
     *     {@code mortar:memory:NAME}
     * @param options further properties of the plugin, such as the name of a user
     * @throws javax.jdo.JDOException if there is no such store, or it cannot be reached
     */
    public static JdoMusicStore open(String url, Map<String, String> options) {
        Map<String, Object> properties = new HashMap<>(options);
        properties.put(
                Constants.PROPERTY_PERSISTENCE_MANAGER_FACTORY_CLASS,
                "org.datanucleus.api.jdo.JDOPersistenceManagerFactory");
        properties.put(Constants.PROPERTY_CONNECTION_URL, url);
        properties.put(Constants.PROPERTY_OPTIMISTIC, "true");
        properties.put(Constants.PROPERTY_DATASTORE_READ_TIMEOUT_MILLIS, TIMEOUT_MS);
        properties.put(Constants.PROPERTY_DATASTORE_WRITE_TIMEOUT_MILLIS, TIMEOUT_MS);
        PersistenceManagerFactory factory = JDOHelper.getPersistenceManagerFactory(properties);
        try {
            return new JdoMusicStore(factory);
        } catch (RuntimeException error) {
            factory.close();
            throw error;
        }
    }

    private static Client clientOf(PersistenceManagerFactory factory) {
        try (PersistenceManager manager = factory.getPersistenceManager()) {
            JDOConnection connection = manager.getDataStoreConnection();
            try {
                return (Client) connection.getNativeConnection();
            } finally {
                connection.close();
            }
        }
    }

    @Override
    public Accounts accounts() {
        return accounts;
    }

    @Override
    public Library library() {
        return library;
    }

    @Override
    public PlayLists playLists() {
        return playLists;
    }

    @Override
    public ChangeWatch watch(Collection<String> ids) {
        try {
            return new StoreWatch(client.watch(ids.stream().map(Oid::parse).toList()));
        } catch (InvalidRequestException malformedOrOfAnotherSpace) {
            throw Refusal.notFound("object");
        } catch (MortarException error) {
            throw Transactions.refusal(error);
        }
    }

    /** Closes the store. Transactions that still run, for example because the cluster does not respond, fail. */
    @Override
    public void close() {
        for (int attempt = 1; !factory.isClosed(); attempt++) {
            try {
                factory.close();
            } catch (JDOUserException transactionsAreActive) {
                if (attempt == CLOSE_ATTEMPTS) {
                    throw transactionsAreActive;
                }
                client.close();
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(CLOSE_PAUSE_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
