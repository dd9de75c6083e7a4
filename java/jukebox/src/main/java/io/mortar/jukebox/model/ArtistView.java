package io.mortar.jukebox.model;

/** An artist in a list. */
public record ArtistView(String id, String name, int tracks) {}
