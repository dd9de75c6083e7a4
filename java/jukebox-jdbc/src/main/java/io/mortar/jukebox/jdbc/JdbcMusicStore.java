package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.ChangeWatch;
import io.mortar.jukebox.model.Library;
import io.mortar.jukebox.model.MusicStore;
import io.mortar.jukebox.model.PlayLists;
import java.sql.SQLException;
import java.util.Collection;
import java.util.logging.Level;
import java.util.logging.Logger;

/** A jukebox in a database of PostgreSQL. */
public final class JdbcMusicStore implements MusicStore {
    private static final Logger LOG = Logger.getLogger(JdbcMusicStore.class.getName());

    private final Database database;
    private final Notifications notifications;
    private final Accounts accounts;
    private final Library library;
    private final PlayLists playLists;

    /**
     * Opens the store; an empty database becomes one.
     *
     * @param url such as {@code jdbc:postgresql://localhost/jukebox}
     */
    public JdbcMusicStore(String url, String user, String password) throws SQLException {
        database = new Database(url, user, password);
        try {
            database.createTables();
            notifications = new Notifications(url, user, password);
        } catch (SQLException | RuntimeException error) {
            database.close();
            throw error;
        }
        accounts = new JdbcAccounts(database);
        library = new JdbcLibrary(database);
        playLists = new JdbcPlayLists(database);
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
        ids.forEach(id -> Identifiers.parse(id, "object"));
        return notifications.watch(ids);
    }

    @Override
    public void close() {
        try {
            notifications.close();
        } catch (SQLException error) {
            LOG.log(Level.FINE, "the connection of the notifications cannot be closed", error);
        }
        database.close();
    }
}
