package io.mortar.jdo.model;

import javax.jdo.annotations.EmbeddedOnly;
import javax.jdo.annotations.PersistenceCapable;

/** An embedded class without a discriminator. */
@PersistenceCapable
@EmbeddedOnly
public class Sail {
    private int area;
}
