package io.mortar.jdo.model;

import javax.jdo.annotations.Embedded;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** A class with a unique constraint on a member of an embedded object. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
@Index(
        members = {"number", "mooring.pier"},
        unique = "true")
public class Berth {
    private int number;

    @Persistent
    @Embedded
    private Mooring mooring;

    protected Berth() {}

    public Berth(int number, Mooring mooring) {
        this.number = number;
        this.mooring = mooring;
    }
}
