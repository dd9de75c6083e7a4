package io.mortar;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;

/**
 * The type of a field. Whether a field can be null is a property of the field; elements of lists, sets and maps can
 * always be null. {@link Record} lists the Java types of the values.
 *
 * <p>The text form is that of commands and messages: {@code int64}, {@code ref<Person>}, {@code map<string,
 * list<date>>}.
 */
public final class FieldType {
    /** What a type is, apart from the classes of references and the types of elements. */
    public enum Kind {
        /** A Boolean value. */
        BOOL(1, "bool"),
        /** An integer of 64 bits. */
        INT64(2, "int64"),
        /** A floating-point number of 64 bits. */
        FLOAT64(3, "float64"),
        /** A decimal number of any size. */
        DECIMAL(4, "decimal"),
        /** Text. */
        STRING(5, "string"),
        /** Bytes. */
        BYTES(6, "bytes"),
        /** A day. */
        DATE(7, "date"),
        /** A point in time with nanosecond precision. */
        TIMESTAMP(8, "timestamp"),
        /** A reference to an object. */
        REFERENCE(9, "ref"),
        /** An ordered list. */
        LIST(10, "list"),
        /** A set. */
        SET(11, "set"),
        /** A map. */
        MAP(12, "map");

        private final int code;
        private final String word;

        Kind(int code, String word) {
            this.code = code;
            this.word = word;
        }

        private static Kind ofCode(int code) {
            for (Kind kind : values()) {
                if (kind.code == code) {
                    return kind;
                }
            }
            throw MessageReader.malformed("a type is " + code);
        }
    }

    /** A Boolean value: {@link Boolean}. */
    public static final FieldType BOOL = new FieldType(Kind.BOOL, null, null, null);
    /** An integer of 64 bits: {@link Long}. */
    public static final FieldType INT64 = new FieldType(Kind.INT64, null, null, null);
    /** A floating-point number of 64 bits: {@link Double}. */
    public static final FieldType FLOAT64 = new FieldType(Kind.FLOAT64, null, null, null);
    /** A decimal number of any size: {@link BigDecimal}. */
    public static final FieldType DECIMAL = new FieldType(Kind.DECIMAL, null, null, null);
    /** Text: {@link String}. */
    public static final FieldType STRING = new FieldType(Kind.STRING, null, null, null);
    /** Bytes: {@code byte[]}. */
    public static final FieldType BYTES = new FieldType(Kind.BYTES, null, null, null);
    /** A day: {@link java.time.LocalDate}. */
    public static final FieldType DATE = new FieldType(Kind.DATE, null, null, null);
    /** A point in time: {@link java.time.Instant}. */
    public static final FieldType TIMESTAMP = new FieldType(Kind.TIMESTAMP, null, null, null);
    /** A reference to any object of the space: {@link Oid}. */
    public static final FieldType REFERENCE = new FieldType(Kind.REFERENCE, null, null, null);

    private final Kind kind;
    private final String className;
    private final FieldType key;
    private final FieldType element;

    private FieldType(Kind kind, String className, FieldType key, FieldType element) {
        this.kind = kind;
        this.className = className;
        this.key = key;
        this.element = element;
    }

    /**
     * Returns the type of references to objects of a class and of its subclasses, in the same space.
     *
     * @param className the name of the class
     * @return the type
     */
    public static FieldType reference(String className) {
        return new FieldType(Kind.REFERENCE, Objects.requireNonNull(className), null, null);
    }

    /**
     * Returns the type of lists.
     *
     * @param element the type of the elements
     * @return the type
     */
    public static FieldType list(FieldType element) {
        return new FieldType(Kind.LIST, null, null, Objects.requireNonNull(element));
    }

    /**
     * Returns the type of sets.
     *
     * @param element the type of the members
     * @return the type
     */
    public static FieldType set(FieldType element) {
        return new FieldType(Kind.SET, null, null, Objects.requireNonNull(element));
    }

    /**
     * Returns the type of maps.
     *
     * @param key the type of the keys
     * @param value the type of the values
     * @return the type
     */
    public static FieldType map(FieldType key, FieldType value) {
        return new FieldType(Kind.MAP, null, Objects.requireNonNull(key), Objects.requireNonNull(value));
    }

    /**
     * Returns what the type is.
     *
     * @return the kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * Returns the class of a reference.
     *
     * @return the name of the class; empty for a reference to any object, and for other types
     */
    public Optional<String> className() {
        return Optional.ofNullable(className);
    }

    /**
     * Returns the type of the elements of a list, of the members of a set, or of the values of a map.
     *
     * @return the type; empty for other types
     */
    public Optional<FieldType> element() {
        return Optional.ofNullable(element);
    }

    /**
     * Returns the type of the keys of a map.
     *
     * @return the type; empty for other types
     */
    public Optional<FieldType> key() {
        return Optional.ofNullable(key);
    }

    // ------------------------------------------------------------------------------------------ values

    /**
     * Converts a value that was stored when the field had another type. Numbers become numbers of this type, also
     * within lists, sets and maps; sets become lists. A value without an equal in this type is returned unchanged, but
     * an integer or a decimal becomes the nearest floating-point number.
     */
    Object convert(Object value) {
        return switch (kind) {
            case FLOAT64 ->
                value instanceof Long || value instanceof BigDecimal ? ((Number) value).doubleValue() : value;
            case DECIMAL -> toDecimal(value);
            case LIST -> value instanceof List<?> || value instanceof Set<?> ? convertList((Iterable<?>) value) : value;
            case SET -> value instanceof Set<?> set ? convertSet(set) : value;
            case MAP -> value instanceof Map<?, ?> map ? convertMap(map) : value;
            default -> value;
        };
    }

    private static Object toDecimal(Object value) {
        if (value instanceof Long number) {
            return BigDecimal.valueOf(number);
        }
        return value instanceof Double number && Double.isFinite(number) ? new BigDecimal(number) : value;
    }

    private List<Object> convertList(Iterable<?> elements) {
        List<Object> converted = new ArrayList<>();
        elements.forEach(value -> converted.add(element.convert(value)));
        return Collections.unmodifiableList(converted);
    }

    private Set<Object> convertSet(Set<?> members) {
        Set<Object> converted = new LinkedHashSet<>();
        members.forEach(value -> converted.add(element.convert(value)));
        return Collections.unmodifiableSet(converted);
    }

    private Map<Object, Object> convertMap(Map<?, ?> entries) {
        Map<Object, Object> converted = new LinkedHashMap<>();
        entries.forEach((name, value) -> converted.put(key.convert(name), element.convert(value)));
        return Collections.unmodifiableMap(converted);
    }

    // ------------------------------------------------------------------------------------------ text

    /**
     * Parses the text form.
     *
     * @param text such as {@code list<int64>}
     * @return the type
     * @throws InvalidRequestException if the text is not a type
     */
    public static FieldType parse(String text) {
        FieldType type = parse(text.trim(), Limits.NESTING);
        if (type == null) {
            String shown = text.length() > 100 ? text.substring(0, 100) : text;
            throw new InvalidRequestException(
                    '"' + shown + "\" is not a field type; the types are bool, int64, float64, decimal, string,"
                            + " bytes, date, timestamp, ref, ref<CLASS>, list<TYPE>, set<TYPE> and map<TYPE, TYPE>");
        }
        return type;
    }

    /** The type with this text; null if there is none. */
    private static FieldType parse(String text, int levels) {
        for (Kind kind : Kind.values()) {
            if (kind.code <= Kind.REFERENCE.code && kind.word.equals(text)) {
                return new FieldType(kind, null, null, null);
            }
            String inner = inner(text, kind.word);
            if (inner != null && kind.code >= Kind.REFERENCE.code) {
                return kind == Kind.REFERENCE
                        ? parseReference(inner)
                        : levels == 0 ? null : parseNested(kind, inner, levels - 1);
            }
        }
        return null;
    }

    /** The text between the angle brackets behind a word; null if the text is not of this form. */
    private static String inner(String text, String word) {
        if (!text.startsWith(word) || !text.endsWith(">")) {
            return null;
        }
        String rest = text.substring(word.length()).trim();
        return rest.startsWith("<") ? rest.substring(1, rest.length() - 1).trim() : null;
    }

    private static FieldType parseReference(String name) {
        boolean isName = !name.isEmpty()
                && name.codePoints().allMatch(c -> Character.isLetterOrDigit(c) || "_$.".indexOf(c) >= 0);
        return isName ? reference(name) : null;
    }

    private static FieldType parseNested(Kind kind, String inner, int levels) {
        FieldType key = null;
        String last = inner;
        if (kind == Kind.MAP) {
            int comma = outerComma(inner);
            key = comma < 0 ? null : parse(inner.substring(0, comma).trim(), levels);
            if (key == null) {
                return null;
            }
            last = inner.substring(comma + 1).trim();
        }
        FieldType element = parse(last, levels);
        return element == null ? null : new FieldType(kind, null, key, element);
    }

    /** The index of the first comma outside of angle brackets; -1 if there is none. */
    private static int outerComma(String text) {
        int open = 0;
        for (int index = 0; index < text.length(); index++) {
            switch (text.charAt(index)) {
                case '<' -> open++;
                case '>' -> open--;
                case ',' -> {
                    if (open == 0) {
                        return index;
                    }
                }
                default -> {}
            }
        }
        return -1;
    }

    // ------------------------------------------------------------------------------------------ messages

    void write(MessageWriter out) {
        out.u8(kind.code);
        if (kind == Kind.REFERENCE) {
            out.optional(className, MessageWriter::string);
        }
        if (key != null) {
            key.write(out);
        }
        if (element != null) {
            element.write(out);
        }
    }

    static FieldType read(MessageReader in) {
        return read(in, Limits.NESTING);
    }

    private static FieldType read(MessageReader in, int levels) {
        Kind kind = Kind.ofCode(in.u8());
        if (levels == 0 && kind.code > Kind.REFERENCE.code) {
            throw MessageReader.malformed("a type is nested too deep");
        }
        return switch (kind) {
            case REFERENCE -> new FieldType(kind, in.optional(MessageReader::string), null, null);
            case LIST, SET -> new FieldType(kind, null, null, read(in, levels - 1));
            case MAP -> {
                FieldType key = read(in, levels - 1);
                yield new FieldType(kind, null, key, read(in, levels - 1));
            }
            default -> new FieldType(kind, null, null, null);
        };
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof FieldType type
                && kind == type.kind
                && Objects.equals(className, type.className)
                && Objects.equals(key, type.key)
                && Objects.equals(element, type.element);
    }

    @Override
    public int hashCode() {
        return Objects.hash(kind, className, key, element);
    }

    /** Returns the text form. */
    @Override
    public String toString() {
        if (className != null) {
            return kind.word + '<' + className + '>';
        }
        if (element != null) {
            return kind.word + '<' + (key == null ? "" : key + ", ") + element + '>';
        }
        return kind.word;
    }
}
