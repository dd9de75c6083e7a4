package io.mortar;

/** Tells the tests of other packages how many handles of the native library are open. */
public final class NativeHandles {
    private NativeHandles() {}

    public static long open() {
        return Native.handles();
    }
}
