package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.StoreFixture;
import io.mortar.jukebox.model.MusicStore;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashSet;
import java.util.Set;

/** Databases of PostgreSQL, each for one name. */
public final class PostgresFixture implements StoreFixture {
    private static final String USER = System.getProperty("jukebox.postgresql.user", "postgres");
    private static final String PASSWORD = System.getProperty("jukebox.postgresql.password");

    private static String server;

    private final Set<String> databases = new HashSet<>();

    @Override
    public MusicStore open(String name) {
        try {
            String url = server();
            if (databases.add(name)) {
                try (Connection connection = DriverManager.getConnection(url + "postgres", USER, PASSWORD);
                        Statement statement = connection.createStatement()) {
                    statement.execute("create database " + name);
                }
            }
            return new JdbcMusicStore(url + name, USER, PASSWORD);
        } catch (SQLException error) {
            throw new IllegalStateException(error);
        }
    }

    private static synchronized String server() {
        if (server == null) {
            String given = System.getProperty("jukebox.postgresql");
            server = given != null ? given : TemporaryPostgres.start().url();
        }
        return server;
    }
}
