package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jdo.entities.Machine;
import io.mortar.jdo.entities.Part;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A list with an order column and mappedBy contains the entities that refer to its owner, whichever side was changed.
 */
class IndexedListsTest {
    private EntityManagerFactory factory;

    /** Changes of the relation between machines and parts. */
    enum Change {
        NEW_ELEMENT_REFERS(manager -> {
            Part part = new Part("new");
            part.setOrdered(machine(manager, "a"));
            manager.persist(part);
        }),
        ELEMENT_MOVES(manager -> part(manager, "a1").setOrdered(machine(manager, "b"))),
        ELEMENT_MOVES_WITH_A_LOADED_LIST(manager -> {
            list(manager, "a").size();
            list(manager, "b").size();
            part(manager, "a1").setOrdered(machine(manager, "b"));
        }),
        ELEMENT_ENDS_ITS_REFERENCE(manager -> part(manager, "a1").setOrdered(null)),
        ELEMENT_IS_REMOVED(manager -> manager.remove(part(manager, "a1"))),
        ELEMENT_IS_REMOVED_BY_A_QUERY(manager ->
                manager.createQuery("DELETE FROM Part p WHERE p.name = 'a1'").executeUpdate()),
        ELEMENT_IS_MOVED_BY_A_QUERY(
                manager -> manager.createQuery("UPDATE Part p SET p.ordered = :machine WHERE p.name = 'a1'")
                        .setParameter("machine", machine(manager, "b"))
                        .executeUpdate()),
        NEW_ELEMENT_IS_ADDED(manager -> list(manager, "a").add(0, new Part("new"))),
        NEW_ELEMENT_OF_ANOTHER_IS_ADDED(manager -> {
            Part part = new Part("new");
            part.setOrdered(machine(manager, "b"));
            list(manager, "a").add(part);
        }),
        STORED_ELEMENT_IS_ADDED(manager -> list(manager, "b").add(part(manager, "a1"))),
        ELEMENT_IS_ADDED_THAT_MOVES_ELSEWHERE(manager -> {
            Part part = part(manager, "a1");
            part.setOrdered(machine(manager, "b"));
            list(manager, "c").add(part);
        }),
        BOTH_SIDES_MOVE(manager -> {
            Part part = part(manager, "a1");
            list(manager, "a").remove(part);
            list(manager, "b").add(part);
            part.setOrdered(machine(manager, "b"));
        }),
        LIST_IS_CLEARED(manager -> list(manager, "a").clear()),
        LIST_IS_REVERSED(manager -> {
            List<Part> parts = new ArrayList<>(list(manager, "a"));
            list(manager, "a").clear();
            java.util.Collections.reverse(parts);
            list(manager, "a").addAll(parts);
        }),
        OWNER_IS_REMOVED(manager -> manager.remove(machine(manager, "a"))),
        ELEMENT_REMOVED_AND_MERGED(manager -> {
            Part part = part(manager, "a1");
            manager.flush();
            manager.detach(part);
            part.setOrdered(machine(manager, "b"));
            manager.merge(part);
        });

        private final Consumer<EntityManager> change;

        Change(Consumer<EntityManager> change) {
            this.change = change;
        }
    }

    private static Machine machine(EntityManager manager, String name) {
        return manager.find(Machine.class, name);
    }

    private static List<Part> list(EntityManager manager, String machine) {
        return (List<Part>) machine(manager, machine).get(Machine.Container.ORDERED);
    }

    private static Part part(EntityManager manager, String name) {
        return manager.createQuery("SELECT p FROM Part p WHERE p.name = :name", Part.class)
                .setParameter("name", name)
                .getSingleResult();
    }

    private void run(Consumer<EntityManager> body) {
        Store.inTransaction(factory, body);
    }

    @AfterEach
    void close() {
        if (factory.isOpen()) {
            factory.close();
        }
    }

    private static Map<String, Collection<String>> lists(EntityManager manager) {
        Map<String, Collection<String>> lists = new TreeMap<>();
        for (Machine each :
                manager.createQuery("SELECT m FROM Machine m", Machine.class).getResultList()) {
            lists.put(each.getName(), new TreeSet<>());
            each.get(Machine.Container.ORDERED)
                    .forEach(part -> lists.get(each.getName()).add(part.getName()));
        }
        return lists;
    }

    private static Map<String, Collection<String>> referrers(EntityManager manager) {
        Map<String, Collection<String>> referrers = new TreeMap<>();
        for (Machine each :
                manager.createQuery("SELECT m FROM Machine m", Machine.class).getResultList()) {
            referrers.put(each.getName(), new TreeSet<>());
        }
        for (Part each : manager.createQuery("SELECT p FROM Part p", Part.class).getResultList()) {
            if (each.getOrdered() != null) {
                referrers.get(each.getOrdered().getName()).add(each.getName());
            }
        }
        return referrers;
    }

    @ParameterizedTest
    @EnumSource(Change.class)
    void both_sides_agree(Change change) {
        for (boolean isOptimistic : new boolean[] {true, false}) {
            factory = Persistence.createEntityManagerFactory(
                    "music",
                    Map.of(
                            "jakarta.persistence.jdbc.url",
                            "mortar:memory:" + UUID.randomUUID(),
                            "datanucleus.Optimistic",
                            String.valueOf(isOptimistic)));
            run(manager -> {
                for (String name : List.of("a", "b", "c")) {
                    Machine machine = new Machine(name);
                    machine.get(Machine.Container.ORDERED).addAll(List.of(new Part(name + 1), new Part(name + 2)));
                    manager.persist(machine);
                }
            });
            run(manager -> {
                change.change.accept(manager);
                manager.flush();
                assertEquals(referrers(manager), lists(manager));
            });
            run(manager -> {
                assertEquals(referrers(manager), lists(manager));
                Map<String, Integer> sizes = new TreeMap<>();
                lists(manager).forEach((name, parts) -> sizes.put(name, parts.size()));
                Map<String, Integer> queried = new TreeMap<>();
                for (Object row : manager.createQuery("SELECT m.name, SIZE(m.ordered) FROM Machine m")
                        .getResultList()) {
                    queried.put((String) ((Object[]) row)[0], ((Number) ((Object[]) row)[1]).intValue());
                }
                assertEquals(sizes, queried);
                Map<String, Collection<String>> members = new TreeMap<>();
                sizes.keySet().forEach(name -> members.put(name, new TreeSet<>()));
                for (Object row : manager.createQuery(
                                "SELECT m.name, p.name FROM Machine m, Part p WHERE p MEMBER OF m.ordered")
                        .getResultList()) {
                    members.get(((Object[]) row)[0]).add((String) ((Object[]) row)[1]);
                }
                assertEquals(referrers(manager), members);
            });
            factory.close();
        }
    }
}
