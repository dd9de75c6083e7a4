package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Address;
import io.mortar.jdo.model.Dog;
import io.mortar.jdo.model.Person;
import io.mortar.jdo.model.QPerson;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import javax.jdo.JDOException;
import javax.jdo.JDOHelper;
import javax.jdo.JDOQLTypedQuery;
import javax.jdo.JDOQLTypedSubquery;
import javax.jdo.JDOUserException;
import javax.jdo.Query;
import javax.jdo.query.NumericExpression;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** JDO 3.2, chapter 14: JDOQL. */
class QueryTest {
    private static final Store STORE = Store.inMemory();

    @AfterAll
    static void close() {
        STORE.close();
    }

    @BeforeAll
    static void populate() {
        STORE.run(manager -> {
            Person ann = person("Ann", 50, null, 1.70, "a,b");
            Person bob = person("Bob", 30, ann, 1.80, "b");
            Person cid = person("Cid", 30, ann, null, "");
            Person dan = person("Dan", 20, bob, 1.60, "c");
            bob.getFriends().add(cid);
            bob.getFriends().add(dan);
            cid.getFriends().add(ann);
            ann.setAddress(new Address("Main", 3, "Ulm"));
            dan.setAddress(new Address("Side", 4, "Bonn"));
            dan.setActive(false);
            bob.getScores().put("go", 5);
            manager.makePersistentAll(List.of(ann, bob, cid, dan));
        });
    }

    private static Person person(String name, int age, Person boss, Double height, String tags) {
        Person person = new Person(name, age);
        person.setBoss(boss);
        person.setHeight(height);
        person.getTags().addAll(tags.isEmpty() ? List.of() : List.of(tags.split(",")));
        return person;
    }

    private static String names(Object people) {
        return ((Collection<?>) people)
                .stream().map(each -> ((Person) each).getName()).sorted().collect(Collectors.joining(" "));
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "age > 25 => Ann Bob Cid",
                "age == 30 && name != 'Bob' => Cid",
                "age < 25 || age >= 50 => Ann Dan",
                "!(age == 30) => Ann Dan",
                "height == null => Cid",
                "height != null => Ann Bob Dan",
                "height != 1.7 => Bob Dan",
                "height > 1.65 && height <= 1.8 => Ann Bob",
                "!(height > 1.65) => Dan",
                "!(height == 1.7 || age == 20) => Bob",
                "!(height == 1.7 && age == 50) => Bob Cid Dan",
                "!(height == null) => Ann Bob Dan",
                "boss == null => Ann",
                "boss.name == 'Ann' => Bob Cid",
                "boss.boss.name == 'Ann' => Dan",
                "boss.name != 'Ann' => Dan",
                "!(boss.name == 'Ann') => Dan",
                "boss.boss == null => Ann Bob Cid",
                "!(boss.boss == null) => Dan",
                "!boss.name.startsWith('A') => Dan",
                "!(boss.friends.contains(this)) => Ann Bob Cid",
                // What a text has in common with null is unknown.
                "!name.contains(boss.name) => Bob Cid Dan",
                "!(friends.contains(f) && f.age == 20 || height > 1.75) => Ann Dan",
                "!(!(friends.contains(f) && f.age == 20) && height > 1.75) => Ann Bob Dan",
                "!(height > 1.75 && (friends.contains(f) || name == null)) => Ann Dan",
                "boss.age == this.age + 20 => Bob Cid",
                "age * 2 - 10 > 50 => Ann",
                "age % 20 == 10 => Ann Bob Cid",
                "-age < -40 => Ann",
                "name.startsWith('B') => Bob",
                "name.endsWith('n') => Ann Dan",
                "name.indexOf('n') >= 0 => Ann Dan",
                "name.indexOf('i') == -1 => Ann Bob Dan",
                "name.toLowerCase() == 'bob' => Bob",
                "name.toUpperCase().startsWith('C') => Cid",
                "name.length() > 3 => ",
                "name.matches('A.*') => Ann",
                "name.matches('.*i.*') => Cid",
                "tags.contains('b') => Ann Bob",
                "tags.isEmpty() => Cid",
                "tags.size() > 0 => Ann Bob Dan",
                "tags.size() >= 1.0 => Ann Bob Dan",
                "!tags.contains('b') => Cid Dan",
                "friends.contains(f) && f.age == 20 => Bob",
                "friends.contains(f) && (f.name == 'Ann' || f.name == 'Dan') => Bob Cid",
                "friends.contains(f) && f.boss.name == 'Bob' && age < 40 => Bob",
                "friends.contains(f) && f.friends.contains(g) && g.name == 'Ann' => Bob",
                "boss.friends.contains(this) => Dan",
                "f.name == 'Dan' && friends.contains(f) && f.boss.friends.contains(g) && g == f => Bob",
                "age > 40 || friends.contains(f) => Ann Bob Cid",
                "active => Ann Bob Cid",
                "!active => Dan",
                "active == false || age == 50 => Ann Dan",
                "address.city == 'Ulm' => Ann",
                "address != null && address.number > 3 => Dan",
                "address == null => Bob Cid",
                // A number of an embedded object that is null is null.
                "!(address.number > 3) => Ann",
                "address.number < 4 => Ann",
                "boss.address.number >= 0 => Bob Cid",
                "age == 20 || address.number != 4 => Ann Dan",
                "scores.containsKey('go') => Bob",
                "Math.abs(age - 40) == 10 => Ann Bob Cid",
                "boss.address.city == 'Ulm' => Bob Cid",
                "this == boss.boss => ",
            })
    void a_filter_is_evaluated_by_the_store(String filter, String expected) {
        STORE.run(manager -> {
            Query<Person> query = manager.newQuery(Person.class, filter);
            query.declareVariables("io.mortar.jdo.model.Person f; io.mortar.jdo.model.Person g");
            Queries.check(query, expected, QueryTest::names, "store");
        });
    }

    @Test
    void a_name_that_is_neither_a_member_nor_a_variable_is_refused() {
        STORE.run(manager -> {
            assertThrows(
                    JDOUserException.class,
                    () -> manager.newQuery(Person.class, "nickname == 3").execute());
            assertThrows(
                    JDOUserException.class,
                    () -> manager.newQuery(Person.class, "age > nickname").execute());
        });
    }

    @ParameterizedTest
    @CsvSource({"sum(name)", "friends", "scores", "nickname", "'name, age into java.lang.Long'"})
    void a_result_that_has_no_meaning_is_refused(String result) {
        STORE.run(manager -> assertThrows(
                JDOUserException.class,
                () -> manager.newQuery("select " + result + " from io.mortar.jdo.model.Person")
                        .execute()));
    }

    @Test
    void an_order_of_many_keys_is_made_in_memory() {
        STORE.run(manager -> {
            Query<Person> query = manager.newQuery(Person.class);
            query.setOrdering("age, " + "height, ".repeat(16) + "name desc");
            assertEquals(
                    List.of("Dan", "Cid", "Bob", "Ann"),
                    query.executeList().stream().map(Person::getName).toList());
        });
    }

    @Test
    void an_embedded_object_of_a_result_is_a_copy() {
        STORE.run(manager -> {
            Query<?> query = manager.newQuery("select address from io.mortar.jdo.model.Person where name == 'Ann'");
            Address address = (Address) ((List<?>) query.execute()).get(0);
            address.setCity("Rome");
            assertFalse(JDOHelper.isPersistent(address));
            assertEquals("Main 3", address.getStreet() + ' ' + address.getNumber());
            Person ann = (Person) ((List<?>) manager.newQuery(Person.class, "address.city == 'Ulm'")
                            .execute())
                    .get(0);
            assertFalse(JDOHelper.isDirty(ann));
        });
    }

    @Test
    void a_result_can_be_maps() {
        STORE.run(manager -> {
            Query<?> query = manager.newQuery(
                    "select name, age as years into java.util.Map from io.mortar.jdo.model.Person where name == 'Ann'");
            assertEquals(List.of(Map.of("name", "Ann", "years", 50)), query.execute());
        });
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "~age == -31 && age > 10 => Bob Cid => age",
                "Math.sqrt(age) > 7 && age > 10 => Ann => age",
                "name.substring(1) == 'nn' && age > 10 => Ann => age",
                "name + 'x' == 'Bobx' => Bob => ",
                "scores.containsValue(5) => Bob => ",
                "name.matches('[AB].*') && age == 30 => Bob => age",
                "age * 1.1 == 33.0 && age * 1.1 == 33 && name.charAt(0) == 'B' => Bob => age",
                "(IF (age > 40) 'old' ELSE 'young') == 'old' => Ann => ",
                // An aggregate in a filter is that of all objects.
                "age == max(age) => Ann => ",
                "age < avg(f.age) && age > min(f.age) => Bob Cid => ",
                // Numbers are compared as they are written.
                "tags.size() >= 1.5 => Ann => ",
                "!(tags.size() < 0.5) => Ann Bob Dan => ",
                "name.indexOf('n') > -0.5 && age > 10 => Ann Dan => age",
                "'Annabel'.contains(name) && age > 10 => Ann => age",
                // A number of an embedded object that is null is null, and no element.
                "-address.number == null => Bob Cid => ",
                "address.number + 1 == height + 1 => Cid => ",
                "!tags.contains(address.number) => Ann Bob Cid Dan => ",
            })
    void the_rest_of_a_filter_is_evaluated_in_memory(String filter, String expected, String translated) {
        STORE.run(manager -> {
            Query<Person> query = manager.newQuery(Person.class, filter);
            query.declareVariables("io.mortar.jdo.model.Person f");
            Queries.check(query, expected, QueryTest::names, "memory");
            assertTrue(translated == null || Queries.nativeQuery(query).text().contains(translated));
        });
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "name.startsWith(p)",
                "!name.startsWith(p)",
                "!name.endsWith(p)",
                "!name.contains(p)",
                "name.indexOf(p) == -1",
                "!(name.indexOf(p) >= 0)",
                "name.indexOf(p) != 0",
                "p.contains(name)",
                "!p.contains(name)",
            })
    void what_a_text_has_in_common_with_null_is_unknown(String filter) {
        STORE.run(manager -> {
            for (String each : List.of(filter, filter + " && name.substring(0) == name")) {
                Query<Person> query = manager.newQuery(Person.class, each);
                query.declareParameters("String p");
                assertEquals("", names((List<?>) query.execute((Object) null)), () -> "" + Queries.nativeQuery(query));
            }
        });
    }

    @Test
    void a_parameter_can_contain_null() {
        STORE.run(manager -> {
            Person ann = (Person)
                    ((List<?>) manager.newQuery(Person.class, "name == 'Ann'").execute()).get(0);
            Map<String, Object> parameters = new HashMap<>();
            parameters.put("heights", Arrays.asList(1.7, null));
            parameters.put("bosses", Arrays.asList(ann, null));
            parameters.put("known", List.of(1.7));
            parameters.put("names", List.of("Ann"));
            parameters.put("none", null);
            Map<String, String> expected = Map.of(
                    ":heights.contains(height)", "Ann Cid",
                    "!:heights.contains(height)", "Bob Dan",
                    ":bosses.contains(boss)", "Ann Bob Cid",
                    "!:bosses.contains(boss)", "Dan",
                    // A list without null does not contain it.
                    "!:known.contains(height)", "Bob Cid Dan",
                    "!(age == 50 || :names.contains(boss.name))", "Dan",
                    "!:names.contains(boss.name)", "Ann Dan",
                    ":none.contains(height)", "",
                    "!:none.contains(height)", "");
            expected.forEach((filter, names) -> {
                for (String each : List.of(filter, filter + " && name.substring(0) == name")) {
                    Query<Person> query = manager.newQuery(Person.class, each);
                    String parameter = filter.replaceAll(".*:(\\w+).*", "$1");
                    Map<String, Object> values = Collections.singletonMap(parameter, parameters.get(parameter));
                    assertEquals(names, names((List<?>) query.executeWithMap(values)), each);
                    assertEquals(each.equals(filter), Queries.inMemory(query).isEmpty());
                }
            });
        });
    }

    @Test
    void parameters_are_values_objects_and_collections() {
        STORE.run(manager -> {
            Person ann = (Person) manager.newQuery("select unique from io.mortar.jdo.model.Person where name == 'Ann'")
                    .execute();
            Query<Person> query = manager.newQuery(Person.class, "boss == :boss && :ages.contains(age)");
            assertEquals("Bob Cid", names((List<?>)
                    query.executeWithMap(Map.of("boss", ann, "ages", List.of(30, 31)))));
            Query<Person> isNull = manager.newQuery(Person.class, "boss == b");
            isNull.declareParameters("io.mortar.jdo.model.Person b");
            assertEquals("Ann", names((List<?>) isNull.execute((Object) null)));
            Query<Person> friends = manager.newQuery(Person.class, "friends.contains(:f)");
            assertEquals("Cid", names((List<?>) friends.execute(ann)));
        });
    }

    @Test
    void results_are_columns_aggregates_and_groups() {
        STORE.run(manager -> {
            assertEquals(
                    4L,
                    manager.newQuery("select count(this) from io.mortar.jdo.model.Person")
                            .execute());
            assertEquals(
                    130L,
                    manager.newQuery("select sum(age) from io.mortar.jdo.model.Person")
                            .execute());
            assertEquals(
                    50,
                    manager.newQuery("select max(age) from io.mortar.jdo.model.Person")
                            .execute());
            assertEquals(
                    32.5,
                    manager.newQuery("select avg(age) from io.mortar.jdo.model.Person")
                            .execute());
            Query<?> groups = manager.newQuery(
                    "select age, count(this) from io.mortar.jdo.model.Person group by age order by age desc");
            List<String> rows = new ArrayList<>();
            for (Object row : (List<?>) groups.execute()) {
                rows.add(Arrays.toString((Object[]) row));
            }
            assertEquals(List.of("[50, 1]", "[30, 2]", "[20, 1]"), rows);
            assertEquals(List.of(), Queries.inMemory(groups));
            Query<?> distinct = manager.newQuery("select distinct age from io.mortar.jdo.model.Person order by age");
            assertEquals(List.of(20, 30, 50), distinct.execute());
            Query<?> bosses = manager.newQuery("select boss, name from io.mortar.jdo.model.Person where name == 'Bob'");
            Object[] row = (Object[]) ((List<?>) bosses.execute()).get(0);
            assertEquals("Ann", ((Person) row[0]).getName());
            Query<?> having =
                    manager.newQuery("select age from io.mortar.jdo.model.Person group by age having count(this) > 1");
            assertEquals(List.of(30), having.execute());
        });
    }

    @Test
    void a_result_is_computed_in_memory_if_its_order_is() {
        STORE.run(manager -> {
            Query<?> query = manager.newQuery("select name from io.mortar.jdo.model.Person order by name.substring(1)");
            assertEquals(List.of("Dan", "Cid", "Ann", "Bob"), query.execute());
            assertFalse(Queries.inMemory(query).isEmpty());
        });
    }

    @Test
    void a_number_behind_a_reference_that_is_null_is_null() {
        STORE.run(manager -> {
            Query<?> query = manager.newQuery("select boss.age from io.mortar.jdo.model.Person order by name");
            assertEquals(Arrays.asList(null, 50, 50, 30), query.execute());
        });
    }

    @Test
    void results_are_ordered_and_ranged_by_the_store() {
        STORE.run(manager -> {
            Query<Person> query = manager.newQuery(Person.class);
            query.setOrdering("age ascending, name descending");
            query.setRange(1, 3);
            List<String> names =
                    query.executeList().stream().map(Person::getName).toList();
            assertEquals(List.of("Cid", "Bob"), names);
            assertTrue(Queries.nativeQuery(query).text().endsWith("skip 1 limit 2"));
        });
    }

    @Test
    void a_typed_query_is_translated() {
        STORE.run(manager -> {
            JDOQLTypedQuery<Person> query = manager.newJDOQLTypedQuery(Person.class);
            QPerson person = QPerson.candidate();
            query.filter(person.age.gt(25).and(person.boss.name.eq("Ann"))).orderBy(person.name.asc());
            assertEquals("Bob Cid", names(query.executeList()));
        });
    }

    @Test
    void a_subquery_is_evaluated_first() {
        STORE.run(manager -> {
            Query<Person> query = manager.newQuery(
                    "select from io.mortar.jdo.model.Person where age > (select avg(p.age) from io.mortar.jdo.model.Person p)");
            assertEquals("Ann", names((List<?>) query.execute()));
            assertEquals(List.of(), Queries.inMemory(query));
        });
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "select boss.name from P order by name => [null, Ann, Ann, Bob] => store",
                "select boss.name.substring(1) from P order by name => [null, nn, nn, ob] => memory",
                "select boss.name, count(this) from P group by boss.name having count(this) > 1 => [[Ann, 2]] => store",
                "select age, max(height) from P group by age having max(height) > 1.75 => [[30, 1.8]] => store",
                "select count(distinct age) from P => 3 => store",
                "select avg(distinct age) from P where boss != null => 25.0 => store",
                "select age, count(distinct boss) from P group by age order by age => [[20, 1], [30, 1], [50, 0]] => memory",
                "select name, f.name from P where friends.contains(f) && age == 30 variables io.mortar.jdo.model.Person f order by f.name "
                        + "=> [[Cid, Ann], [Bob, Cid], [Bob, Dan]] => memory",
                "select f.age, count(this) from P where friends.contains(f) variables io.mortar.jdo.model.Person f group by f.age order by f.age "
                        + "=> [[20, 1], [30, 1], [50, 1]] => memory",
                "select name, f.name from P where f.boss == this variables io.mortar.jdo.model.Person f order by f.name "
                        + "=> [[Ann, Bob], [Ann, Cid], [Bob, Dan]] => memory",
                "select name, f.name from P where age == 30 && f.age > 30 variables io.mortar.jdo.model.Person f order by name "
                        + "=> [[Bob, Ann], [Cid, Ann]] => memory",
                "select name, t from P where tags.contains(t) && age > 20 variables String t order by name, t => [[Ann, a], [Ann, b], [Bob, b]] => memory",
                "select sum(age) from P where name.substring(0, 1) != 'A' => 80 => memory",
                "select max(age) - min(age) from P => 30 => memory",
                "select name from P where name.charAt(1) != 'o' order by name desc range 1,3 => [Cid, Ann] => memory",
                "select name from P where boss.name.substring(0) != 'Ann' => [Dan] => memory",
                "select name from P where boss.name == null => [Ann] => store",
                "select name from P where boss.name.substring(0) == null => [Ann] => memory",
                "select name from P where !(boss.name.substring(0) == 'Ann') => [Dan] => memory",
                "select name from P where !(friends.contains(f) && f.name.substring(0, 1) == 'D') variables io.mortar.jdo.model.Person f order by name "
                        + "=> [Ann, Cid, Dan] => memory",
                "select name from P where (select count(p) from io.mortar.jdo.model.Person p where p.boss == this) > 1 => [Ann] => memory",
                "select name from P where age == (select p.age from io.mortar.jdo.model.Person p where p.name == 'Bob') order by name => [Bob, Cid] => store",
                "select name from P where age != (select p.age from io.mortar.jdo.model.Person p where p.name == 'Zoe') => [] => store",
                "select name from P where boss == (select p from io.mortar.jdo.model.Person p where p.name == 'Zoe') => [] => store",
                "select name from P where age == (select p.age from io.mortar.jdo.model.Person p where p.name == 'Bob' && p != this) => [Cid] => memory",
                // A subquery is one value also in the result and as an argument.
                "select name, (select p.age from io.mortar.jdo.model.Person p where p.name == 'Bob') from P where age > 40 => [[Ann, 30]] => store",
                "select name, (select p.age from io.mortar.jdo.model.Person p where p.name == 'Dan') from P where age > 40 => [[Ann, 20]] => store",
                "select name, (select p.name from io.mortar.jdo.model.Person p where p == this.boss) from P order by name => [[Ann, null], [Bob, Ann], [Cid, Ann], [Dan, Bob]] => memory",
                "select name from P where name.startsWith((select p.name from io.mortar.jdo.model.Person p where p.age == 50)) => [Ann] => store",
                "select name from P where (select p.name from io.mortar.jdo.model.Person p where p.age == 50).startsWith(name) => [Ann] => memory",
                "select name from P where (select p.age from io.mortar.jdo.model.Person p where p.name != 'Bob').contains(age) && age < 40 order by name => [Bob, Cid, Dan] => store",
                "select name from P where !(select p.height from io.mortar.jdo.model.Person p where p.height > 1.75).contains(height) order by name => [Ann, Cid, Dan] => store",
                "select name from P where !(select p.height from io.mortar.jdo.model.Person p where p.height > 1.75 && p != this).contains(height) order by name => [Ann, Bob, Cid, Dan] => memory",
                "select boss.address.number from P order by name => [null, 3, 3, null] => memory",
                "select sum(address.number), min(address.number) from P => [7, 3] => memory",
                "select name from P order by address.number, name => [Bob, Cid, Ann, Dan] => memory",
                "select name from P where address.number == null order by name => [Bob, Cid] => memory",
                "select sum(address.number) from P where address != null => 7 => store",
                "select name from P where address.number > 2 order by address.number => [Ann, Dan] => store",
                "select distinct count(this) from P group by age order by count(this) => [1, 2] => store",
                "select name from P where age > (select avg(p.age) from io.mortar.jdo.model.Person p where p.boss == this.boss) => [] => memory",
            })
    void a_result_is_the_same_in_the_store_and_in_memory(String text, String expected, String where) {
        STORE.run(manager -> {
            Query<?> query = manager.newQuery(text.replace(" P ", " io.mortar.jdo.model.Person ")
                    .replaceAll(" P$", " io.mortar.jdo.model.Person"));
            Queries.check(query, expected, Queries::text, where);
        });
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                // All objects of the class of a variable, if no collection has it.
                "f.friends.contains(this) && f.name == 'Bob' => Cid Dan",
                "boss.name == f.name && f.age == 50 => Bob Cid",
                "this != f && age == f.age => Bob Cid",
                "f == boss && f.age == 30 => Dan",
                "f == boss && friends.contains(g) && g.boss == f.boss => Cid",
                "f.name == 'Zoe' => ",
                "age > 40 || f.boss == this => Ann Bob",
                "!(f.age == age) && f.name == 'Bob' => Ann Dan",
                // The elements of a collection that another part of the filter names.
                "friends.contains(f) && f.age == 50 || f.name == 'Dan' => Bob Cid",
                "tags.isEmpty() || (friends.contains(f) && f.name.substring(0) == 'Dan') => Bob Cid",
                // Keys and values of maps.
                "scores.containsKey(k) && k.startsWith('g') => Bob",
                "scores.containsValue(v) && v > 4 => Bob",
                "scores.containsEntry(k, v) && v == 5 && k == 'go' => Bob",
                "scores.containsEntry(k, 5) && k == 'stop' => ",
                "!(scores.containsEntry(k, v) && v > 1) => Ann Cid Dan",
            })
    void a_variable_has_the_values_that_the_filter_allows(String filter, String expected) {
        STORE.run(manager -> {
            Query<Person> query = manager.newQuery(Person.class, filter);
            query.declareVariables("io.mortar.jdo.model.Person f; io.mortar.jdo.model.Person g; String k; Integer v");
            Queries.check(query, expected, QueryTest::names, "memory");
        });
    }

    @Test
    void a_variable_of_values_without_a_collection_is_refused() {
        STORE.run(manager -> {
            Query<?> query =
                    manager.newQuery("select from io.mortar.jdo.model.Person where s.length() > 3 variables String s");
            assertTrue(assertThrows(JDOException.class, query::execute)
                    .getMessage()
                    .contains("the filter contains s"));
        });
    }

    @Test
    void a_subquery_of_the_typed_api_is_evaluated() {
        STORE.run(manager -> {
            JDOQLTypedQuery<Person> query = manager.newJDOQLTypedQuery(Person.class);
            QPerson person = QPerson.candidate();
            JDOQLTypedSubquery<Person> all = query.subquery("p");
            query.filter(
                    person.age.gt(all.selectUnique(QPerson.candidate("p").age.avg())));
            query.range(0, 5);
            assertEquals("Ann", names(query.executeList()));
        });
    }

    @Test
    void a_subquery_can_have_a_collection_of_the_candidate() {
        STORE.run(manager -> {
            // Who is younger than the mean of the friends.
            Query<Person> younger = manager.newQuery(Person.class, "age < mean");
            Query<Person> friends = manager.newQuery(Person.class);
            friends.setResult("avg(this.age)");
            younger.addSubquery(friends, "double mean", "this.friends");
            assertEquals("Cid", names(younger.executeList()));
            younger.setCandidates(manager.newQuery(Person.class, "age < 50").executeList());
            assertEquals("Cid", names(younger.executeList()));

            Query<Person> withSameBoss = manager.newQuery(Person.class, "others > 0");
            Query<Person> ofBoss = manager.newQuery(Person.class, "this.boss == :boss");
            ofBoss.setResult("count(this)");
            withSameBoss.addSubquery(ofBoss, "long others", "this.friends", "this.boss");
            assertEquals("Bob", names(withSameBoss.executeList()));

            JDOQLTypedQuery<Person> typed = manager.newJDOQLTypedQuery(Person.class);
            JDOQLTypedSubquery<Person> sub = typed.subquery(QPerson.candidate().friends, Person.class, "q");
            typed.filter(sub.selectUnique((NumericExpression<Integer>)
                            QPerson.candidate("q").age.max())
                    .eq(30));
            assertEquals("Bob", names(typed.executeList()));
        });
    }

    @Test
    void a_collection_of_candidates_may_have_duplicates_and_objects_of_other_classes() {
        STORE.run(manager -> {
            Person ann = manager.newQuery(Person.class, "name == 'Ann'")
                    .executeList()
                    .get(0);
            Collection<Object> candidates = new ArrayList<>(Arrays.asList(ann, ann, null, "Ann", new Dog("Rex", 3)));
            for (String expected : List.of(
                    "this.name => [Ann, Ann]",
                    "distinct this.name => [Ann]",
                    "name, age => [[Ann, 50], [Ann, 50]]",
                    "count(this) => 2",
                    "count(distinct this) => 1")) {
                String[] parts = expected.split(" => ");
                Query<Person> query = manager.newQuery(Person.class);
                query.setCandidates((Collection<Person>) (Collection<?>) candidates);
                query.setResult(parts[0]);
                assertEquals(parts[1], Queries.text(query.execute()), parts[0]);
            }
        });
    }

    @Test
    void a_deleted_object_is_no_candidate() {
        STORE.run(manager -> {
            Person kept = new Person("Eva", 1);
            Person deleted = new Person("Fay", 2);
            manager.makePersistentAll(kept, deleted);
            manager.flush();
            manager.deletePersistent(deleted);
            for (String filter : List.of("", "age < 3")) {
                Query<Person> query = manager.newQuery(Person.class, filter);
                query.setCandidates(List.of(kept, deleted));
                assertEquals("Eva", names(query.executeList()));
            }
            manager.deletePersistent(kept);
        });
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                // The result does not have the variable: each candidate is there once, if some object satisfies the
                // filter.
                "select name from P where f.age > age variables P f order by name => [Bob, Cid, Dan]",
                "select count(this) from P where f.friends.contains(this) variables P f => 3",
                "select count(this) from P variables P f => 4",
                "select count(f) from P where f.friends.contains(this) variables P f => 3",
                "select count(f) from P variables P f => 16",
                "select this, f from P where f == this && age > 40 variables P f => 1",
                "select name, f.name from P where f != this && age > 40 variables P f order by f.name => [[Ann, Bob], [Ann, Cid], [Ann, Dan]]",
                "select name, f.name, g.name from P where age > 40 && f.age == 20 && g.age == 20 variables P f; P g => [[Ann, Dan, Dan]]",
                "select f.age, count(this) from P variables P f group by f.age order by f.age => [[20, 4], [30, 8], [50, 4]]",
            })
    void a_result_is_of_combinations_of_candidates_and_variables_that_it_has(String text, String expected) {
        STORE.run(manager -> {
            Query<?> query = manager.newQuery(text.replaceAll("\\bP\\b", "io.mortar.jdo.model.Person"));
            Object found = query.execute();
            assertEquals(
                    expected, text.startsWith("select this") ? "" + ((List<?>) found).size() : Queries.text(found));
        });
    }

    @Test
    void objects_are_found_by_their_identity() {
        STORE.run(manager -> {
            Object ann =
                    ((List<?>) manager.newQuery(Person.class, "name == 'Ann'").execute()).get(0);
            Query<Person> byId = manager.newQuery(Person.class, "JDOHelper.getObjectId(this) == :id");
            assertEquals("Ann", names((List<?>) byId.execute(manager.getObjectId(ann))));
            assertEquals(List.of(), Queries.inMemory(byId));
            Query<Person> others = manager.newQuery(Person.class, ":id != JDOHelper.getObjectId(boss)");
            assertEquals("Dan", names((List<?>) others.execute(manager.getObjectId(ann))));
            assertEquals("", names((List<?>) byId.execute("none")));
            Query<Person> byBoss = manager.newQuery(
                    Person.class, "javax.jdo.JDOHelper.getObjectId(boss) == JDOHelper.getObjectId(:b)");
            assertEquals("Bob Cid", names((List<?>) byBoss.execute(ann)));
            Query<?> ids = manager.newQuery(
                    "select JDOHelper.getObjectId(this) from io.mortar.jdo.model.Person where name == 'Ann'");
            assertEquals(List.of(manager.getObjectId(ann)), ids.execute());
        });
    }

    @Test
    void a_result_class_is_applied_to_candidates_and_objects_are_created() {
        STORE.run(manager -> {
            Query<Person> rows = manager.newQuery(Person.class, "age > 40");
            rows.setResultClass(Object[].class);
            assertEquals("Ann", ((Person) ((Object[]) ((List<?>) rows.execute()).get(0))[0]).getName());
            Query<?> nested = manager.newQuery(
                    "select new java.util.concurrent.atomic.AtomicReference("
                            + "new java.util.concurrent.atomic.AtomicReference(name)) from io.mortar.jdo.model.Person where age > 40");
            assertEquals(
                    "Ann",
                    ((AtomicReference<AtomicReference<?>>) ((List<?>) nested.execute()).get(0))
                            .get()
                            .get());
        });
    }

    @Test
    void a_result_knows_which_objects_it_contains() {
        STORE.run(manager -> {
            List<Person> all = (List<Person>) manager.newQuery("select from io.mortar.jdo.model.Person order by name")
                    .execute();
            List<Person> young =
                    (List<Person>) manager.newQuery(Person.class, "age == 20").execute();
            assertTrue(all.containsAll(young));
            assertEquals(3, all.indexOf(young.get(0)));
            assertEquals(3, all.lastIndexOf(young.get(0)));
            assertFalse(young.contains(all.get(0)));
        });
    }

    @Test
    void the_objects_of_a_result_can_be_serialized() {
        STORE.run(manager -> {
            Object result = manager.newQuery(Person.class, "name == 'Zoe'").execute();
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
                out.writeObject(result);
                assertEquals(
                        List.of(), new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject());
            } catch (IOException | ClassNotFoundException error) {
                throw new AssertionError(error);
            }
        });
    }

    @ParameterizedTest
    @CsvSource({"this.size", "size", "boss.size", "q.size"})
    void a_result_of_a_member_that_does_not_exist_is_refused(String result) {
        STORE.run(manager -> {
            Query<Person> query = manager.newQuery(Person.class, "age > 1000");
            query.declareVariables("io.mortar.jdo.model.Person q");
            query.setResult(result);
            assertTrue(assertThrows(JDOUserException.class, query::compile)
                    .getMessage()
                    .contains("size"));
        });
    }

    @Test
    void characters_are_compared_with_numbers() {
        STORE.run(manager -> {
            assertEquals(
                    4, ((List<?>) manager.newQuery(Person.class, "'A' == 65").execute()).size());
            assertEquals(
                    0, ((List<?>) manager.newQuery(Person.class, "'A' > 65").execute()).size());
        });
    }

    @Test
    void candidates_may_be_a_collection() {
        STORE.run(manager -> {
            List<Person> all = manager.newQuery(Person.class).executeList();
            Query<Person> none = manager.newQuery(Person.class, all.subList(0, 0), "age > 1");
            assertEquals(0, ((List<?>) none.execute()).size());
            List<Person> withoutAnn =
                    all.stream().filter(each -> !each.getName().equals("Ann")).toList();
            assertEquals("Bob Cid", names((List<?>)
                    manager.newQuery(Person.class, withoutAnn, "age > 25").execute()));
        });
    }

    @Test
    void a_bulk_update_uses_the_values_before_it() {
        STORE.run(manager -> {
            manager.newQuery(
                            "javax.jdo.query.JPQL",
                            "UPDATE io.mortar.jdo.model.Person p SET p.age = p.boss.age WHERE p.boss IS NOT NULL")
                    .execute();
            Query<?> ages = manager.newQuery("select age from io.mortar.jdo.model.Person order by name");
            assertEquals(List.of(50, 50, 50, 30), ages.execute());
            manager.currentTransaction().rollback();
            manager.currentTransaction().begin();
        });
    }

    @Test
    void a_query_sees_the_changes_of_its_transaction() {
        STORE.run(manager -> {
            manager.makePersistent(new Person("Eve", 77));
            Query<Person> query = manager.newQuery(Person.class, "age == 77");
            assertEquals("Eve", names((List<?>) query.execute()));
            manager.currentTransaction().setRollbackOnly();
            manager.currentTransaction().rollback();
            manager.currentTransaction().begin();
        });
    }
}
