package io.mortar.jdo.model;

import javax.jdo.annotations.PersistenceCapable;

/** A subclass of a subclass, with a private member of the same name as one above. */
@PersistenceCapable(detachable = "true")
public class Puppy extends Dog {
    private String name;

    protected Puppy() {}

    public Puppy(String name, String nickname) {
        super(name, 0);
        this.name = nickname;
    }

    public String getNickname() {
        return name;
    }
}
