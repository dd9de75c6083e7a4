package io.mortar.jukebox.model;

import java.io.IOException;
import java.io.InputStream;

/** The bytes of a track. They never change. */
public interface Audio {
    String mediaType();

    long size();

    /**
     * Reads a range of the bytes, in bounded memory.
     *
     * @param from the offset of the first byte
     * @param end the offset behind the last byte
     */
    InputStream open(long from, long end) throws IOException;
}
