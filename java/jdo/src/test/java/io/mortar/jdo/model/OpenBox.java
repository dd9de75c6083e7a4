package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** A class with a public member, which classes without code of the enhancer can access. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class OpenBox {
    public String label;

    protected OpenBox() {}

    public OpenBox(String label) {
        this.label = label;
    }

    public String getLabel() {
        return label;
    }
}
