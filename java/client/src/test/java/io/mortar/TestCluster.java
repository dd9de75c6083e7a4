package io.mortar;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/** A cluster in memory with a class of people. */
final class TestCluster implements AutoCloseable {
    final Client client;
    final int person;
    final int name;
    final int age;
    final int boss;

    TestCluster() {
        this(Client.inMemory(ConnectOptions.builder().snapshots(true).build()));
    }

    TestCluster(Client client) {
        this.client = client;
        client.define(ClassDefinition.builder("Person")
                .required("name", FieldType.STRING)
                .required("age", FieldType.INT64)
                .optional("boss", FieldType.reference("Person"))
                .build());
        Schema schema = client.schema();
        person = schema.classNumber("Person");
        Map<String, SchemaField> fields = schema.fieldsOf("Person");
        name = fields.get("name").number();
        age = fields.get("age").number();
        boss = fields.get("boss").number();
    }

    Record person(String personName, long years) {
        return Record.builder().set(name, personName).set(age, years).build();
    }

    /** Creates a person in a transaction of its own. Returns the permanent identifier. */
    Oid create(String personName, long years) {
        try (Transaction t = client.begin()) {
            Oid oid = t.create(person, person(personName, years));
            t.commit().orThrow();
            return t.realOid(oid).orElseThrow();
        }
    }

    /** Creates a blob in a transaction of its own. Returns the permanent identifier. */
    Oid createBlob(byte[] bytes) {
        try (Transaction t = client.begin()) {
            Oid oid = t.createBlob(bytes);
            t.commit().orThrow();
            return t.realOid(oid).orElseThrow();
        }
    }

    String nameOf(Oid oid) {
        return client.readLatest(oid).orElseThrow().record().get(name, String.class);
    }

    long ageOf(Oid oid) {
        return client.readLatest(oid).orElseThrow().record().get(age, Long.class);
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public void close() {
        client.close();
    }
}
