package io.mortar.jdo;

import io.mortar.Client;
import io.mortar.MortarException;
import io.mortar.Oid;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * The value of a persistent member with bytes that may not fit in memory: a blob of Mortar, which the object of the
 * member owns.
 *
 * <pre>{@code
 * @Persistent
 * private LargeObject video;
 *
 * void replaceVideo(InputStream bytes) {
 *     video = LargeObject.of(bytes);
 * }
 *
 * void play(OutputStream to) throws IOException {
 *     try (InputStream bytes = video.read()) {
 *         bytes.transferTo(to);
 *     }
 * }
 * }</pre>
 *
 * <p>The bytes are stored when the member is flushed, at the latest at the commit, in bounded memory. They become
 * visible with the commit, and a transaction that is rolled back leaves none. The bytes of a stored large object never
 * change: a member is changed by the assignment of another one, or of null, which deletes the bytes of the former one
 * in the same transaction. They are also deleted with the object of the member. A large object that is assigned to a
 * second member is copied.
 *
 * <p>A stored large object can be read outside of transactions and after its object was detached, as long as the
 * factory is open and the bytes are not deleted. One that was serialized can be assigned and attached, and not read.
 */
public final class LargeObject implements Serializable {
    private static final long serialVersionUID = 1;

    /** Where the bytes of a large object come from that is not stored yet. */
    private interface Source {
        InputStream open() throws IOException;

        long length() throws IOException;

        /** Whether the bytes can be read again, and are always the same. */
        default boolean isLasting() {
            return false;
        }
    }

    /** Null for a large object that was read from the store. */
    private final transient Source source;
    /** The blob; null as long as the bytes are not stored. */
    private Oid stored;

    private transient Client client;

    private LargeObject(Source source, Oid stored, Client client) {
        this.source = source;
        this.stored = stored;
        this.client = client;
    }

    /**
     * A large object with the bytes of a stream.
     *
     * @param bytes the stream, which is read to its end when the member is flushed, and which the caller closes after
     *     the commit
     */
    public static LargeObject of(InputStream bytes) {
        return new LargeObject(new StreamSource(Objects.requireNonNull(bytes, "the bytes are null")), null, null);
    }

    /** A large object with the bytes of a file, which is read until the commit that stores them, and not afterwards. */
    public static LargeObject of(Path file) {
        Objects.requireNonNull(file, "the file is null");
        return new LargeObject(
                new Source() {
                    @Override
                    public InputStream open() throws IOException {
                        return Files.newInputStream(file);
                    }

                    @Override
                    public long length() throws IOException {
                        return Files.size(file);
                    }
                },
                null,
                null);
    }

    /** A large object with these bytes. */
    public static LargeObject of(byte[] bytes) {
        byte[] copy = Objects.requireNonNull(bytes, "the bytes are null").clone();
        return new LargeObject(
                new Source() {
                    @Override
                    public InputStream open() {
                        return new ByteArrayInputStream(copy);
                    }

                    @Override
                    public long length() {
                        return copy.length;
                    }

                    @Override
                    public boolean isLasting() {
                        return true;
                    }
                },
                null,
                null);
    }

    /** The large object that is stored in a blob. */
    static LargeObject stored(Oid blob, Client client) {
        return new LargeObject(null, blob, client);
    }

    /** A stream that can be opened once. */
    private static final class StreamSource implements Source {
        private InputStream bytes;

        StreamSource(InputStream bytes) {
            this.bytes = bytes;
        }

        @Override
        public InputStream open() {
            if (bytes == null) {
                throw new NucleusUserException(
                        "the stream of a large object has been read; the bytes can be read after the commit that stores them");
            }
            InputStream opened = bytes;
            bytes = null;
            return opened;
        }

        @Override
        public long length() {
            throw new NucleusUserException("the length of a large object of a stream is known after it was stored");
        }
    }

    /** The blob; null as long as the bytes are not stored. */
    Oid stored() {
        return stored;
    }

    /** Notes where the bytes are stored. */
    void setStored(Oid blob, Client in) {
        stored = blob;
        client = in;
    }

    /**
     * Opens the bytes to store them, once more if another transaction has been rolled back, or has stored them
     * elsewhere.
     */
    InputStream openToStore() throws IOException {
        boolean isConsumed = source instanceof StreamSource stream && stream.bytes == null && stored != null;
        return isConsumed ? client().read(stored) : read();
    }

    private Client client() {
        if (client == null) {
            throw new NucleusUserException("a large object that was serialized has no connection to the store: "
                    + "read its member in a persistence manager or an entity manager");
        }
        return client;
    }

    private Source source() {
        if (source == null) {
            throw new NucleusUserException("a large object that was serialized before it was stored has no bytes");
        }
        return source;
    }

    /**
     * Whether the bytes are those in the store. Until they are committed, and after a rollback, the source has them.
     */
    private boolean isInStore() {
        return stored != null && (source == null || !source.isLasting() && !stored.isTemporary());
    }

    /**
     * The bytes as a stream, which fetches 1 MiB at once. Its methods throw {@link IOException} if the bytes were
     * deleted, or are not committed.
     */
    public InputStream read() throws IOException {
        return isInStore() ? client().read(stored) : source().open();
    }

    /**
     * A part of the bytes as a stream.
     *
     * @param from the offset of the first byte
     * @param end the offset behind the last byte; the bytes may end before it
     */
    public InputStream read(long from, long end) throws IOException {
        return LargeObjectChannel.part(this, from, end);
    }

    /** The part of stored bytes; null if they are not in the store. */
    InputStream storedPart(long from, long end) {
        return isInStore() ? client().read(stored, from, end) : null;
    }

    /** The bytes as a channel, which cannot be written. */
    public SeekableByteChannel channel() {
        return new LargeObjectChannel(this);
    }

    /** The number of bytes. */
    public long length() throws IOException {
        if (!isInStore()) {
            return source().length();
        }
        try {
            return client().stat(stored)
                    .orElseThrow(() ->
                            new NucleusObjectNotFoundException("the bytes of the large object are not in the store"))
                    .size();
        } catch (MortarException error) {
            throw new NucleusDataStoreException(
                    "the length of a large object is not known: " + error.getMessage(), error);
        }
    }

    /** Whether this is the same stored blob, or the same object that is not stored. */
    @Override
    public boolean equals(Object other) {
        return this == other || other instanceof LargeObject object && stored != null && stored.equals(object.stored);
    }

    @Override
    public int hashCode() {
        return LargeObject.class.hashCode();
    }

    @Override
    public String toString() {
        return stored == null ? "a large object that is not stored" : "large object " + stored;
    }
}
