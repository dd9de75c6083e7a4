package io.mortar.jdo;

import io.mortar.AlreadyExistsException;
import io.mortar.ClassDefinition;
import io.mortar.FieldDefinition;
import io.mortar.FieldType;
import io.mortar.IndexDefinition;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.Schema;
import io.mortar.StoredObject;
import io.mortar.Transaction;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.function.LongSupplier;
import java.util.stream.LongStream;
import org.datanucleus.exceptions.NucleusDataStoreException;
import org.datanucleus.store.StoreManager;
import org.datanucleus.store.valuegenerator.AbstractGenerator;
import org.datanucleus.store.valuegenerator.ValueGenerationBlock;
import org.datanucleus.store.valuegenerator.ValueGenerator;

/**
 * Generates numbers for the strategies increment, identity and sequence. Each counter is an object of the class
 * {@code mortar.jdo.Counter} that says which number is next. Numbers are taken in blocks, each in a transaction of its
 * own, so a number that an aborted transaction has used is not used again. {@link BlockSize} says how long the blocks
 * are.
 */
public final class CounterGenerator extends AbstractGenerator<Long> {
    private static final String CLASS = "mortar.jdo.Counter";
    private static final String NAME = "name";
    private static final String NEXT = "next";
    private static final ClassDefinition DEFINITION = ClassDefinition.builder(CLASS)
            .field(FieldDefinition.required(NAME, FieldType.STRING))
            .field(FieldDefinition.required(NEXT, FieldType.INT64))
            .build();
    private static final IndexDefinition INDEX = new IndexDefinition(CLASS, CLASS + ".name", List.of(NAME), true);
    private static final int BLOCK = 32;
    private static final int ATTEMPTS = 8;

    private final String counter;
    private final BlockSize blockSize;
    /** The object of the counter; null until it is known. */
    private Oid object;
    /** Known after the first block. */
    private Layout layout;

    /** The numbers of the class of counters and of its fields. */
    private record Layout(int classNumber, int name, int next) {
        static Layout in(Schema schema) {
            return new Layout(
                    schema.classNumber(CLASS), schema.fieldNumber(CLASS, NAME), schema.fieldNumber(CLASS, NEXT));
        }
    }

    /** What a transaction has taken. */
    private record Taken(long first, Transaction transaction, Oid object) {}

    public CounterGenerator(StoreManager store, String name, Properties properties) {
        this(store, name, properties, System::nanoTime);
    }

    CounterGenerator(StoreManager store, String name, Properties properties, LongSupplier nanoTime) {
        super(store, name);
        String sequence = properties.getProperty(ValueGenerator.PROPERTY_SEQUENCE_NAME);
        counter = sequence != null ? sequence : properties.getProperty(ValueGenerator.PROPERTY_FIELD_NAME, name);
        allocationSize = Integer.parseInt(
                properties.getProperty(ValueGenerator.PROPERTY_KEY_CACHE_SIZE, sequence == null ? "" + BLOCK : "1"));
        initialValue = Integer.parseInt(properties.getProperty(ValueGenerator.PROPERTY_KEY_INITIAL_VALUE, "1"));
        blockSize = new BlockSize(allocationSize, nanoTime);
    }

    /** The block of the next numbers, whose size follows the demand. */
    @Override
    protected ValueGenerationBlock<Long> reserveBlock() {
        return reserveBlock(blockSize.next());
    }

    /** A block of as many numbers as are asked for. */
    @Override
    protected ValueGenerationBlock<Long> reserveBlock(long size) {
        if (size < 1) {
            return null;
        }
        try {
            long first = take(size);
            return new ValueGenerationBlock<>(
                    LongStream.range(first, first + size).boxed().toList());
        } catch (MortarException error) {
            throw new NucleusDataStoreException(
                    "the counter " + counter + " gives no numbers: " + error.getMessage(), error);
        }
    }

    private long take(long size) {
        MortarStoreManager store = (MortarStoreManager) storeMgr;
        if (layout == null) {
            layout = Layout.in(store.schema().with(DEFINITION, INDEX));
        }
        for (int attempt = 1; ; attempt++) {
            try {
                Taken taken = store.client().transact(transaction -> take(transaction, size));
                object = taken.transaction().realOid(taken.object()).orElse(null);
                return taken.first();
            } catch (AlreadyExistsException raced) {
                // Another program has created the counter in the same moment.
                if (attempt == ATTEMPTS) {
                    throw raced;
                }
            }
        }
    }

    private Taken take(Transaction transaction, long size) {
        Optional<Record> known = object == null
                ? Optional.empty()
                : transaction.getForUpdate(object).map(StoredObject::record);
        if (known.isPresent() && counter.equals(known.get().get(layout.name(), String.class))) {
            return take(transaction, object, known.get(), size);
        }
        try (Rows rows = transaction.query("from `" + CLASS + "` where name == :name", Map.of("name", counter))) {
            if (rows.hasNext()) {
                Row row = rows.next();
                return take(transaction, row.oid(), row.record(), size);
            }
            Record created = Record.builder()
                    .set(layout.name(), counter)
                    .set(layout.next(), initialValue + size)
                    .build();
            return new Taken(initialValue, transaction, transaction.create(layout.classNumber(), created));
        }
    }

    private Taken take(Transaction transaction, Oid object, Record record, long size) {
        long first = record.get(layout.next(), Long.class);
        transaction.put(
                object, record.toBuilder().set(layout.next(), first + size).build());
        return new Taken(first, transaction, object);
    }
}
