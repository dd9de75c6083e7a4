package io.mortar.jukebox.jdbc;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.mortar.jukebox.model.Refusal;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** Connections to PostgreSQL, and transactions that run again if another one was first. */
final class Database implements AutoCloseable {
    private static final int ATTEMPTS = 20;
    private static final int LONGEST_PAUSE_MS = 250;
    /** Serialization failure, deadlock, and a unique key that another transaction has inserted meanwhile. */
    private static final Set<String> REPEATABLE = Set.of("40001", "40P01", "23505");

    private static final long SCHEMA_LOCK = 7_271_996;

    private final HikariDataSource connections;

    /** Work in a transaction. */
    @FunctionalInterface
    interface Work<T> {
        T run(Connection connection) throws SQLException, IOException;
    }

    Database(String url, String user, String password) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername(user);
        config.setPassword(password);
        config.setAutoCommit(false);
        config.setTransactionIsolation("TRANSACTION_SERIALIZABLE");
        connections = new HikariDataSource(config);
    }

    /** Creates the tables, if they do not exist. */
    void createTables() {
        transact(connection -> {
            try (InputStream script = Database.class.getResourceAsStream("/jukebox.sql");
                    Statement statement = connection.createStatement()) {
                statement.execute("select pg_advisory_xact_lock(" + SCHEMA_LOCK + ")");
                statement.execute(new String(script.readAllBytes(), StandardCharsets.UTF_8));
            }
            return null;
        });
    }

    <T> T transact(Work<T> work) {
        try {
            return transactIo(work);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Runs work, which may run several times. */
    <T> T transactIo(Work<T> work) throws IOException {
        for (int attempt = 1; ; attempt++) {
            // The pool rolls back what is not committed when a connection is closed.
            try (Connection connection = connections.getConnection()) {
                T result = work.run(connection);
                connection.commit();
                return result;
            } catch (SQLException error) {
                if (attempt == ATTEMPTS || !REPEATABLE.contains(String.valueOf(error.getSQLState()))) {
                    throw new Refusal(
                            Refusal.Reason.UNAVAILABLE, "the database is busy or cannot be reached; try again", error);
                }
            }
            pause(attempt);
        }
    }

    private static void pause(int attempt) {
        try {
            Thread.sleep(ThreadLocalRandom.current().nextInt(Math.min(LONGEST_PAUSE_MS, 4 << attempt)) + 1L);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new Refusal(Refusal.Reason.UNAVAILABLE, "the service is stopping", interrupted);
        }
    }

    @Override
    public void close() {
        connections.close();
    }
}
