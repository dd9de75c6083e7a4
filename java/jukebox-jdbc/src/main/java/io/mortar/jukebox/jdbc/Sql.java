package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.Refusal;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;

/** Runs statements with parameters. */
final class Sql {
    private Sql() {}

    /** Makes an object of a row. */
    @FunctionalInterface
    interface Mapper<T> {
        T map(ResultSet row) throws SQLException;
    }

    static <T> List<T> list(Connection connection, Mapper<T> mapper, String sql, Object... parameters)
            throws SQLException {
        try (PreparedStatement statement = prepare(connection, sql, parameters);
                ResultSet rows = statement.executeQuery()) {
            List<T> found = new ArrayList<>();
            while (rows.next()) {
                found.add(mapper.map(rows));
            }
            return found;
        }
    }

    /** The first row, or null. */
    static <T> T first(Connection connection, Mapper<T> mapper, String sql, Object... parameters) throws SQLException {
        List<T> found = list(connection, mapper, sql, parameters);
        return found.isEmpty() ? null : found.get(0);
    }

    /** The first row, which has to be there. */
    static <T> T require(Connection connection, String what, Mapper<T> mapper, String sql, Object... parameters)
            throws SQLException {
        T found = first(connection, mapper, sql, parameters);
        if (found == null) {
            throw Refusal.notFound(what);
        }
        return found;
    }

    static int update(Connection connection, String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = prepare(connection, sql, parameters)) {
            return statement.executeUpdate();
        }
    }

    private static PreparedStatement prepare(Connection connection, String sql, Object... parameters)
            throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        for (int i = 0; i < parameters.length; i++) {
            Object value = parameters[i];
            statement.setObject(i + 1, value instanceof Instant instant ? instant.atOffset(ZoneOffset.UTC) : value);
        }
        return statement;
    }
}
