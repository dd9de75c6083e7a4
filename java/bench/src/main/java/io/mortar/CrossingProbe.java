package io.mortar;

import java.lang.reflect.Field;

/**
 * Calls the native library as the client does, for the benchmark. It is in this package because the calls are not
 * public.
 */
public final class CrossingProbe implements AutoCloseable {
    private final Client client = Client.inMemory();
    private final Oid oid;
    private final NativeHandle handle;
    private final byte[] request;
    private final int size;
    private long sum;

    /** @param size the bytes of the object that is read */
    public CrossingProbe(int size) {
        this.size = size;
        try (Transaction transaction = client.begin()) {
            Oid created = transaction.createBlob(new byte[size]);
            if (!(transaction.commit() instanceof CommitOutcome.Committed)) {
                throw new IllegalStateException("a transaction without concurrent ones was not committed");
            }
            oid = transaction.realOid(created).orElseThrow();
        }
        handle = handleOf(client);
        request = MessageWriter.bytesOf(new MessageWriter().oid(oid));
    }

    private static NativeHandle handleOf(Client client) {
        try {
            Field field = Client.class.getDeclaredField("handle");
            field.setAccessible(true);
            return (NativeHandle) field.get(client);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A call without content: what JNI costs. */
    public void cross() {
        sum += Native.handles();
    }

    /** Reads an object that the client has cached. */
    public void readCached() {
        sum += client.get(oid).orElseThrow().data().length;
    }

    /** The bytes that a read copies from Java. */
    public int requestBytes() {
        return request.length;
    }

    /** The bytes that a read copies to Java. */
    public int replyBytes() {
        return Native.call(handle.number(), Operation.GET.code(), request).length;
    }

    /** The bytes of the object. */
    public int objectBytes() {
        return size;
    }

    @Override
    public void close() {
        client.close();
    }
}
