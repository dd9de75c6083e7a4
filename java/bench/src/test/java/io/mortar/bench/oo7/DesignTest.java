package io.mortar.bench.oo7;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** The small database has the sizes of OO7. */
class DesignTest {
    private final Design design = new Design();

    @Test
    void the_tree_has_seven_levels_of_three() {
        assertEquals(1093, design.assemblies().size());
        assertEquals(
                729,
                design.assemblies().stream().filter(Design.Assembly::isBase).count());
        assertEquals(729 * 3 * 20, Design.visitsOfT1());
        assertEquals(729 * 3, Design.visitsOfT6());
    }

    @Test
    void every_atomic_part_is_reached_from_its_root() {
        for (Design.CompositePart part : design.compositeParts()) {
            int first = part.parts().get(0).id();
            Set<Integer> reached = new HashSet<>(Set.of(first));
            Deque<Integer> left = new ArrayDeque<>(reached);
            while (!left.isEmpty()) {
                for (int target : part.parts().get(left.poll() - first).targets()) {
                    if (reached.add(target)) {
                        left.add(target);
                    }
                }
            }
            assertEquals(Design.ATOMIC_PARTS, reached.size());
        }
        assertEquals(10_000, design.atomicParts());
    }

    @Test
    void queries_find_about_their_shares() {
        assertTrue(Math.abs(design.partsSince(1990) - 100) < 50);
        assertTrue(Math.abs(design.partsSince(1900) - 1000) < 150);
        assertTrue(design.basesWithYoungerPart() > 0);
    }
}
