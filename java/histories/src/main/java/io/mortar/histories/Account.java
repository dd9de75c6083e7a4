package io.mortar.histories;

import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** An account. Transfers keep the sum of all balances. */
@PersistenceCapable(detachable = "true")
public class Account {
    @Unique
    private String name;

    private long balance;

    protected Account() {}

    Account(String name, long balance) {
        this.name = name;
        this.balance = balance;
    }

    long balance() {
        return balance;
    }

    void setBalance(long balance) {
        this.balance = balance;
    }
}
