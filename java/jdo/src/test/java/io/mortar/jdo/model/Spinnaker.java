package io.mortar.jdo.model;

import javax.jdo.annotations.EmbeddedOnly;
import javax.jdo.annotations.PersistenceCapable;

/** A subclass of an embedded class, whose objects cannot be told from others. */
@PersistenceCapable
@EmbeddedOnly
public class Spinnaker extends Sail {
    private String color;
}
