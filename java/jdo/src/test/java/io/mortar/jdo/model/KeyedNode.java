package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PrimaryKey;

/** An element of a chain with application identity. */
@PersistenceCapable(identityType = IdentityType.APPLICATION)
public class KeyedNode {
    @PrimaryKey
    private int number;

    private KeyedNode next;

    protected KeyedNode() {}

    public KeyedNode(int number, KeyedNode next) {
        this.number = number;
        this.next = next;
    }

    public int getNumber() {
        return number;
    }

    public KeyedNode getNext() {
        return next;
    }
}
