package io.mortar.jukebox.model;

import java.nio.file.Path;

/**
 * A file of music that is added to the library.
 *
 * @param sha256 the hash of its bytes, hexadecimal: the library has no file twice
 * @param file where its bytes are
 */
public record NewTrack(TrackTags tags, String mediaType, String sha256, Path file, long size) {}
