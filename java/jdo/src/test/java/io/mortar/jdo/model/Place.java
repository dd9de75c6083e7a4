package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** A persistent interface, whose implementation is generated. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public interface Place {
    String getName();

    void setName(String name);
}
