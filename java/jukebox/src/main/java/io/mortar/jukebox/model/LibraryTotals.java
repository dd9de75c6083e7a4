package io.mortar.jukebox.model;

/**
 * How much music there is.
 *
 * @param id identifies the library for {@link MusicStore#watch}: it changes whenever a track comes or goes
 */
public record LibraryTotals(String id, long tracks, long seconds) {}
