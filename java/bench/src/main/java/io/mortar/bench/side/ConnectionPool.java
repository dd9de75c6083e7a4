package io.mortar.bench.side;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;

/** The connections to a database that speaks SQL: a pool of its own for each factory. */
final class ConnectionPool {
    /** Connections besides those of transactions: a thread may also fetch numbers of a sequence. */
    private static final int PER_THREAD = 2;

    private final String url;
    private final int threads;

    ConnectionPool(String url, int threads) {
        this.url = url;
        this.threads = threads;
    }

    /** Opens a pool. */
    HikariDataSource open() {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        if (isPostgres()) {
            config.setUsername("postgres");
            // Statements are prepared at the server from their fifth execution on and cached by each connection: the
            // defaults.
            config.addDataSourceProperty("reWriteBatchedInserts", "true");
        } else {
            config.setUsername("sa");
        }
        config.setAutoCommit(false);
        config.setMinimumIdle(threads);
        config.setMaximumPoolSize(threads * PER_THREAD + 2);
        return new HikariDataSource(config);
    }

    boolean isPostgres() {
        return url.startsWith("jdbc:postgresql:");
    }

    /** Collects the statistics of the planner. */
    void analyze() {
        try (HikariDataSource pool = open();
                Connection connection = pool.getConnection();
                Statement statement = connection.createStatement()) {
            statement.execute("ANALYZE");
            connection.commit();
        } catch (SQLException error) {
            throw new IllegalStateException("ANALYZE fails at " + url, error);
        }
    }

    String description() {
        return isPostgres()
                ? Versions.of("pgjdbc") + ", reWriteBatchedInserts, " + Versions.of("hikari")
                : Versions.of("h2") + " at " + url.replaceAll("file:[^;]*", "file:…") + ", " + Versions.of("hikari");
    }
}
