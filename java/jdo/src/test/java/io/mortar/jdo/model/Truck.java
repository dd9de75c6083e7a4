package io.mortar.jdo.model;

import javax.jdo.annotations.Inheritance;
import javax.jdo.annotations.InheritanceStrategy;
import javax.jdo.annotations.PersistenceCapable;

/** A class with identities of its own. */
@PersistenceCapable
@Inheritance(strategy = InheritanceStrategy.NEW_TABLE)
public class Truck extends Vehicle {
    protected Truck() {}

    public Truck(int plate) {
        super(plate);
    }
}
