package io.mortar.jukebox.model;

/** A genre with a part of its tracks by title. */
public record GenrePage(GenreView genre, Listing<TrackView> tracks) {}
