package io.mortar.jukebox.model;

/** An account as the pages show it. */
public record AccountView(String id, String name) {}
