package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Inheritance;
import javax.jdo.annotations.InheritanceStrategy;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PrimaryKey;

/** A class whose members are stored with its subclasses, each of which has identities of its own. */
@PersistenceCapable(identityType = IdentityType.APPLICATION)
@Inheritance(strategy = InheritanceStrategy.SUBCLASS_TABLE)
public class Vehicle {
    @PrimaryKey
    private int plate;

    protected Vehicle() {}

    public Vehicle(int plate) {
        this.plate = plate;
    }

    public int getPlate() {
        return plate;
    }
}
