package io.mortar.jukebox.model;

/**
 * What the tags of a file say.
 *
 * @param year 0 if unknown, as {@code disc}, {@code number} and {@code seconds}
 */
public record TrackTags(
        String title, String artist, String album, String genre, int year, int disc, int number, int seconds) {}
