package io.mortar;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * An object as it is stored: its kind, its bytes, and its attributes. It is immutable. The class of a record is in its
 * identifier: {@link Oid#classNumber}.
 *
 * <p>The bytes of a blob are in the object, or in a content of its own, which is read in ranges:
 * {@link Client#read(Oid)}, {@link Transaction#readAt}. The members of a collection and the names of a directory are
 * beside the object, too.
 */
public final class StoredObject {
    /** The order of the keys of attributes: that of their bytes. */
    private static final Comparator<ByteBuffer> KEYS = (a, b) -> {
        int index = a.mismatch(b);
        return index < 0 || index >= Math.min(a.remaining(), b.remaining())
                ? Integer.compare(a.remaining(), b.remaining())
                : Integer.compare(a.get(a.position() + index) & 0xff, b.get(b.position() + index) & 0xff);
    };

    private static final SortedMap<ByteBuffer, ByteBuffer> NO_ATTRIBUTES =
            Collections.unmodifiableSortedMap(new TreeMap<>(KEYS));
    private static final byte[] NO_DATA = {};
    private static final int INLINE = 0;
    private static final int CONTENT = 1;

    private final ObjectKind kind;
    /** Its buffers are not given away: whoever has one can change its position. */
    private final SortedMap<ByteBuffer, ByteBuffer> attributes;

    /** The bytes; null if they are in a content. */
    private final byte[] data;

    private final long size;

    private StoredObject(ObjectKind kind, SortedMap<ByteBuffer, ByteBuffer> attributes, byte[] data, long size) {
        this.kind = kind;
        this.attributes = attributes;
        this.data = data;
        this.size = size;
    }

    private static StoredObject inline(ObjectKind kind, byte[] data) {
        return new StoredObject(kind, NO_ATTRIBUTES, data, data.length);
    }

    /**
     * Returns an object of a class.
     *
     * @param record its fields
     * @return the object
     */
    public static StoredObject record(Record record) {
        return inline(ObjectKind.RECORD, record.encoded());
    }

    /**
     * Returns a blob. A blob of more than 4 MiB is uploaded instead: {@link Client#upload(java.io.InputStream)}.
     *
     * @param bytes its bytes, which are copied
     * @return the object
     */
    public static StoredObject blob(byte[] bytes) {
        return inline(ObjectKind.BLOB, bytes.clone());
    }

    /**
     * Returns an empty set.
     *
     * @return the object
     */
    public static StoredObject collection() {
        return inline(ObjectKind.COLLECTION, NO_DATA);
    }

    /**
     * Returns the kind of the object.
     *
     * @return the kind
     */
    public ObjectKind kind() {
        return kind;
    }

    /**
     * Returns the fields.
     *
     * @return the record
     * @throws InvalidRequestException if the object is not a record
     * @throws CorruptException if the record is damaged
     * @throws UnsupportedException if a newer version of Mortar has written the record
     */
    public Record record() {
        if (kind != ObjectKind.RECORD) {
            throw new InvalidRequestException("the object is a " + nameOf(kind) + ", not a record");
        }
        return Record.wrap(data);
    }

    /**
     * Returns the bytes of a blob or the encoding of a record. A collection has none.
     *
     * @return the bytes, a copy
     * @throws InvalidRequestException if the bytes are in a content of their own
     */
    public byte[] data() {
        requireInline();
        return data.clone();
    }

    /**
     * Returns the bytes of a blob or the encoding of a record without a copy.
     *
     * @return the bytes, read-only
     * @throws InvalidRequestException if the bytes are in a content of their own
     */
    public ByteBuffer dataBuffer() {
        requireInline();
        return ByteBuffer.wrap(data).asReadOnlyBuffer();
    }

    private void requireInline() {
        if (hasContent()) {
            throw new InvalidRequestException(
                    "the " + size + " bytes of the blob are in a content of their own: read them with"
                            + " Client.read or Transaction.readAt");
        }
    }

    /**
     * Returns whether the bytes of the blob are in a content of their own, and not in this object.
     *
     * @return whether the blob has a content
     */
    public boolean hasContent() {
        return data == null;
    }

    /**
     * Returns the number of bytes of the blob or the encoded record, wherever they are.
     *
     * @return the size in bytes; 0 for a collection
     */
    public long size() {
        return size;
    }

    /**
     * Returns the attributes.
     *
     * @return values by key, in the order of the bytes of the keys; unmodifiable, all buffers read-only. The map and
     *     its buffers are of this call alone: to read from one does not change the object
     */
    public SortedMap<ByteBuffer, ByteBuffer> attributes() {
        SortedMap<ByteBuffer, ByteBuffer> copies = new TreeMap<>(KEYS);
        attributes.forEach((key, value) -> copies.put(key.duplicate(), value.duplicate()));
        return Collections.unmodifiableSortedMap(copies);
    }

    /**
     * Returns the value of an attribute.
     *
     * @param key the key, as UTF-8
     * @return the bytes of the value, a copy; empty if there is no such attribute
     */
    public Optional<byte[]> attribute(String key) {
        ByteBuffer value = attributes.get(readOnly(ValueEncoder.utf8(key)));
        return Optional.ofNullable(value).map(StoredObject::copy);
    }

    /**
     * Returns the object with one more attribute, or with another value of it.
     *
     * @param key the key, 1 to 255 bytes of UTF-8
     * @param value the value, at most 1 MiB, which is copied
     * @return another object
     */
    public StoredObject withAttribute(String key, byte[] value) {
        SortedMap<ByteBuffer, ByteBuffer> changed = new TreeMap<>(attributes);
        changed.put(readOnly(ValueEncoder.utf8(key)), readOnly(value.clone()));
        return new StoredObject(kind, Collections.unmodifiableSortedMap(changed), data, size);
    }

    /**
     * Returns the object without an attribute.
     *
     * @param key the key, as UTF-8
     * @return another object
     */
    public StoredObject withoutAttribute(String key) {
        SortedMap<ByteBuffer, ByteBuffer> changed = new TreeMap<>(attributes);
        changed.remove(readOnly(ValueEncoder.utf8(key)));
        return new StoredObject(kind, Collections.unmodifiableSortedMap(changed), data, size);
    }

    /**
     * Returns the object with other fields and the same attributes.
     *
     * @param record the fields
     * @return another object
     * @throws InvalidRequestException if the object is not a record
     */
    public StoredObject withRecord(Record record) {
        return withData(ObjectKind.RECORD, record.encoded());
    }

    /**
     * Returns the blob with other bytes and the same attributes.
     *
     * @param bytes the bytes, which are copied
     * @return another object
     * @throws InvalidRequestException if the object is not a blob
     */
    public StoredObject withData(byte[] bytes) {
        return withData(ObjectKind.BLOB, bytes.clone());
    }

    private StoredObject withData(ObjectKind required, byte[] bytes) {
        if (kind != required) {
            throw new InvalidRequestException("the object is a " + nameOf(kind) + ", not a " + nameOf(required));
        }
        return new StoredObject(kind, attributes, bytes, bytes.length);
    }

    private static String nameOf(ObjectKind kind) {
        return kind.name().toLowerCase(Locale.ROOT);
    }

    // ------------------------------------------------------------------------------------------ messages

    /**
     * Writes the object into a request.
     *
     * @throws InvalidRequestException for a blob with a content, which only an upload can have
     */
    void write(MessageWriter out) {
        if (hasContent()) {
            throw new InvalidRequestException(
                    "the bytes of the blob are in a content of their own, which an object that is written"
                            + " cannot name: upload them, or change its attributes with Transaction.setAttribute");
        }
        out.u8(kind.code());
        out.list(
                attributes.entrySet(),
                (message, attribute) -> message.bytes(copy(attribute.getKey())).bytes(copy(attribute.getValue())));
        out.u8(INLINE).bytes(data);
    }

    static StoredObject read(MessageReader in) {
        ObjectKind kind = ObjectKind.ofCode(in.u8());
        SortedMap<ByteBuffer, ByteBuffer> attributes = readAttributes(in);
        int where = in.u8();
        return switch (where) {
            case INLINE -> {
                byte[] data = in.bytes();
                yield new StoredObject(kind, attributes, data, data.length);
            }
            case CONTENT -> new StoredObject(kind, attributes, null, in.u64());
            default -> throw MessageReader.malformed("the place of an object's bytes is " + where);
        };
    }

    private static SortedMap<ByteBuffer, ByteBuffer> readAttributes(MessageReader in) {
        SortedMap<ByteBuffer, ByteBuffer> attributes = new TreeMap<>(KEYS);
        in.list(item -> attributes.put(readOnly(item.bytes()), readOnly(item.bytes())));
        return attributes.isEmpty() ? NO_ATTRIBUTES : Collections.unmodifiableSortedMap(attributes);
    }

    private static ByteBuffer readOnly(byte[] bytes) {
        return ByteBuffer.wrap(bytes).asReadOnlyBuffer();
    }

    private static byte[] copy(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof StoredObject object
                && kind == object.kind
                && size == object.size
                && Arrays.equals(data, object.data)
                && attributes.equals(object.attributes);
    }

    @Override
    public int hashCode() {
        return Objects.hash(kind, size, Arrays.hashCode(data), attributes);
    }

    /** Returns the kind and the size, for people. */
    @Override
    public String toString() {
        return nameOf(kind) + " of " + size + " bytes"
                + (attributes.isEmpty() ? "" : " with " + attributes.size() + " attributes");
    }
}
