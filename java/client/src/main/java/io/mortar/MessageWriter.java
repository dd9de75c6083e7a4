package io.mortar;

import java.util.Collection;
import java.util.function.BiConsumer;

/** Writes a request to the native library: big-endian numbers, and byte strings after their length. */
final class MessageWriter {
    private static final byte[] EMPTY = {};

    private final EncodingBuffer out;

    MessageWriter() {
        this(64);
    }

    MessageWriter(int capacity) {
        out = new EncodingBuffer(capacity);
    }

    /** The bytes of a request; null is a request without bytes. */
    static byte[] bytesOf(MessageWriter request) {
        return request == null ? EMPTY : request.out.toByteArray();
    }

    int length() {
        return out.length();
    }

    MessageWriter u8(int number) {
        out.u8(number);
        return this;
    }

    MessageWriter bool(boolean value) {
        return u8(value ? 1 : 0);
    }

    MessageWriter u32(int number) {
        out.u32(number);
        return this;
    }

    MessageWriter u64(long number) {
        out.u64(number);
        return this;
    }

    MessageWriter bytes(byte[] bytes) {
        return bytes(bytes, 0, bytes.length);
    }

    MessageWriter bytes(byte[] bytes, int offset, int length) {
        out.u32(length);
        out.write(bytes, offset, length);
        return this;
    }

    MessageWriter string(String text) {
        return bytes(ValueEncoder.utf8(text));
    }

    MessageWriter oid(Oid oid) {
        oid.write(out);
        return this;
    }

    /** A value, encoded as in records. */
    MessageWriter value(Object value) {
        int at = out.length();
        out.u32(0);
        ValueEncoder.encode(value, out);
        out.setU32(at, out.length() - at - Integer.BYTES);
        return this;
    }

    <T> MessageWriter optional(T value, BiConsumer<MessageWriter, ? super T> write) {
        bool(value != null);
        if (value != null) {
            write.accept(this, value);
        }
        return this;
    }

    /** Replaces the number of 32 bits at {@code at}. */
    void setU32(int at, int number) {
        out.setU32(at, number);
    }

    <T> MessageWriter list(Collection<? extends T> elements, BiConsumer<MessageWriter, ? super T> write) {
        int at = out.length();
        out.u32(0);
        int count = 0;
        for (T element : elements) {
            write.accept(this, element);
            count++;
        }
        out.setU32(at, count);
        return this;
    }

    /** A range of a listing: the element after which it begins, or null for the beginning, and its maximum length. */
    <T> MessageWriter range(T after, BiConsumer<MessageWriter, ? super T> write, int limit) {
        return optional(after, write).limit(limit);
    }

    /**
     * A maximum number of elements.
     *
     * @throws InvalidRequestException for a negative number
     */
    MessageWriter limit(int limit) {
        return u32((int) requireNotNegative(limit, "a limit"));
    }

    static long requireNotNegative(long number, String what) {
        if (number < 0) {
            throw new InvalidRequestException(what + " cannot be negative, and this is " + number);
        }
        return number;
    }
}
