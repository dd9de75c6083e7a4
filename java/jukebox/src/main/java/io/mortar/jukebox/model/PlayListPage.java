package io.mortar.jukebox.model;

import java.util.List;

/** A play list with its tracks in order. A track can be in it several times. */
public record PlayListPage(PlayListView list, List<TrackView> tracks) {}
