package io.mortar.jukebox.model;

/** A link to an artist, an album or a genre. */
public record Named(String id, String name) {}
