package io.mortar.jukebox.model;

/**
 * A track in a list.
 *
 * @param number its number on the album, or 0
 * @param owner the identifier of the account that uploaded it
 */
public record TrackView(
        String id, String title, Named artist, Named album, Named genre, int number, int seconds, String owner) {}
