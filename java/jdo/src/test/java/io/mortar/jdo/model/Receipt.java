package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import org.datanucleus.api.jdo.annotations.SoftDelete;

/** A class whose objects are kept when they are deleted. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
@SoftDelete
public class Receipt {
    private int amount;

    protected Receipt() {}

    public Receipt(int amount) {
        this.amount = amount;
    }

    public int getAmount() {
        return amount;
    }
}
