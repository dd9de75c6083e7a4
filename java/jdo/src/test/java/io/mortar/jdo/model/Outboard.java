package io.mortar.jdo.model;

import javax.jdo.annotations.EmbeddedOnly;
import javax.jdo.annotations.PersistenceCapable;

/** A subclass of an embedded class. */
@PersistenceCapable
@EmbeddedOnly
public class Outboard extends Motor {
    private String make;
    private int weight;

    protected Outboard() {}

    public Outboard(int power, String make, int weight) {
        super(power);
        this.make = make;
        this.weight = weight;
    }

    public String getMake() {
        return make;
    }

    public int getWeight() {
        return weight;
    }
}
