package io.mortar.jukebox.model;

import java.util.List;

/** An artist with the albums. */
public record ArtistPage(ArtistView artist, List<AlbumView> albums) {}
