package io.mortar.bench.oo7;

import io.mortar.bench.model.AtomicPart;
import io.mortar.bench.model.BaseAssembly;
import io.mortar.bench.model.Document;
import jakarta.persistence.EntityManager;
import java.util.List;
import java.util.Random;

/** The queries of OO7 in JPQL. Each returns the number of objects that it has found. */
public enum Queries {
    /** Exact match: ten atomic parts by identifier. */
    Q1 {
        @Override
        int find(EntityManager manager) {
            int found = 0;
            for (int id : chosen(LOOKUPS, DESIGN.atomicParts())) {
                AtomicPart part = manager.createQuery("SELECT p FROM AtomicPart p WHERE p.id = :id", AtomicPart.class)
                        .setParameter("id", id)
                        .getSingleResult();
                found += Traversals.visit(part);
            }
            return found;
        }

        @Override
        int expected() {
            return LOOKUPS;
        }
    },
    /** The one per cent of the atomic parts with the latest build dates. */
    Q2 {
        @Override
        int find(EntityManager manager) {
            return partsSince(manager, date(1));
        }

        @Override
        int expected() {
            return DESIGN.partsSince(date(1));
        }
    },
    /** The ten per cent of them. */
    Q3 {
        @Override
        int find(EntityManager manager) {
            return partsSince(manager, date(10));
        }

        @Override
        int expected() {
            return DESIGN.partsSince(date(10));
        }
    },
    /** A hundred documents by title, and the base assemblies that use their composite parts. */
    Q4 {
        @Override
        int find(EntityManager manager) {
            int found = 0;
            for (int id : chosen(DOCUMENTS, Design.COMPOSITE_PARTS)) {
                Document document = manager.createQuery(
                                "SELECT d FROM Document d WHERE d.title = :title", Document.class)
                        .setParameter("title", Design.titleOf(id))
                        .getSingleResult();
                for (BaseAssembly base : document.getPart().getUsedIn()) {
                    found += base.getBuildDate() > 0 ? 1 : 0;
                }
            }
            return found;
        }

        @Override
        int expected() {
            return DESIGN.usesOf(chosen(DOCUMENTS, Design.COMPOSITE_PARTS));
        }
    },
    /** Single-level make: the base assemblies that use a composite part with a more recent build date. */
    Q5 {
        @Override
        int find(EntityManager manager) {
            List<BaseAssembly> found = manager.createQuery(
                            "SELECT DISTINCT b FROM BaseAssembly b JOIN b.components c WHERE c.buildDate > b.buildDate",
                            BaseAssembly.class)
                    .getResultList();
            return (int) found.stream().filter(base -> base.getBuildDate() > 0).count();
        }

        @Override
        int expected() {
            return DESIGN.basesWithYoungerPart();
        }
    },
    /** All atomic parts. */
    Q7 {
        @Override
        int find(EntityManager manager) {
            List<AtomicPart> found = manager.createQuery("SELECT p FROM AtomicPart p", AtomicPart.class)
                    .getResultList();
            return found.stream().mapToInt(Traversals::visit).sum();
        }

        @Override
        int expected() {
            return DESIGN.atomicParts();
        }
    },
    /** The pairs of documents and atomic parts that have the identifier of the document. */
    Q8 {
        @Override
        int find(EntityManager manager) {
            List<Object[]> found = manager.createQuery(
                            "SELECT d.id, p.id FROM Document d, AtomicPart p WHERE p.documentId = d.id", Object[].class)
                    .getResultList();
            return (int) found.stream().filter(pair -> pair.length == 2).count();
        }

        @Override
        int expected() {
            return DESIGN.atomicParts();
        }
    };

    private static final Design DESIGN = new Design();
    private static final int LOOKUPS = 10;
    private static final int DOCUMENTS = 100;

    /** The name in results. */
    public String id() {
        return name().toLowerCase(java.util.Locale.ROOT);
    }

    abstract int find(EntityManager manager);

    abstract int expected();

    /** Runs the query and checks the number of objects, which it returns. */
    public int run(EntityManager manager) {
        int found = find(manager);
        if (found != expected()) {
            throw new IllegalStateException(name() + " has found " + found + " objects and not " + expected());
        }
        return found;
    }

    /** Identifiers up to a limit, the same in each run. */
    private static int[] chosen(int count, int limit) {
        return new Random(count).ints(count, 1, limit + 1).toArray();
    }

    /** The date since when this many per cent of the atomic parts were built. */
    private static int date(int percent) {
        return Design.LEAST_DATE + Design.DATES - Design.DATES * percent / 100;
    }

    private static int partsSince(EntityManager manager, int date) {
        List<AtomicPart> found = manager.createQuery(
                        "SELECT p FROM AtomicPart p WHERE p.buildDate >= :date", AtomicPart.class)
                .setParameter("date", date)
                .getResultList();
        return found.stream().mapToInt(Traversals::visit).sum();
    }
}
