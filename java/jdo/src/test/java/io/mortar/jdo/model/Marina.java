package io.mortar.jdo.model;

import java.util.HashSet;
import java.util.Set;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** The other side of a relation whose objects refer to it in an embedded object. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Marina {
    @Persistent(mappedBy = "mooring.marina")
    private Set<Berth> berths = new HashSet<>();

    public Set<Berth> getBerths() {
        return berths;
    }
}
