package io.mortar.jukebox.jdbc;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.sql.Connection;
import java.sql.SQLException;

/** The audio of tracks as large objects, which are written and read in pieces. */
final class LargeObjects {
    private static final int PIECE_BYTES = 256 * 1024;

    private LargeObjects() {}

    /** Stores all bytes of a stream in the transaction of a connection. */
    static long create(Connection connection, InputStream bytes) throws SQLException, IOException {
        long id = Sql.first(connection, row -> row.getLong(1), "select lo_create(0)");
        long offset = 0;
        for (byte[] piece = bytes.readNBytes(PIECE_BYTES); piece.length > 0; piece = bytes.readNBytes(PIECE_BYTES)) {
            Sql.first(connection, row -> null, "select lo_put(?::oid, ?, ?)", id, offset, piece);
            offset += piece.length;
        }
        return id;
    }

    static void delete(Connection connection, long id) throws SQLException {
        Sql.first(connection, row -> null, "select lo_unlink(?::oid)", id);
    }

    /** Reads a range; it needs a connection for each piece, not while a slow reader waits. */
    static InputStream open(Database database, long id, long from, long end) {
        return new InputStream() {
            private long next = from;
            private byte[] piece = {};
            private int taken;

            @Override
            public int read() throws IOException {
                byte[] one = new byte[1];
                return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
            }

            @Override
            public int read(byte[] into, int offset, int length) throws IOException {
                if (taken == piece.length && !fetch()) {
                    return -1;
                }
                int count = Math.min(length, piece.length - taken);
                System.arraycopy(piece, taken, into, offset, count);
                taken += count;
                return count;
            }

            private boolean fetch() throws IOException {
                if (next >= end) {
                    return false;
                }
                int length = (int) Math.min(PIECE_BYTES, end - next);
                piece = database.transactIo(connection ->
                        Sql.first(connection, row -> row.getBytes(1), "select lo_get(?::oid, ?, ?)", id, next, length));
                if (piece.length == 0) {
                    throw new EOFException("the audio ends too early");
                }
                next += piece.length;
                taken = 0;
                return true;
            }
        };
    }
}
