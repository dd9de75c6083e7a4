package io.mortar;

/**
 * Bytes that were uploaded and belong to no object yet: {@link Client#upload(java.io.InputStream)}. They are freed if
 * no transaction uses them within about a minute.
 */
public final class StagedContent {
    private final NativeHandle handle;
    private final long size;
    private final int node;

    private StagedContent(NativeHandle handle, long size, int node) {
        this.handle = handle;
        this.size = size;
        this.node = node;
    }

    static StagedContent read(MessageReader in, NativeHandle client) {
        NativeHandle handle = new NativeHandle(in.u64(), client, "staged content");
        return new StagedContent(handle, in.u64(), in.u32());
    }

    NativeHandle handle() {
        return handle;
    }

    /**
     * Returns the number of bytes.
     *
     * @return the size
     */
    public long size() {
        return size;
    }

    /**
     * Returns the logical node where the bytes are: the object that gets them has to be there.
     *
     * @return the logical node
     */
    public int node() {
        return node;
    }
}
