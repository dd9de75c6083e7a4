package io.mortar;

import java.io.IOException;

/** Writes bytes of a blob in a transaction, from an offset on. */
final class BlobOutputStream extends PieceOutputStream {
    private final BlobTransaction transaction;
    private final Oid oid;
    private long offset;

    BlobOutputStream(BlobTransaction transaction, Oid oid, long offset) {
        this.transaction = transaction;
        this.oid = oid;
        this.offset = offset;
    }

    @Override
    void writePiece(byte[] bytes, int from, int length) {
        transaction.writeAt(oid, offset, bytes, from, length);
        offset += length;
    }

    @Override
    public void flush() throws IOException {
        checkOpen();
        sendBuffered();
    }

    /** Writes what is buffered. The transaction goes on. */
    @Override
    public void close() throws IOException {
        if (!isClosed()) {
            try {
                sendBuffered();
            } finally {
                markClosed();
            }
        }
    }
}
