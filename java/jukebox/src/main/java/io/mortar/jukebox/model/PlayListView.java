package io.mortar.jukebox.model;

/** A play list in a list. */
public record PlayListView(String id, String name, int tracks) {}
