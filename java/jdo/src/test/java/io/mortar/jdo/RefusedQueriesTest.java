package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.mortar.jdo.model.AllTypes;
import io.mortar.jdo.model.Person;
import java.util.List;
import javax.jdo.JDOUserException;
import javax.jdo.Query;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** JDO 3.2, sections 14.6.2 and 14.6.12: queries without a meaning are refused when they are compiled. */
class RefusedQueriesTest {
    private static final Store STORE = Store.inMemory();

    @AfterAll
    static void close() {
        STORE.close();
    }

    /** A result class with public fields. */
    public static class Fields {
        public String name;
        public long years;
    }

    /** A result class with a constructor. */
    public static class Constructed {
        final double number;

        public Constructed(double number) {
            this.number = number;
        }
    }

    /** A result class with setters. */
    public static class Setters {
        private String title;

        public void setTitle(String title) {
            this.title = title;
        }
    }

    /** A result class without members. */
    public static class Empty {}

    private static void compile(String text) {
        STORE.run(manager -> manager.newQuery(text.replace("$", RefusedQueriesTest.class.getName() + "$"))
                .compile());
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            value = {
                "this => java.lang.Long",
                "name => java.lang.Integer",
                "name, age => java.lang.String",
                "name => $Empty",
                "name => $Constructed",
                "name, age => $Constructed",
                "name as title, age => $Setters",
                "age as title => $Setters",
                "age as name => $Fields",
                "height as name, age as years => $Fields",
            })
    void a_result_class_that_cannot_have_the_result_is_refused(String result, String type) {
        String query = "select " + result + " into " + type + " from io.mortar.jdo.model.Person";
        assertThrows(JDOUserException.class, () -> compile(query));
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            value = {
                "this => io.mortar.jdo.model.Person",
                "age => java.lang.Integer",
                "avg(age) => java.lang.Double",
                "name, age as years => $Fields",
                "age => $Constructed",
                "height => $Constructed",
                "name as title => $Setters",
                "name, age => java.util.Map",
            })
    void a_result_class_that_can_have_the_result_is_accepted(String result, String type) {
        assertDoesNotThrow(() -> compile("select " + result + " into " + type + " from io.mortar.jdo.model.Person"));
    }

    @Test
    void a_member_of_a_result_class_has_the_name_of_the_result() {
        STORE.run(manager -> {
            manager.makePersistent(new Person("Ann", 50));
            Query<?> query = manager.newQuery(Person.class, "name == 'Ann'");
            query.setResult("name as title");
            query.setResultClass(Setters.class);
            assertEquals("Ann", ((Setters) ((List<?>) query.execute()).get(0)).title);
            manager.currentTransaction().setRollbackOnly();
            manager.currentTransaction().rollback();
            manager.currentTransaction().begin();
        });
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "select from io.mortar.jdo.model.Person where friends.add(this)",
                "select from io.mortar.jdo.model.Person where tags.remove('a')",
                "select from io.mortar.jdo.model.Person where age == Integer.valueOf(1)",
                "select from io.mortar.jdo.model.Person where friends.contains(friends) variables io.mortar.jdo.model.Person friends",
                "select from io.mortar.jdo.model.AllTypes where aChar == 'ab'",
                "select from io.mortar.jdo.model.AllTypes where '' != boxedChar",
                "select from io.mortar.jdo.model.Nothing",
                "select new $Constructed(name, age) from io.mortar.jdo.model.Person",
                "select from io.mortar.jdo.model.Person where (if (name) 0 else 1) == 0",
                "select if (name) 0 else 1 from io.mortar.jdo.model.Person",
                "select if (boss == null) 'none' else boss from io.mortar.jdo.model.Person",
            })
    void a_query_without_a_meaning_is_refused(String text) {
        assertThrows(JDOUserException.class, () -> compile(text));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "select from io.mortar.jdo.model.Person where boss < boss",
                "select sum(ordinal) from io.mortar.jdo.model.AllTypes",
                "select from io.mortar.jdo.model.AllTypes where ordinal * 2 == 2",
            })
    void an_operation_that_java_does_not_have_is_refused(String text) {
        STORE.run(manager -> {
            Person ann = new Person("Ann", 50);
            ann.setBoss(ann);
            AllTypes types = new AllTypes();
            types.ordinal = AllTypes.Color.GREEN;
            manager.makePersistentAll(ann, types);
            assertThrows(JDOUserException.class, () -> manager.newQuery(text).execute());
            manager.currentTransaction().setRollbackOnly();
            manager.currentTransaction().rollback();
            manager.currentTransaction().begin();
        });
    }

    @Test
    void null_is_no_value_of_a_primitive_parameter() {
        STORE.run(manager -> {
            Query<AllTypes> primitive = manager.newQuery(AllTypes.class, "anInt == p");
            primitive.declareParameters("int p");
            assertThrows(JDOUserException.class, () -> primitive.execute((Object) null));
            Query<AllTypes> boxed = manager.newQuery(AllTypes.class, "boxedInt == p");
            boxed.declareParameters("Integer p");
            assertEquals(List.of(), boxed.execute((Object) null));
        });
    }
}
