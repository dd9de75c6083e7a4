package io.mortar.jdo.model;

import javax.jdo.annotations.PersistenceCapable;

/** A persistent interface whose objects are always embedded in others. */
@PersistenceCapable(embeddedOnly = "true")
public interface Bounds {
    int getWest();

    void setWest(int west);

    int getEast();

    void setEast(int east);
}
