package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;

/** A class with members whose names are not ASCII. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Reading {
    @Index
    private int höhe;

    @Index
    private int hühe;
}
