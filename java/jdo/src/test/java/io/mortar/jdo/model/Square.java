package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** Another class that implements it. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Square implements Shape {
    private double side;

    protected Square() {}

    public Square(double side) {
        this.side = side;
    }

    @Override
    public double area() {
        return side * side;
    }
}
