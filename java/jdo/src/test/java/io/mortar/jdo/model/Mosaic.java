package io.mortar.jdo.model;

import javax.jdo.annotations.Element;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** Has an array of an interface, whose elements are of one class. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Mosaic {
    @Persistent
    @Element(types = Tile.class)
    private Shape[] tiles;

    protected Mosaic() {}

    public Mosaic(Shape... tiles) {
        this.tiles = tiles;
    }

    public Shape[] getTiles() {
        return tiles;
    }
}
