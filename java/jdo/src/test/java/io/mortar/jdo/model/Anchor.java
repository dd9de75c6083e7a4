package io.mortar.jdo.model;

import java.io.Serializable;
import javax.jdo.annotations.PersistenceCapable;

/** A class whose objects are stored in serialized form. */
@PersistenceCapable(detachable = "true")
public class Anchor implements Serializable {
    private static final long serialVersionUID = 1;

    private int weight;

    public Anchor(int weight) {
        this.weight = weight;
    }

    public int getWeight() {
        return weight;
    }

    public void setWeight(int weight) {
        this.weight = weight;
    }
}
