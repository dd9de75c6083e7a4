package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.Element;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** A class with lists of dependent objects: of a relation with one side, and of one with two. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Rack {
    private String name;

    @Element(dependent = "true")
    private List<Tray> loose = new ArrayList<>();

    @Persistent(mappedBy = "rack")
    @Element(dependent = "true")
    private List<Tray> fixed = new ArrayList<>();

    protected Rack() {}

    public Rack(String name) {
        this.name = name;
    }

    public String getName() {
        return name;
    }

    public List<Tray> getTrays(boolean isFixed) {
        return isFixed ? fixed : loose;
    }
}
