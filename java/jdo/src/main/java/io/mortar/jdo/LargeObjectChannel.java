package io.mortar.jdo;

import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.NonWritableChannelException;
import java.nio.channels.SeekableByteChannel;

/**
 * The bytes of a large object as a channel. Reads one after the other are of one stream. One thread uses it at a time.
 */
final class LargeObjectChannel implements SeekableByteChannel {
    private final LargeObject object;
    private long position;
    private boolean isClosed;
    /** The stream at the position; null if it is not open. */
    private InputStream stream;

    LargeObjectChannel(LargeObject object) {
        this.object = object;
    }

    /** A part of the bytes of a large object. */
    static InputStream part(LargeObject object, long from, long end) throws IOException {
        if (from < 0 || end < from) {
            throw new IllegalArgumentException("there are no bytes from " + from + " to " + end);
        }
        InputStream stored = object.storedPart(from, end);
        if (stored != null) {
            return stored;
        }
        InputStream all = object.read();
        all.skipNBytes(Math.min(from, object.length()));
        return new Limited(all, end - from);
    }

    /** A stream that ends after some bytes. */
    private static final class Limited extends FilterInputStream {
        private long left;

        Limited(InputStream in, long left) {
            super(in);
            this.left = left;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int offset, int length) throws IOException {
            int read = left == 0 ? -1 : super.read(into, offset, (int) Math.min(left, length));
            left -= Math.max(0, read);
            return read;
        }

        @Override
        public long skip(long count) throws IOException {
            long skipped = super.skip(Math.min(count, left));
            left -= skipped;
            return skipped;
        }
    }

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new ClosedChannelException();
        }
    }

    @Override
    public int read(ByteBuffer into) throws IOException {
        checkOpen();
        if (!into.hasRemaining()) {
            return 0;
        }
        if (stream == null) {
            stream = object.read(position, Long.MAX_VALUE);
        }
        byte[] bytes = new byte[Math.min(into.remaining(), 1 << 16)];
        int read = stream.read(bytes);
        if (read > 0) {
            into.put(bytes, 0, read);
            position += read;
        }
        return read;
    }

    @Override
    public int write(ByteBuffer from) {
        throw new NonWritableChannelException();
    }

    @Override
    public SeekableByteChannel truncate(long size) {
        throw new NonWritableChannelException();
    }

    @Override
    public long position() throws IOException {
        checkOpen();
        return position;
    }

    @Override
    public SeekableByteChannel position(long newPosition) throws IOException {
        checkOpen();
        if (newPosition < 0) {
            throw new IllegalArgumentException("a position cannot be negative, and this is " + newPosition);
        }
        if (newPosition != position) {
            closeStream();
            position = newPosition;
        }
        return this;
    }

    @Override
    public long size() throws IOException {
        checkOpen();
        return object.length();
    }

    @Override
    public boolean isOpen() {
        return !isClosed;
    }

    private void closeStream() throws IOException {
        if (stream != null) {
            stream.close();
            stream = null;
        }
    }

    @Override
    public void close() throws IOException {
        isClosed = true;
        closeStream();
    }
}
