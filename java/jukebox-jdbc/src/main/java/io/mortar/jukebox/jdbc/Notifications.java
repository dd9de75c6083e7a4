package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.ChangeWatch;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/**
 * Listens to the notifications of all instances, with a connection and a thread of its own, and tells them to the
 * watches.
 */
final class Notifications implements AutoCloseable {
    private static final Logger LOG = Logger.getLogger(Notifications.class.getName());
    private static final String CHANNEL = "jukebox";
    private static final int RECONNECT_MS = 1000;

    private final String url;
    private final String user;
    private final String password;
    private final Set<Watch> watches = ConcurrentHashMap.newKeySet();
    private volatile Connection connection;
    private volatile boolean isClosed;

    Notifications(String url, String user, String password) throws SQLException {
        this.url = url;
        this.user = user;
        this.password = password;
        connection = listen();
        Thread thread = new Thread(this::run, "jukebox-notifications");
        thread.setDaemon(true);
        thread.start();
    }

    /** Tells, when the transaction is committed, that objects have changed. */
    static void send(Connection connection, long... ids) throws SQLException {
        for (long id : ids) {
            Sql.first(connection, row -> null, "select pg_notify('" + CHANNEL + "', ?)", Long.toString(id));
        }
    }

    private Connection listen() throws SQLException {
        Connection opened = DriverManager.getConnection(url, user, password);
        try (Statement statement = opened.createStatement()) {
            statement.execute("listen " + CHANNEL);
        }
        return opened;
    }

    private void run() {
        while (!isClosed) {
            try {
                for (PGNotification notification :
                        connection.unwrap(PGConnection.class).getNotifications(0)) {
                    watches.forEach(watch -> watch.changed(notification.getParameter()));
                }
            } catch (SQLException error) {
                if (!isClosed) {
                    LOG.log(Level.WARNING, "the notifications of the database have ended: {0}", error.getMessage());
                    reconnect();
                }
            }
        }
    }

    private void reconnect() {
        while (!isClosed) {
            try {
                Thread.sleep(RECONNECT_MS);
                connection.close();
                connection = listen();
                // Anything may have changed meanwhile.
                watches.forEach(Watch::allChanged);
                return;
            } catch (SQLException error) {
                LOG.log(Level.FINE, "no connection for notifications", error);
            } catch (InterruptedException interrupted) {
                return;
            }
        }
    }

    ChangeWatch watch(Collection<String> ids) {
        Watch watch = new Watch(Set.copyOf(ids));
        watches.add(watch);
        return watch;
    }

    @Override
    public void close() throws SQLException {
        isClosed = true;
        watches.forEach(Watch::close);
        connection.close();
    }

    private final class Watch implements ChangeWatch {
        private final Set<String> ids;
        private final Set<String> changed = new LinkedHashSet<>();
        private boolean isOver;

        Watch(Set<String> ids) {
            this.ids = ids;
        }

        synchronized void changed(String id) {
            if (ids.contains(id)) {
                changed.add(id);
                notifyAll();
            }
        }

        synchronized void allChanged() {
            changed.addAll(ids);
            notifyAll();
        }

        @Override
        public synchronized Set<String> next() {
            try {
                while (changed.isEmpty() && !isOver) {
                    wait();
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return Set.of();
            }
            Set<String> result = Set.copyOf(changed);
            changed.clear();
            return result;
        }

        @Override
        public void close() {
            watches.remove(this);
            synchronized (this) {
                isOver = true;
                notifyAll();
            }
        }
    }
}
