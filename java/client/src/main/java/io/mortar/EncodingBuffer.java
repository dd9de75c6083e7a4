package io.mortar;

import java.util.Arrays;

/** Bytes that grow at their end: big-endian numbers and byte strings. */
final class EncodingBuffer {
    /** The largest array that every virtual machine allocates. */
    private static final int MAX_BYTES = Integer.MAX_VALUE - 8;

    private byte[] bytes;
    private int length;

    EncodingBuffer(int capacity) {
        bytes = new byte[capacity];
    }

    int length() {
        return length;
    }

    /** The bytes, of which the first {@link #length()} are used. The next write may replace the array. */
    byte[] array() {
        return bytes;
    }

    byte[] toByteArray() {
        return length == bytes.length ? bytes : Arrays.copyOf(bytes, length);
    }

    void u8(int number) {
        reserve(1);
        bytes[length++] = (byte) number;
    }

    void u16(int number) {
        reserve(Short.BYTES);
        BigEndian.writeShort(bytes, length, number);
        length += Short.BYTES;
    }

    void u32(int number) {
        reserve(Integer.BYTES);
        BigEndian.writeInt(bytes, length, number);
        length += Integer.BYTES;
    }

    void u64(long number) {
        reserve(Long.BYTES);
        BigEndian.writeLong(bytes, length, number);
        length += Long.BYTES;
    }

    void write(byte[] from) {
        write(from, 0, from.length);
    }

    void write(byte[] from, int offset, int count) {
        reserve(count);
        System.arraycopy(from, offset, bytes, length, count);
        length += count;
    }

    /** Replaces the four bytes at {@code at}. */
    void setU32(int at, int number) {
        BigEndian.writeInt(bytes, at, number);
    }

    void truncate(int newLength) {
        length = newLength;
    }

    /** Moves the bytes from {@code at} on by {@code count} bytes. The bytes of the gap are undefined. */
    void insertGap(int at, int count) {
        reserve(count);
        System.arraycopy(bytes, at, bytes, at + count, length - at);
        length += count;
    }

    private void reserve(int count) {
        if (count > bytes.length - length) {
            grow(count);
        }
    }

    private void grow(int count) {
        long needed = (long) length + count;
        if (needed > MAX_BYTES) {
            throw new TooLargeException(
                    "a message would have " + needed + " bytes; it may have " + MAX_BYTES + ": divide it");
        }
        bytes = Arrays.copyOf(bytes, (int) Math.min(MAX_BYTES, Math.max(needed, 2L * bytes.length)));
    }
}
