package io.mortar.jdo.model;

import java.io.Serializable;
import java.util.Objects;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PrimaryKey;
import org.datanucleus.identity.StringId;

/** An element whose identity contains that of its owner. */
@PersistenceCapable(identityType = IdentityType.APPLICATION, objectIdClass = Ship.Key.class, detachable = "true")
public class Ship {
    @PrimaryKey
    private Fleet fleet;

    @PrimaryKey
    private int number;

    private String flag;

    protected Ship() {}

    public Ship(Fleet fleet, int number, String flag) {
        this.fleet = fleet;
        this.number = number;
        this.flag = flag;
    }

    public Fleet getFleet() {
        return fleet;
    }

    public int getNumber() {
        return number;
    }

    public String getFlag() {
        return flag;
    }

    /** The identity. */
    public static class Key implements Serializable {
        private static final long serialVersionUID = 1;

        /** That of the owner. */
        public StringId fleet;

        /** The number in the fleet. */
        public int number;

        public Key() {}

        /** The identity that {@link #toString} describes. */
        public Key(String text) {
            int end = text.lastIndexOf('#');
            fleet = new StringId(Fleet.class, text.substring(0, end));
            number = Integer.parseInt(text.substring(end + 1));
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key key && number == key.number && Objects.equals(fleet, key.fleet);
        }

        @Override
        public int hashCode() {
            return Objects.hash(fleet, number);
        }

        @Override
        public String toString() {
            return fleet.getKey() + "#" + number;
        }
    }
}
