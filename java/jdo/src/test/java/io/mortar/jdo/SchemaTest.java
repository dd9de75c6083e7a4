package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.ClassDefinition;
import io.mortar.Client;
import io.mortar.FieldDefinition;
import io.mortar.FieldType;
import io.mortar.Record;
import io.mortar.Schema;
import io.mortar.SchemaIndex;
import io.mortar.jdo.model.Account;
import io.mortar.jdo.model.Animal;
import io.mortar.jdo.model.Berth;
import io.mortar.jdo.model.Chapters;
import io.mortar.jdo.model.Diary;
import io.mortar.jdo.model.Dog;
import io.mortar.jdo.model.Marina;
import io.mortar.jdo.model.Mooring;
import io.mortar.jdo.model.Person;
import io.mortar.jdo.model.Reading;
import java.math.BigDecimal;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import javax.jdo.JDOException;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.identity.DatastoreIdImpl;
import org.junit.jupiter.api.Test;

/** The classes and indexes that the persistent classes need. */
class SchemaTest {
    private static void create(Store store, Class<?> type) {
        store.storeManager().createSchemaForClasses(Set.of(type.getName()), new Properties());
    }

    @Test
    void members_whose_names_are_not_ascii_have_an_index_each() {
        try (Store store = Store.inMemory()) {
            create(store, Reading.class);
            Schema schema = store.client().schema();
            int number = schema.classNumber(Reading.class.getName());
            List<SchemaIndex> indexes = schema.indexes().stream()
                    .filter(index -> index.classNumber() == number)
                    .toList();
            assertEquals(2, indexes.size(), indexes::toString);
        }
    }

    @Test
    void members_of_embedded_objects_are_indexed_and_unique() {
        try (Store store = Store.inMemory()) {
            store.run(manager -> {
                manager.makePersistent(new Berth(1, new Mooring("a", 5, "north")));
                manager.makePersistent(new Berth(1, new Mooring("b", 5, "south")));
                manager.makePersistent(new Berth(2, null));
                manager.makePersistent(new Berth(3, null));
                Mooring mooring = new Mooring("c", 5, "west");
                mooring.setMarina(manager.makePersistent(new Marina()));
                manager.makePersistent(new Berth(4, mooring));
            });
            store.run(manager -> {
                Marina marina = manager.newQuery(Marina.class).executeList().get(0);
                assertEquals(1, marina.getBerths().size());
            });
            String name = Berth.class.getName();
            assertEquals(
                    Set.of(
                            name + ".mooring_code.unique",
                            name + ".mooring_depth",
                            name + ".mooring_marina",
                            name + ".number.mooring_pier.unique"),
                    store.client().schema().indexes().stream()
                            .map(SchemaIndex::name)
                            .collect(Collectors.toSet()));
            for (Mooring taken : List.of(new Mooring("a", 6, "east"), new Mooring("d", 6, "north"))) {
                assertThrows(
                        JDOException.class, () -> store.run(manager -> manager.makePersistent(new Berth(1, taken))));
            }
        }
    }

    @Test
    void any_number_of_classes_can_refer_to_each_other() {
        try (Store store = Store.with(Map.of("datanucleus.schema.autoCreateColumns", "false"))) {
            create(store, Chapters.C1.class);
            Schema schema = store.client().schema();
            assertEquals(41, schema.classes().size());
            assertEquals(
                    FieldType.reference(Chapters.C1.class.getName()),
                    schema.fieldsOf(Chapters.C41.class.getName()).get("next").type());
        }
    }

    @Test
    void a_validation_fails_for_what_is_missing_and_creates_nothing() {
        try (Store store = Store.inMemory()) {
            Set<String> person = Set.of(Person.class.getName());
            NucleusException missing = assertThrows(
                    NucleusException.class,
                    () -> store.storeManager().validateSchemaForClasses(person, new Properties()));
            assertTrue(missing.getMessage().contains(Person.class.getName()), missing.getMessage());
            assertEquals(List.of(), store.client().schema().classes());
            create(store, Person.class);
            store.storeManager().validateSchemaForClasses(person, new Properties());
        }
    }

    @Test
    void classes_are_removed_with_their_indexes_and_can_be_created_again() {
        try (Store store = Store.inMemory()) {
            create(store, Dog.class);
            store.storeManager()
                    .deleteSchemaForClasses(Set.of(Animal.class.getName(), Dog.class.getName()), new Properties());
            assertTrue(
                    store.client().schema().classNamed(Animal.class.getName()).isEmpty());
            store.run(manager -> manager.makePersistent(new Dog("Rex", 3)));
            store.run(manager ->
                    assertEquals(1, manager.newQuery(Dog.class).executeList().size()));
        }
    }

    @Test
    void a_class_with_objects_is_not_removed() {
        try (Store store = Store.inMemory()) {
            store.run(manager -> manager.makePersistent(new Person("Ann", 1)));
            assertThrows(
                    NucleusException.class,
                    () -> store.storeManager()
                            .deleteSchemaForClasses(Set.of(Person.class.getName()), new Properties()));
            store.run(manager ->
                    assertEquals(1, manager.newQuery(Person.class).executeList().size()));
        }
    }

    @Test
    void a_class_whose_unique_index_cannot_be_built_is_refused_each_time() {
        try (Store store = Store.inMemory()) {
            String name = Account.class.getName();
            Client client = store.client();
            client.define(ClassDefinition.builder(name)
                    .field(FieldDefinition.optional("iban", FieldType.STRING))
                    .build());
            int type = client.schema().classNumber(name);
            Record twice = Record.builder()
                    .set(client.schema().fieldNumber(name, "iban"), "A")
                    .build();
            client.run(transaction -> {
                transaction.create(type, twice);
                transaction.create(type, twice);
            });
            for (int attempt = 0; attempt < 2; attempt++) {
                assertThrows(
                        JDOException.class,
                        () -> store.run(manager -> manager.makePersistent(new Account(1, "B", BigDecimal.ONE, null))));
            }
        }
    }

    @Test
    void a_class_that_the_space_does_not_have_is_named_by_its_number() {
        try (Store store = Store.inMemory()) {
            create(store, Person.class);
            NucleusException missing = assertThrows(
                    NucleusException.class, () -> store.storeManager().schema().className(77));
            String space = "the space " + store.client().space() + " has no class with the number 77";
            assertTrue(missing.getMessage().contains(space), missing.getMessage());
            assertTrue(missing.getMessage().contains("another space"), missing.getMessage());
        }
    }

    @Test
    void classes_that_cannot_be_read_are_an_error_of_the_store() {
        Store store = Store.inMemory();
        MortarStoreManager manager = store.storeManager();
        create(store, Person.class);
        store.close();
        NucleusException closed =
                assertThrows(NucleusException.class, () -> manager.schema().className(77));
        assertTrue(closed.getMessage().contains("the classes of the space"), closed.getMessage());
    }

    @Test
    void an_identity_of_a_class_that_is_not_persistent_is_refused() {
        try (Store store = Store.inMemory()) {
            Client client = store.client();
            client.define(ClassDefinition.builder("Thing").build());
            for (String name : List.of("Thing", "java.lang.String")) {
                String id = "1.2.8.0.1[OID]" + name;
                JDOException refused = assertThrows(
                        JDOException.class, () -> store.run(manager -> manager.getObjectById(new DatastoreIdImpl(id))));
                assertTrue(refused.getMessage().contains(name), refused.getMessage());
                assertTrue(
                        refused.getMessage().contains("is it on the class path, and enhanced?"), refused.getMessage());
            }
        }
    }

    @Test
    void a_counter_is_not_created_if_that_is_forbidden() {
        try (Store store = Store.with(Map.of("datanucleus.schema.autoCreateTables", "false"))) {
            store.run(manager -> {
                store.factory().getMetadata(Diary.class.getName());
                assertThrows(
                        JDOException.class,
                        () -> manager.getSequence("io.mortar.jdo.model.pages").nextValue());
            });
            assertEquals(List.of(), store.client().schema().classes());
        }
    }
}
