package io.mortar.jdo.model;

import java.util.HashSet;
import java.util.Set;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** A class with a property whose setter copies the collection. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Basket {
    private Set<String> contents = new HashSet<>();

    @Persistent
    public Set<String> getContents() {
        return contents;
    }

    public void setContents(Set<String> contents) {
        this.contents = contents == null ? null : new HashSet<>(contents);
    }
}
