package io.mortar.jdo;

import io.mortar.AlreadyExistsException;
import io.mortar.ClassDefinition;
import io.mortar.Client;
import io.mortar.ConflictException;
import io.mortar.FieldDefinition;
import io.mortar.FieldType;
import io.mortar.IndexDefinition;
import io.mortar.MortarException;
import io.mortar.Record;
import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.Schema;
import io.mortar.Transaction;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.store.StoreManager;
import org.datanucleus.store.valuegenerator.AbstractGenerator;
import org.datanucleus.store.valuegenerator.ValueGenerationBlock;
import org.datanucleus.store.valuegenerator.ValueGenerator;

/**
 * Generates numbers for the strategies increment, identity and sequence. Each counter is an object of the class
 * {@code mortar.jdo.Counter} that says which number is next. Numbers are taken in blocks, each in a transaction of its own, so
 * a number that an aborted transaction has used is not used again.
 */
public final class CounterGenerator extends AbstractGenerator<Long> {
    private static final String CLASS = "mortar.jdo.Counter";
    private static final String NAME = "name";
    private static final String NEXT = "next";
    private static final int BLOCK = 32;
    private static final int ATTEMPTS = 8;

    private final String counter;

    public CounterGenerator(StoreManager store, String name, Properties properties) {
        super(store, name);
        String sequence = properties.getProperty(ValueGenerator.PROPERTY_SEQUENCE_NAME);
        counter = sequence != null ? sequence : properties.getProperty(ValueGenerator.PROPERTY_FIELD_NAME, name);
        allocationSize = Integer.parseInt(
                properties.getProperty(ValueGenerator.PROPERTY_KEY_CACHE_SIZE, sequence == null ? "" + BLOCK : "1"));
        initialValue = Integer.parseInt(properties.getProperty(ValueGenerator.PROPERTY_KEY_INITIAL_VALUE, "1"));
    }

    @Override
    protected ValueGenerationBlock<Long> reserveBlock(long size) {
        if (size < 1) {
            return null;
        }
        Client client = ((MortarStoreManager) storeMgr).client();
        try {
            long first = take(client, size);
            List<Long> numbers = new ArrayList<>();
            for (long number = first; number < first + size; number++) {
                numbers.add(number);
            }
            return new ValueGenerationBlock<>(numbers);
        } catch (MortarException error) {
            throw new NucleusDataStoreException("the counter " + counter + " gives no numbers: " + error.getMessage(), error);
        }
    }

    private long take(Client client, long size) {
        Schema schema = schema(client);
        int classNumber = schema.classNumber(CLASS);
        int name = schema.fieldNumber(CLASS, NAME);
        int next = schema.fieldNumber(CLASS, NEXT);
        for (int attempt = 1; ; attempt++) {
            try {
                return client.transact(transaction -> take(transaction, classNumber, name, next, size));
            } catch (AlreadyExistsException raced) {
                // Another program has created the counter in the same moment.
                if (attempt == ATTEMPTS) {
                    throw raced;
                }
            }
        }
    }

    private long take(Transaction transaction, int classNumber, int name, int next, long size) {
        try (Rows rows = transaction.query("from `" + CLASS + "` where name == :name", Map.of("name", counter))) {
            if (!rows.hasNext()) {
                transaction.create(
                        classNumber, Record.builder().set(name, counter).set(next, initialValue + size).build());
                return initialValue;
            }
            Row row = rows.next();
            long first = row.record().get(next, Long.class);
            transaction.put(row.oid(), row.record().toBuilder().set(next, first + size).build());
            return first;
        }
    }

    private static Schema schema(Client client) {
        Schema schema = client.schema();
        if (schema.classNamed(CLASS).isPresent()) {
            return schema;
        }
        try {
            client.define(ClassDefinition.builder(CLASS)
                    .field(FieldDefinition.required(NAME, FieldType.STRING))
                    .field(FieldDefinition.required(NEXT, FieldType.INT64))
                    .build());
            client.createIndex(new IndexDefinition(CLASS, CLASS + ".name", List.of(NAME), true));
        } catch (AlreadyExistsException | ConflictException raced) {
            // Another program has created the class in the same moment.
        }
        return client.schema();
    }
}
