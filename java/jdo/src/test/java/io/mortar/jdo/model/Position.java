package io.mortar.jdo.model;

/** A place on the earth, in degrees. */
public record Position(int latitude, int longitude) {}
