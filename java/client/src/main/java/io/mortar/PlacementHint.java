package io.mortar;

import java.util.Objects;

/** Where a new object is placed. */
public sealed interface PlacementHint {
    /** With all that its transaction creates without a hint: at one logical node. */
    record Anywhere() implements PlacementHint {}

    /**
     * In the page of another object, if the page has room and the classes are equal; otherwise at its logical node.
     *
     * @param oid the other object, which the same transaction may create
     */
    record Near(Oid oid) implements PlacementHint {
        /** Checks that there is an object. */
        public Near {
            Objects.requireNonNull(oid);
        }
    }

    /**
     * At a logical node of the space.
     *
     * @param node the logical node, one of {@link Client#nodes}
     */
    record At(int node) implements PlacementHint {}

    /**
     * Returns the hint that leaves the choice to the client.
     *
     * @return the hint
     */
    static PlacementHint anywhere() {
        return new Anywhere();
    }

    /**
     * Returns the hint to place a new object near another one. Objects in one page are fetched together.
     *
     * @param oid the other object, which the same transaction may create
     * @return the hint
     */
    static PlacementHint near(Oid oid) {
        return new Near(oid);
    }

    /**
     * Returns the hint to place a new object at a logical node.
     *
     * @param node the logical node, one of {@link Client#nodes}
     * @return the hint
     */
    static PlacementHint at(int node) {
        return new At(node);
    }
}
