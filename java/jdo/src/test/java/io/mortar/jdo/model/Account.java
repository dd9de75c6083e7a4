package io.mortar.jdo.model;

import java.math.BigDecimal;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PrimaryKey;
import javax.jdo.annotations.Unique;

/** A class with application identity of one member. */
@PersistenceCapable(identityType = IdentityType.APPLICATION, detachable = "true")
public class Account {
    @PrimaryKey
    private long number;

    @Unique
    private String iban;

    private BigDecimal balance;
    private Person owner;
    private Account parent;

    protected Account() {}

    public Account(long number, String iban, BigDecimal balance, Person owner) {
        this.number = number;
        this.iban = iban;
        this.balance = balance;
        this.owner = owner;
    }

    public long getNumber() {
        return number;
    }

    public String getIban() {
        return iban;
    }

    public BigDecimal getBalance() {
        return balance;
    }

    public void setBalance(BigDecimal balance) {
        this.balance = balance;
    }

    public Person getOwner() {
        return owner;
    }

    public Account getParent() {
        return parent;
    }

    public void setParent(Account parent) {
        this.parent = parent;
    }
}
