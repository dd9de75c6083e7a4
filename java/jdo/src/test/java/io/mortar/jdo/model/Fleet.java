package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.Element;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;
import javax.jdo.annotations.PrimaryKey;

/** The owner of elements whose identities contain its own. */
@PersistenceCapable(identityType = IdentityType.APPLICATION, detachable = "true")
public class Fleet {
    @PrimaryKey
    private String name;

    @Persistent(mappedBy = "fleet", defaultFetchGroup = "true")
    @Element(dependent = "true")
    private List<Ship> ships = new ArrayList<>();

    protected Fleet() {}

    public Fleet(String name) {
        this.name = name;
    }

    public String getName() {
        return name;
    }

    public List<Ship> getShips() {
        return ships;
    }
}
