package io.mortar.jdo.model;

import javax.jdo.annotations.PersistenceCapable;

/** A subclass. */
@PersistenceCapable(detachable = "true")
public class Dog extends Animal {
    private int tricks;

    protected Dog() {}

    public Dog(String name, int tricks) {
        super(name);
        this.tricks = tricks;
    }

    public int getTricks() {
        return tricks;
    }
}
