package io.mortar.jukebox.model;

import java.util.List;

/** An album with its tracks by disc and number. */
public record AlbumPage(AlbumView album, List<TrackView> tracks) {}
