package io.mortar;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Numbers in byte arrays, most significant byte first. */
final class BigEndian {
    private static final VarHandle SHORTS = MethodHandles.byteArrayViewVarHandle(short[].class, ByteOrder.BIG_ENDIAN);
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

    private BigEndian() {}

    static int readShort(byte[] bytes, int at) {
        return (short) SHORTS.get(bytes, at) & 0xffff;
    }

    static int readInt(byte[] bytes, int at) {
        return (int) INTS.get(bytes, at);
    }

    static long readLong(byte[] bytes, int at) {
        return (long) LONGS.get(bytes, at);
    }

    static void writeShort(byte[] bytes, int at, int number) {
        SHORTS.set(bytes, at, (short) number);
    }

    static void writeInt(byte[] bytes, int at, int number) {
        INTS.set(bytes, at, number);
    }

    static void writeLong(byte[] bytes, int at, long number) {
        LONGS.set(bytes, at, number);
    }
}
