package io.mortar.jdo.model;

import javax.jdo.annotations.Discriminator;
import javax.jdo.annotations.DiscriminatorStrategy;
import javax.jdo.annotations.EmbeddedOnly;
import javax.jdo.annotations.PersistenceCapable;

/** An embedded class with a subclass, which a discriminator distinguishes. */
@PersistenceCapable
@EmbeddedOnly
@Discriminator(strategy = DiscriminatorStrategy.CLASS_NAME)
public class Motor {
    private int power;
    private Boat boat;

    protected Motor() {}

    public Motor(int power) {
        this.power = power;
    }

    public int getPower() {
        return power;
    }

    public Boat getBoat() {
        return boat;
    }
}
