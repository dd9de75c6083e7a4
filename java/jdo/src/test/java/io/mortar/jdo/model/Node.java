package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** An element of a chain. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Node {
    private int number;

    @Persistent(dependent = "true")
    private Node next;

    protected Node() {}

    public Node(int number, Node next) {
        this.number = number;
        this.next = next;
    }

    public int getNumber() {
        return number;
    }

    public Node getNext() {
        return next;
    }
}
