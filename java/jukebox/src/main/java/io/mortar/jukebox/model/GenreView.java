package io.mortar.jukebox.model;

/** A genre in a list. */
public record GenreView(String id, String name, int tracks) {}
