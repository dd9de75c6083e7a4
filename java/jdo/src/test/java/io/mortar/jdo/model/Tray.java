package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** An element of the lists of a rack. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Tray {
    private String name;
    private Rack rack;

    protected Tray() {}

    public Tray(String name) {
        this.name = name;
    }

    public String getName() {
        return name;
    }

    public Rack getRack() {
        return rack;
    }

    public void setRack(Rack rack) {
        this.rack = rack;
    }
}
