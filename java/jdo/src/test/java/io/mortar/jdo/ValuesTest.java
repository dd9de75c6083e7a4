package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.mortar.jdo.model.AllTypes;
import io.mortar.jdo.model.Form;
import io.mortar.jdo.model.Harbour;
import io.mortar.jdo.model.Position;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.Period;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.Arrays;
import java.util.Calendar;
import java.util.Currency;
import java.util.Date;
import java.util.GregorianCalendar;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TimeZone;
import java.util.UUID;
import javax.jdo.JDOException;
import javax.jdo.JDOHelper;
import javax.jdo.PersistenceManager;
import javax.jdo.Query;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;

/** JDO 3.2, chapter 6: the types of members. */
class ValuesTest {
    private static final Store STORE = Store.inMemory();

    @AfterAll
    static void close() {
        STORE.close();
    }

    private static AllTypes full() throws Exception {
        AllTypes all = new AllTypes();
        all.aBoolean = true;
        all.aByte = -1;
        all.aShort = Short.MIN_VALUE;
        all.anInt = Integer.MAX_VALUE;
        all.aLong = Long.MIN_VALUE;
        all.aFloat = 0.1f;
        all.aDouble = Math.PI;
        all.aChar = 'ß';
        all.boxedBoolean = false;
        all.boxedByte = 1;
        all.boxedShort = 2;
        all.boxedInt = 3;
        all.boxedLong = 4L;
        all.boxedFloat = 5.5f;
        all.boxedDouble = -0.25;
        all.boxedChar = '€';
        all.text = "né \u0001 \uD83D\uDE00";
        all.decimal = new BigDecimal("123456789012345678901234567890.1200");
        all.integer = BigInteger.TWO.pow(200).negate();
        all.color = AllTypes.Color.GREEN;
        all.ordinal = AllTypes.Color.BLUE;
        all.uuid = new UUID(1, 2);
        all.url = URI.create("http://example.org/x?y").toURL();
        all.uri = URI.create("urn:x:y");
        all.locale = Locale.GERMANY;
        all.currency = Currency.getInstance("EUR");
        all.date = new Date(1_234_567_890_123L);
        all.calendar = new GregorianCalendar(2026, 6, 1);
        all.zonedCalendar = new GregorianCalendar(TimeZone.getTimeZone("Asia/Tokyo"));
        all.zonedCalendar.setTimeInMillis(1_234_567_890_123L);
        all.sqlDate = java.sql.Date.valueOf("2026-07-01");
        all.sqlTimestamp = java.sql.Timestamp.valueOf("2026-07-01 12:30:00.123456789");
        all.instant = Instant.parse("2026-07-01T12:30:00.123456789Z");
        all.localDate = LocalDate.of(-4000, 2, 29);
        all.localTime = LocalTime.of(23, 59, 59, 1);
        all.localDateTime = LocalDateTime.of(2026, 7, 1, 12, 30, 0, 5);
        all.zoned = ZonedDateTime.of(all.localDateTime, ZoneId.of("Europe/Berlin"));
        all.duration = Duration.ofSeconds(90, 5);
        all.period = Period.of(1, 2, 3);
        all.bytes = new byte[] {1, 0, -1};
        all.chars = new char[] {'a', 'b'};
        all.ints = new int[] {3, 1, 2};
        all.doubles = new double[] {0.5, Double.NaN};
        all.strings = new String[] {"x", null, "y"};
        all.optionalText = Optional.of("here");
        all.optionalNumber = Optional.of(7);
        all.point = new AllTypes.Point(1, 2);
        return all;
    }

    @Test
    void a_value_of_a_result_is_a_copy() {
        AllTypes all = new AllTypes();
        all.text = "copied";
        all.date = new Date(1_000);
        all.calendar = new GregorianCalendar(2026, 6, 1);
        all.bytes = new byte[] {1};
        Object id = STORE.call(manager -> manager.getObjectId(manager.makePersistent(all)));
        STORE.run(manager -> {
            AllTypes found = (AllTypes) manager.getObjectById(id);
            for (boolean inMemory : new boolean[] {false, true}) {
                Query<?> query = manager.newQuery("select date, calendar, bytes, max(date)"
                        + " from io.mortar.jdo.model.AllTypes where text == 'copied' group by date, calendar, bytes");
                Queries.evaluatedInMemory(query, inMemory);
                Object[] row = (Object[]) ((List<?>) query.execute()).get(0);
                assertEquals(
                        List.of(Date.class, GregorianCalendar.class, byte[].class, Date.class),
                        Arrays.stream(row).map(Object::getClass).toList());
                ((Date) row[0]).setTime(0);
                ((GregorianCalendar) row[1]).clear();
                ((byte[]) row[2])[0] = 9;
                assertFalse(JDOHelper.isDirty(found));
            }
            assertEquals(
                    List.of(),
                    manager.newQuery("select from io.mortar.jdo.model.AllTypes where text == 'copied' && bytes != :b")
                            .execute(new byte[] {1}));
            manager.deletePersistent(found);
        });
    }

    @Test
    void every_value_returns_as_it_was_stored() throws Exception {
        AllTypes expected = full();
        AllTypes stored = full();
        Object id = STORE.call(manager -> manager.getObjectId(manager.makePersistent(stored)));
        try (PersistenceManager manager = STORE.manager()) {
            AllTypes found = (AllTypes) manager.getObjectById(id);
            for (var field : AllTypes.class.getFields()) {
                if (field.getName().startsWith("dn")) {
                    continue;
                }
                manager.retrieve(found);
                Object is = read(found, field.getName());
                Object should = field.get(expected);
                if (should.getClass().isArray()) {
                    assertArrayEquals(List.of(should).toArray(), List.of(is).toArray(), field.getName());
                } else if (should instanceof Calendar calendar) {
                    assertEquals(calendar.getTimeInMillis(), ((Calendar) is).getTimeInMillis());
                } else {
                    assertEquals(should, is, field.getName());
                }
            }
        }
    }

    /** Reads a member as compiled code does, whose access is enhanced. */
    private static Object read(AllTypes object, String name) throws Exception {
        return AllTypes.class.getField(name).get(object);
    }

    @Test
    void null_values_return_as_null() {
        Object id = STORE.call(manager -> manager.getObjectId(manager.makePersistent(new AllTypes())));
        STORE.run(manager -> {
            AllTypes found = (AllTypes) manager.getObjectById(id);
            manager.retrieve(found);
            assertNull(found.boxedInt);
            assertNull(found.text);
            assertNull(found.decimal);
            assertNull(found.bytes);
            assertNull(found.color);
            assertNull(found.zoned);
            assertNull(found.zonedCalendar);
            assertEquals(0, found.anInt);
            assertEquals(0.0, found.aDouble);
            assertEquals('\0', found.aChar);
            assertEquals(Optional.empty(), found.optionalText);
        });
    }

    @Test
    void values_are_compared_by_the_store() throws Exception {
        AllTypes all = full();
        STORE.run(manager -> manager.makePersistent(all));
        for (String filter : List.of(
                "text.startsWith('né')",
                "decimal > 5 && integer < 0",
                "color == :p1 && ordinal == :p2",
                "color == 'GREEN' && ordinal == 'BLUE'",
                "localDate < :p3",
                "instant == :p4",
                "uuid == :p5",
                "aChar == 'ß'",
                "boxedFloat == 5.5",
                "aDouble > 3.14 && aDouble < 3.15",
                "optionalNumber.get() == 7",
                "date <= :p6",
                "zoned == :p7",
                "aBoolean")) {
            STORE.run(manager -> {
                var query = manager.newQuery(AllTypes.class, filter);
                Map<String, Object> parameters = new HashMap<>();
                if (filter.contains(":p1")) {
                    parameters.putAll(Map.of("p1", AllTypes.Color.GREEN, "p2", AllTypes.Color.BLUE));
                }
                put(filter, parameters, "p3", LocalDate.EPOCH);
                put(filter, parameters, "p4", Instant.parse("2026-07-01T12:30:00.123456789Z"));
                put(filter, parameters, "p5", new UUID(1, 2));
                put(filter, parameters, "p6", new Date());
                put(
                        filter,
                        parameters,
                        "p7",
                        ZonedDateTime.of(LocalDateTime.of(2026, 7, 1, 12, 30, 0, 5), ZoneId.of("Europe/Berlin")));
                assertEquals(1, ((List<?>) query.executeWithMap(parameters)).size(), filter);
                assertEquals(List.of(), Queries.inMemory(query), filter);
            });
        }
    }

    @Test
    void a_calendar_of_two_columns_keeps_its_time_zone() throws Exception {
        AllTypes all = full();
        Object id = STORE.call(manager -> manager.getObjectId(manager.makePersistent(all)));
        STORE.run(manager -> {
            AllTypes found = (AllTypes) manager.getObjectById(id);
            manager.retrieve(found);
            assertEquals("Asia/Tokyo", found.zonedCalendar.getTimeZone().getID());
        });
    }

    @Test
    void a_query_gives_an_absent_value_another_one() throws Exception {
        AllTypes all = full();
        all.anInt = 4711;
        all.optionalText = Optional.empty();
        STORE.run(manager -> manager.makePersistent(all));
        STORE.run(manager -> {
            var query = manager.newQuery(AllTypes.class, "anInt == 4711");
            query.setResult("optionalText.orElse('none')");
            assertEquals("none", query.executeResultUnique());
        });
    }

    @Test
    void optional_numbers_have_a_sum() throws Exception {
        AllTypes all = full();
        all.anInt = 815;
        all.optionalNumber = Optional.of(7);
        STORE.run(manager -> manager.makePersistent(all));
        STORE.run(manager -> {
            var query = manager.newQuery(AllTypes.class, "anInt == 815");
            query.setResult("sum(optionalNumber)");
            assertEquals(7L, query.executeResultUnique());
        });
    }

    @Test
    void a_converted_value_is_compared_with_values_of_both_forms() {
        STORE.run(manager ->
                manager.makePersistentAll(new Harbour(new Position(54, 10)), new Harbour(new Position(53, 8))));
        for (Object parameter : List.of(new Position(54, 10), "54/10")) {
            STORE.run(manager -> {
                var query = manager.newQuery(Harbour.class, "position == wanted");
                query.declareParameters(parameter.getClass().getName() + " wanted");
                List<?> found = (List<?>) query.execute(parameter);
                assertEquals(1, found.size());
                assertEquals(54, ((Harbour) found.get(0)).getPosition().latitude());
                assertEquals(List.of(), Queries.inMemory(query));
            });
        }
    }

    @Test
    void an_enumeration_is_compared_with_its_name() {
        STORE.run(manager -> {
            manager.deletePersistentAll(manager.newQuery(AllTypes.class).executeList());
            AllTypes green = new AllTypes();
            green.color = AllTypes.Color.GREEN;
            green.ordinal = AllTypes.Color.BLUE;
            manager.makePersistent(green);
        });
        for (String filter : List.of(
                "color == 'GREEN' && ordinal == 'BLUE'", "'GREEN' == color && ordinal != 'GREEN'", "color != 'BLUE'")) {
            STORE.run(manager -> assertEquals(
                    1, ((List<?>) manager.newQuery(AllTypes.class, filter).execute()).size(), filter));
        }
        STORE.run(manager ->
                manager.deletePersistentAll(manager.newQuery(AllTypes.class).executeList()));
    }

    private static void put(String filter, Map<String, Object> parameters, String name, Object value) {
        if (filter.contains(':' + name)) {
            parameters.put(name, value);
        }
    }

    /** JDO 3.2, section 18.14: the default of the column is stored. */
    @Test
    void null_is_replaced_by_a_default_or_refused() {
        Object id = STORE.call(manager -> manager.getObjectId(manager.makePersistent(new Form("A"))));
        STORE.run(manager -> {
            Form form = (Form) manager.getObjectById(id);
            assertEquals("draft", form.getState());
            assertEquals(7, form.getDays());
            form.setState("sent");
        });
        STORE.run(manager -> {
            Form form = (Form) manager.getObjectById(id);
            assertEquals("sent", form.getState());
            form.setState(null);
        });
        STORE.run(manager -> assertEquals(
                1,
                manager.newQuery(Form.class, "state == 'draft'").executeList().size()));
        assertThrows(JDOException.class, () -> STORE.run(manager -> manager.makePersistent(new Form(null))));
    }
}
