package io.mortar;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Objects;

/**
 * Bytes that arrive in pieces. A {@link MortarException} is the cause of an {@link IOException}: readers of streams
 * expect that one.
 */
abstract class PieceInputStream extends InputStream {
    private static final byte[] NONE = {};

    private byte[] piece = NONE;
    private int at;
    private boolean isAtEnd;
    private boolean isClosed;

    /** The next bytes, perhaps none; null at the end. */
    abstract byte[] nextPiece();

    /**
     * Skips bytes behind the current piece, if that is possible without reading them. Returns how many it has skipped.
     */
    abstract long skipUnread(long count);

    /** Makes at least one byte available. Returns false at the end. */
    private boolean fill() throws IOException {
        checkOpen();
        while (at == piece.length && !isAtEnd) {
            try {
                byte[] next = nextPiece();
                isAtEnd = next == null;
                piece = isAtEnd ? NONE : next;
                at = 0;
            } catch (MortarException error) {
                throw new IOException(error.getMessage(), error);
            }
        }
        return at < piece.length;
    }

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException("the stream is closed");
        }
    }

    @Override
    public int read() throws IOException {
        return fill() ? piece[at++] & 0xff : -1;
    }

    @Override
    public int read(byte[] into, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, into.length);
        if (length == 0) {
            checkOpen();
            return 0;
        }
        if (!fill()) {
            return -1;
        }
        int count = Math.min(length, piece.length - at);
        System.arraycopy(piece, at, into, offset, count);
        at += count;
        return count;
    }

    @Override
    public byte[] readNBytes(int length) throws IOException {
        if (length < 0) {
            throw new IllegalArgumentException("a number of bytes cannot be negative, and this is " + length);
        }
        EncodingBuffer bytes = new EncodingBuffer(Math.min(length, 1 << 16));
        while (bytes.length() < length && fill()) {
            int count = Math.min(length - bytes.length(), piece.length - at);
            bytes.write(piece, at, count);
            at += count;
        }
        return bytes.toByteArray();
    }

    @Override
    public byte[] readAllBytes() throws IOException {
        return readNBytes(Integer.MAX_VALUE);
    }

    @Override
    public long transferTo(OutputStream out) throws IOException {
        Objects.requireNonNull(out);
        long transferred = 0;
        while (fill()) {
            out.write(piece, at, piece.length - at);
            transferred += piece.length - at;
            at = piece.length;
        }
        return transferred;
    }

    @Override
    public long skip(long count) throws IOException {
        checkOpen();
        long skipped = 0;
        while (skipped < count) {
            if (at == piece.length) {
                skipped += skipBehindPiece(count - skipped);
                if (skipped == count || !fill()) {
                    break;
                }
            }
            int step = (int) Math.min(count - skipped, piece.length - at);
            at += step;
            skipped += step;
        }
        return skipped;
    }

    private long skipBehindPiece(long count) throws IOException {
        try {
            return isAtEnd ? 0 : skipUnread(count);
        } catch (MortarException error) {
            throw new IOException(error.getMessage(), error);
        }
    }

    @Override
    public int available() throws IOException {
        checkOpen();
        return piece.length - at;
    }

    @Override
    public void close() {
        isClosed = true;
        piece = NONE;
        at = 0;
    }
}
