package io.mortar.bench.oo7;

import io.mortar.bench.model.AtomicPart;
import io.mortar.bench.model.CompositePart;
import io.mortar.bench.model.Connection;
import io.mortar.bench.model.Module;
import jakarta.persistence.EntityManager;
import java.util.HashSet;
import java.util.Set;
import java.util.function.ToIntFunction;

/**
 * The traversals of OO7. Each visits an atomic part by reading two of its members, and returns the number of visits.
 */
public enum Traversals {
    /** Raw traversal speed: every atomic part of every composite part of every base assembly, depth first. */
    T1("t1", part -> visitGraph(part.getRootPart(), new HashSet<>()), Design.visitsOfT1()),
    /** Sparse traversal speed: the root part of every composite part of every base assembly. */
    T6("t6", part -> visit(part.getRootPart()), Design.visitsOfT6());

    private final String id;
    private final ToIntFunction<CompositePart> ofPart;
    private final int expected;

    Traversals(String id, ToIntFunction<CompositePart> ofPart, int expected) {
        this.id = id;
        this.ofPart = ofPart;
        this.expected = expected;
    }

    /** The name in results. */
    public String id() {
        return id;
    }

    /** Runs the traversal and checks the number of visits, which it returns. */
    public int run(EntityManager manager) {
        Module module = manager.find(Module.class, Loader.MODULE);
        int[] visits = new int[1];
        module.getDesignRoot().forEachBase(base -> {
            for (CompositePart part : base.getComponents()) {
                visits[0] += ofPart.applyAsInt(part);
            }
        });
        if (visits[0] != expected) {
            throw new IllegalStateException(id + " has visited " + visits[0] + " atomic parts and not " + expected);
        }
        return visits[0];
    }

    private static int visitGraph(AtomicPart part, Set<Integer> visited) {
        visited.add(part.getId());
        int visits = visit(part);
        for (Connection connection : part.getOutgoing()) {
            AtomicPart target = connection.getTarget();
            if (!visited.contains(target.getId())) {
                visits += visitGraph(target, visited);
            }
        }
        return visits;
    }

    /** Reads two members, neither of which can be negative. */
    static int visit(AtomicPart part) {
        return part.getX() + part.getY() >= 0 ? 1 : 0;
    }
}
