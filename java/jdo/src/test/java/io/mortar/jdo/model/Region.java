package io.mortar.jdo.model;

import java.util.List;
import java.util.Set;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** A persistent interface with others: embedded, as elements, and as the other side of a relation. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public interface Region {
    Bounds getBounds();

    void setBounds(Bounds bounds);

    Set<Place> getPlaces();

    void setPlaces(Set<Place> places);

    @Persistent(mappedBy = "parent")
    Set<Region> getParts();

    void setParts(Set<Region> parts);

    Region getParent();

    void setParent(Region parent);

    List<String> getNames();

    void setNames(List<String> names);
}
