package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.Element;
import javax.jdo.annotations.Embedded;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** A class with embedded objects of several classes, which refer to it. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Boat {
    @Persistent
    @Embedded(ownerMember = "boat")
    private Motor motor;

    @Persistent(embeddedElement = "true")
    @Element(embedded = "true")
    private List<Motor> spares = new ArrayList<>();

    @Persistent
    @Embedded
    private Sail sail;

    @Persistent(serialized = "true")
    private Anchor anchor;

    public Motor getMotor() {
        return motor;
    }

    public void setMotor(Motor motor) {
        this.motor = motor;
    }

    public List<Motor> getSpares() {
        return spares;
    }

    public Anchor getAnchor() {
        return anchor;
    }

    public void setAnchor(Anchor anchor) {
        this.anchor = anchor;
    }

    public void setSail(Sail sail) {
        this.sail = sail;
    }
}
