package io.mortar.jdo.model;

import java.util.HashSet;
import java.util.Set;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** Its objects are equal if their members are: they must be read for their hash codes. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Coin {
    private String currency;

    @Persistent
    private Set<Coin> likes = new HashSet<>();

    protected Coin() {}

    public Coin(String currency) {
        this.currency = currency;
    }

    public Set<Coin> getLikes() {
        return likes;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Coin coin && coin.currency.equals(currency);
    }

    @Override
    public int hashCode() {
        return currency.hashCode();
    }
}
