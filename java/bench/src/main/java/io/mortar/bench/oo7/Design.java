package io.mortar.bench.oo7;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.function.IntPredicate;

/**
 * The small database of OO7 as numbers, the same for every side: one module with seven levels of assemblies, three
 * below each; 500 composite parts of 20 atomic parts, each with three outgoing connections. What the operations must
 * find follows from it.
 */
final class Design {
    static final int LEVELS = 7;
    static final int FANOUT = 3;
    static final int COMPOSITE_PARTS = 500;
    static final int PARTS_OF_BASE_ASSEMBLY = 3;
    static final int ATOMIC_PARTS = 20;
    static final int CONNECTIONS = 3;
    static final int DOCUMENT_CHARACTERS = 2000;
    static final int MANUAL_CHARACTERS = 100_000;
    static final int LEAST_DATE = 1000;
    static final int DATES = 1000;

    private static final long SEED = 1993;
    private static final int POSITIONS = 100_000;
    private static final int TYPES = 10;
    /** One composite part in this many is younger than every assembly; the others are older. */
    private static final int YOUNG = 10;

    private final Random random = new Random(SEED);
    private final List<AtomicPart> atomicParts = new ArrayList<>();
    private final List<CompositePart> compositeParts = new ArrayList<>();
    private final List<Assembly> assemblies = new ArrayList<>();

    /**
     * An atomic part. The identifiers begin at 1.
     *
     * @param targets the identifiers of the parts that its connections lead to
     */
    record AtomicPart(int id, String type, int buildDate, int x, int y, int documentId, int[] targets) {}

    /** A composite part; its document has the same identifier. The first atomic part is the root of its graph. */
    record CompositePart(int id, String type, int buildDate, List<AtomicPart> parts) {}

    /**
     * An assembly.
     *
     * @param parent the identifier of the assembly above; 0 for the root
     * @param components the identifiers of the composite parts of a base assembly; null for a complex one
     */
    record Assembly(int id, String type, int buildDate, int parent, int[] components) {
        boolean isBase() {
            return components != null;
        }
    }

    Design() {
        for (int id = 1; id <= COMPOSITE_PARTS; id++) {
            addCompositePart(id);
        }
        addAssembly(0, 1);
    }

    private void addCompositePart(int id) {
        int first = atomicParts.size() + 1;
        List<AtomicPart> parts = new ArrayList<>();
        for (int index = 0; index < ATOMIC_PARTS; index++) {
            int[] targets = new int[CONNECTIONS];
            // The first connections form a ring, so that all parts are reached from the root.
            targets[0] = first + (index + 1) % ATOMIC_PARTS;
            for (int other = 1; other < CONNECTIONS; other++) {
                targets[other] = first + random.nextInt(ATOMIC_PARTS);
            }
            parts.add(new AtomicPart(
                    first + index,
                    type(),
                    LEAST_DATE + random.nextInt(DATES),
                    random.nextInt(POSITIONS),
                    random.nextInt(POSITIONS),
                    1 + random.nextInt(COMPOSITE_PARTS),
                    targets));
        }
        boolean isYoung = random.nextInt(YOUNG) == 0;
        int date = (isYoung ? LEAST_DATE + DATES : 0) + random.nextInt(DATES);
        compositeParts.add(new CompositePart(id, type(), date, parts));
        atomicParts.addAll(parts);
    }

    private void addAssembly(int parent, int level) {
        int id = assemblies.size() + 1;
        int date = LEAST_DATE + random.nextInt(DATES);
        if (level == LEVELS) {
            int[] components = random.ints(1, COMPOSITE_PARTS + 1)
                    .distinct()
                    .limit(PARTS_OF_BASE_ASSEMBLY)
                    .toArray();
            assemblies.add(new Assembly(id, type(), date, parent, components));
            return;
        }
        assemblies.add(new Assembly(id, type(), date, parent, null));
        for (int child = 0; child < FANOUT; child++) {
            addAssembly(id, level + 1);
        }
    }

    private String type() {
        return "type%03d".formatted(random.nextInt(TYPES));
    }

    List<CompositePart> compositeParts() {
        return compositeParts;
    }

    /** The assemblies, each after the one above it. */
    List<Assembly> assemblies() {
        return assemblies;
    }

    static String titleOf(int document) {
        return "Composite Part %08d".formatted(document);
    }

    static String text(String line, int characters) {
        return line.repeat(characters / line.length() + 1).substring(0, characters);
    }

    // ------------------------------------------------------------------------------------------- what must be found

    /**
     * Visits of atomic parts by T1: 3⁶ base assemblies × 3 composite parts × 20 atomic parts, all of which are
     * reachable.
     */
    static int visitsOfT1() {
        return visitsOfT6() * ATOMIC_PARTS;
    }

    /** Visits of root parts by T6. */
    static int visitsOfT6() {
        int bases = 1;
        for (int level = 1; level < LEVELS; level++) {
            bases *= FANOUT;
        }
        return bases * PARTS_OF_BASE_ASSEMBLY;
    }

    /** The number of atomic parts that were built on a date or later. */
    int partsSince(int date) {
        return (int)
                atomicParts.stream().filter(part -> part.buildDate() >= date).count();
    }

    /** The number of uses of the composite parts with these documents by base assemblies. */
    int usesOf(int[] documents) {
        return Arrays.stream(documents)
                .map(document -> bases(component -> component == document))
                .sum();
    }

    /** The number of base assemblies that use a composite part that is younger than they are. */
    int basesWithYoungerPart() {
        Set<Integer> found = new HashSet<>();
        for (Assembly assembly : assemblies) {
            if (assembly.isBase()
                    && Arrays.stream(assembly.components())
                            .anyMatch(id -> compositeParts.get(id - 1).buildDate() > assembly.buildDate())) {
                found.add(assembly.id());
            }
        }
        return found.size();
    }

    private int bases(IntPredicate component) {
        return (int) assemblies.stream()
                .filter(Assembly::isBase)
                .filter(assembly -> Arrays.stream(assembly.components()).anyMatch(component))
                .count();
    }

    int atomicParts() {
        return atomicParts.size();
    }
}
