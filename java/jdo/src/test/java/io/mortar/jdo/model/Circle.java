package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** A class that implements an interface. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Circle implements Shape {
    private double radius;

    protected Circle() {}

    public Circle(double radius) {
        this.radius = radius;
    }

    @Override
    public double area() {
        return Math.PI * radius * radius;
    }
}
