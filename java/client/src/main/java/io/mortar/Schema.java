package io.mortar;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The classes and indexes of a space at one time. It is immutable; {@link Client#schema} returns the current one.
 *
 * <p>It may be old: fields keep their numbers for ever, and a record can be read through any version of its class.
 */
public final class Schema {
    private final List<SchemaClass> classes;
    private final List<SchemaIndex> indexes;
    private final Map<Integer, SchemaClass> byNumber = new HashMap<>();
    private final Map<String, SchemaClass> byName = new HashMap<>();

    private Schema(List<SchemaClass> classes, List<SchemaIndex> indexes) {
        this.classes = classes;
        this.indexes = indexes;
        for (SchemaClass each : classes) {
            byNumber.put(each.number(), each);
            byName.put(each.name(), each);
        }
    }

    static Schema read(MessageReader in) {
        return new Schema(in.list(SchemaClass::read), in.list(SchemaIndex::read));
    }

    /**
     * Returns the classes.
     *
     * @return the classes, unmodifiable
     */
    public List<SchemaClass> classes() {
        return classes;
    }

    /**
     * Returns the indexes.
     *
     * @return the indexes, unmodifiable
     */
    public List<SchemaIndex> indexes() {
        return indexes;
    }

    /**
     * Finds a class by its name.
     *
     * @param name the name
     * @return the class, if the space has it
     */
    public Optional<SchemaClass> classNamed(String name) {
        return Optional.ofNullable(byName.get(name));
    }

    /**
     * Finds a class by its number.
     *
     * @param number the number, as in {@link Oid#classNumber}
     * @return the class, if the space has it
     */
    public Optional<SchemaClass> classNumbered(int number) {
        return Optional.ofNullable(byNumber.get(number));
    }

    /**
     * Finds an index by its name.
     *
     * @param name the name
     * @return the index, if the space has it
     */
    public Optional<SchemaIndex> indexNamed(String name) {
        return indexes.stream().filter(index -> index.name().equals(name)).findFirst();
    }

    /**
     * Returns the fields of the objects of a class: those that it inherits, from the topmost class down, then its own.
     *
     * @param className the name of the class
     * @return the fields by name
     * @throws NotFoundException if there is no such class
     */
    public Map<String, SchemaField> fieldsOf(String className) {
        Map<String, SchemaField> fields = new LinkedHashMap<>();
        List<SchemaClass> lineage = lineage(require(className));
        for (int index = lineage.size() - 1; index >= 0; index--) {
            lineage.get(index).fields().forEach(field -> fields.put(field.name(), field));
        }
        return fields;
    }

    /**
     * Returns the number of a field of a class, its own or inherited.
     *
     * @param className the name of the class
     * @param fieldName the name of the field
     * @return the number, for {@link Record#get(int)}
     * @throws NotFoundException if there is no such class or field
     */
    public int fieldNumber(String className, String fieldName) {
        for (SchemaClass each : lineage(require(className))) {
            Optional<SchemaField> field = each.field(fieldName);
            if (field.isPresent()) {
                return field.get().number();
            }
        }
        throw new NotFoundException("class " + className + " has no field " + fieldName + "; it has "
                + String.join(", ", fieldsOf(className).keySet()));
    }

    /**
     * Returns the number of a class.
     *
     * @param className the name of the class
     * @return the number, for {@link Transaction#create(int, Record)}
     * @throws NotFoundException if there is no such class
     */
    public int classNumber(String className) {
        return require(className).number();
    }

    /**
     * Returns whether a class is another one or extends it.
     *
     * @param number the number of the class
     * @param ancestor the number of the other class
     * @return whether objects of the class are objects of the other one
     */
    public boolean isSubclass(int number, int ancestor) {
        return classNumbered(number).stream()
                .flatMap(known -> lineage(known).stream())
                .anyMatch(each -> each.number() == ancestor);
    }

    private SchemaClass require(String className) {
        return classNamed(className).orElseThrow(() -> new NotFoundException("the space has no class " + className));
    }

    /** A class and its ancestors, the topmost last. */
    private List<SchemaClass> lineage(SchemaClass from) {
        List<SchemaClass> lineage = new ArrayList<>();
        Optional<SchemaClass> next = Optional.of(from);
        // The bound stops at a cycle, which a correct server never sends.
        while (next.isPresent() && lineage.size() < classes.size()) {
            lineage.add(next.get());
            next = next.get().parent().isPresent()
                    ? classNumbered(next.get().parent().getAsInt())
                    : Optional.empty();
        }
        return lineage;
    }
}
