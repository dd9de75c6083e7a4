package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** A class that only the metadata of an array refers to. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Tile implements Shape {
    private double side;

    protected Tile() {}

    public Tile(double side) {
        this.side = side;
    }

    @Override
    public double area() {
        return side * side;
    }
}
