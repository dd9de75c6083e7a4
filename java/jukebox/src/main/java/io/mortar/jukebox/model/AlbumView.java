package io.mortar.jukebox.model;

/**
 * An album in a list.
 *
 * @param year 0 if no track says it
 */
public record AlbumView(String id, String title, Named artist, int year, int tracks) {}
