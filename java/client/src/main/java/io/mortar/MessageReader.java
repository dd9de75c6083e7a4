package io.mortar;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;

/**
 * Reads a reply of the native library. Every length is checked before it is used; a reply that is not as the operation
 * defines it is an {@link InternalException}.
 */
final class MessageReader {
    private static final int SUCCESS = 0;
    private static final int ERROR = 1;

    private final byte[] bytes;
    private int at;

    MessageReader(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Reads a whole reply.
     *
     * @throws MortarException the error, if the reply is one
     */
    static <T> T read(byte[] reply, Function<MessageReader, T> read) {
        MessageReader reader = new MessageReader(reply);
        int status = reader.u8();
        if (status == ERROR) {
            ErrorKind kind = ErrorKind.ofCode(reader.u8());
            MortarException error = MortarException.of(kind, reader.string(), reader.optional(MessageReader::oid));
            reader.end();
            throw error;
        }
        if (status != SUCCESS) {
            throw malformed("its status is " + status);
        }
        T result = read.apply(reader);
        reader.end();
        return result;
    }

    /** Reads a reply without content. */
    static Void nothing(MessageReader reply) {
        return null;
    }

    void end() {
        if (at != bytes.length) {
            throw malformed((bytes.length - at) + " bytes are left");
        }
    }

    /** Skips what is left. */
    void skip() {
        at = bytes.length;
    }

    int u8() {
        return bytes[take(1)] & 0xff;
    }

    boolean bool() {
        int value = u8();
        if (value > 1) {
            throw malformed("a bool is " + value);
        }
        return value == 1;
    }

    int u16() {
        return BigEndian.readShort(bytes, take(Short.BYTES));
    }

    /** A number of 32 bits that fits a positive {@code int}: a length, a count, or the number of something. */
    int u32() {
        int number = BigEndian.readInt(bytes, take(Integer.BYTES));
        if (number < 0) {
            throw malformed("a number is " + Integer.toUnsignedString(number));
        }
        return number;
    }

    long u64() {
        return BigEndian.readLong(bytes, take(Long.BYTES));
    }

    byte[] bytes() {
        int length = u32();
        int from = take(length);
        return Arrays.copyOfRange(bytes, from, from + length);
    }

    String string() {
        int length = u32();
        int from = take(length);
        String text = ValueDecoder.utf8(bytes, from, from + length);
        if (text == null) {
            throw malformed("a text is not UTF-8");
        }
        return text;
    }

    Oid oid() {
        return Oid.read(bytes, take(Oid.BYTES));
    }

    /** A value, encoded as in records. */
    Object value() {
        int length = u32();
        int from = take(length);
        return ValueDecoder.decode(bytes, from, from + length);
    }

    /** What {@code read} returns, or null if it is absent. */
    <T> T optional(Function<MessageReader, T> read) {
        return bool() ? read.apply(this) : null;
    }

    <T> Optional<T> maybe(Function<MessageReader, T> read) {
        return Optional.ofNullable(optional(read));
    }

    /** An unmodifiable list; its elements may be null. */
    <T> List<T> list(Function<MessageReader, T> read) {
        int count = u32();
        // Each element has at least one byte.
        if (count > bytes.length - at) {
            throw malformed("a list claims " + count + " elements");
        }
        List<T> elements = new ArrayList<>(Math.min(count, 4096));
        for (int index = 0; index < count; index++) {
            elements.add(read.apply(this));
        }
        return Collections.unmodifiableList(elements);
    }

    /** The index of the next {@code count} bytes, which are taken. */
    private int take(int count) {
        if (count > bytes.length - at) {
            throw malformed("it ends too early");
        }
        int from = at;
        at += count;
        return from;
    }

    static InternalException malformed(String why) {
        return new InternalException("the native library of Mortar has returned a malformed reply: " + why
                + "; is it of another version than the classes of io.mortar?");
    }
}
