package io.mortar;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Objects;

/**
 * Bytes that are sent in pieces of 1 MiB. A {@link MortarException} is the cause of an {@link IOException}: writers of
 * streams expect that one.
 */
abstract class PieceOutputStream extends OutputStream {
    private final EncodingBuffer buffered = new EncodingBuffer(8192);
    private boolean isClosed;

    /** Sends a piece. */
    abstract void writePiece(byte[] bytes, int offset, int length);

    @Override
    public void write(int octet) throws IOException {
        checkOpen();
        buffered.u8(octet);
        if (buffered.length() == Limits.PIECE) {
            sendBuffered();
        }
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, bytes.length);
        checkOpen();
        int from = offset;
        while (from < offset + length) {
            int count = Math.min(offset + length - from, Limits.PIECE - buffered.length());
            if (count == Limits.PIECE) {
                send(bytes, from, count);
            } else {
                buffered.write(bytes, from, count);
                if (buffered.length() == Limits.PIECE) {
                    sendBuffered();
                }
            }
            from += count;
        }
    }

    /** Sends what is buffered. */
    final void sendBuffered() throws IOException {
        if (buffered.length() > 0) {
            send(buffered.array(), 0, buffered.length());
            buffered.truncate(0);
        }
    }

    private void send(byte[] bytes, int offset, int length) throws IOException {
        try {
            writePiece(bytes, offset, length);
        } catch (MortarException error) {
            throw new IOException(error.getMessage(), error);
        }
    }

    final void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException("the stream is closed");
        }
    }

    final boolean isClosed() {
        return isClosed;
    }

    final void markClosed() {
        isClosed = true;
    }
}
