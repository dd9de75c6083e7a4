package io.mortar.jdo.mapping;

import io.mortar.FieldType;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.Calendar;
import java.util.Date;
import java.util.GregorianCalendar;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.datanucleus.ClassLoaderResolver;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.ColumnMetaData;
import org.datanucleus.metadata.FieldRole;
import org.datanucleus.metadata.MetaData;
import org.datanucleus.metadata.MetaDataUtils;
import org.datanucleus.store.types.TypeManager;
import org.datanucleus.store.types.converters.EnumConversionHelper;
import org.datanucleus.store.types.converters.MultiColumnConverter;
import org.datanucleus.store.types.converters.TypeConverter;

/**
 * Chooses how values of a Java type are stored: by the converter that the metadata names, as the Mortar type that fits,
 * as the text of one of DataNucleus' converters, or else in serialized form.
 */
final class ValueCodecs {
    private static final Map<Class<?>, ValueCodec> BASIC = new HashMap<>();

    static {
        add(boolean.class, Boolean.class, ValueCodec.of(FieldType.BOOL, v -> v, v -> v), false);
        add(byte.class, Byte.class, integer(Number::byteValue), 0L);
        add(short.class, Short.class, integer(Number::shortValue), 0L);
        add(int.class, Integer.class, integer(Number::intValue), 0L);
        add(long.class, Long.class, integer(Number::longValue), 0L);
        add(float.class, Float.class, floating(Number::floatValue), 0.0);
        add(double.class, Double.class, floating(Number::doubleValue), 0.0);
        add(char.class, Character.class, ValueCodec.of(FieldType.STRING, String::valueOf, ValueCodec.CHARACTER), "\0");
        BASIC.put(String.class, ValueCodec.TEXT);
        BASIC.put(
                StringBuilder.class,
                ValueCodec.of(FieldType.STRING, Object::toString, v -> new StringBuilder((String) v)));
        BASIC.put(BigDecimal.class, ValueCodec.of(FieldType.DECIMAL, v -> v, ValueCodecs::decimal));
        BASIC.put(
                BigInteger.class,
                ValueCodec.of(
                        FieldType.DECIMAL,
                        v -> new BigDecimal((BigInteger) v),
                        v -> decimal(v).toBigInteger()));
        BASIC.put(byte[].class, ValueCodec.of(FieldType.BYTES, v -> v, v -> v));
        BASIC.put(Byte[].class, ValueCodec.of(FieldType.BYTES, ValueCodecs::unbox, ValueCodecs::box));
        BASIC.put(
                char[].class,
                ValueCodec.of(FieldType.STRING, v -> new String((char[]) v), v -> ((String) v).toCharArray()));
        BASIC.put(
                UUID.class, ValueCodec.unordered(FieldType.STRING, Object::toString, v -> UUID.fromString((String) v)));
        BASIC.put(LocalDate.class, ValueCodec.of(FieldType.DATE, v -> v, v -> v));
        BASIC.put(
                java.sql.Date.class,
                ValueCodec.of(
                        FieldType.DATE,
                        v -> ((java.sql.Date) v).toLocalDate(),
                        v -> java.sql.Date.valueOf((LocalDate) v)));
        BASIC.put(Instant.class, ValueCodec.of(FieldType.TIMESTAMP, v -> v, v -> v));
        BASIC.put(
                Date.class,
                ValueCodec.of(
                        FieldType.TIMESTAMP,
                        v -> Instant.ofEpochMilli(((Date) v).getTime()),
                        v -> Date.from((Instant) v)));
        BASIC.put(
                java.sql.Timestamp.class,
                ValueCodec.of(
                        FieldType.TIMESTAMP,
                        v -> ((java.sql.Timestamp) v).toInstant(),
                        v -> java.sql.Timestamp.from((Instant) v)));
        BASIC.put(
                LocalDateTime.class,
                ValueCodec.of(
                        FieldType.TIMESTAMP,
                        v -> ((LocalDateTime) v).toInstant(ZoneOffset.UTC),
                        v -> LocalDateTime.ofInstant((Instant) v, ZoneOffset.UTC)));
        BASIC.put(
                Calendar.class,
                ValueCodec.of(FieldType.TIMESTAMP, v -> ((Calendar) v).toInstant(), ValueCodecs::calendar));
        BASIC.put(GregorianCalendar.class, BASIC.get(Calendar.class));
        // The text of a local time orders like the time.
        BASIC.put(LocalTime.class, ValueCodec.of(FieldType.STRING, Object::toString, v -> LocalTime.parse((String) v)));
    }

    /** A converter of DataNucleus that cannot read the texts which it writes. */
    private static final String UNREADABLE =
            "org.datanucleus.store.types.jodatime.converters.JodaLocalDateTimeStringConverter";

    private final TypeManager types;
    private final ClassLoaderResolver loaders;

    ValueCodecs(TypeManager types, ClassLoaderResolver loaders) {
        this.types = types;
        this.loaders = loaders;
    }

    /**
     * The codec of a value that has a role in a member: the member itself, or the elements, keys or values of its
     * container.
     */
    ValueCodec of(Class<?> type, AbstractMemberMetaData member, FieldRole role) {
        TypeConverter<?, ?> named = named(member, role, type);
        if (named != null) {
            return converted(named, type);
        }
        if (type.isEnum()) {
            return enumeration(type, member, role);
        }
        ValueCodec basic = BASIC.get(type);
        if (basic != null) {
            return basic;
        }
        TypeConverter<?, ?> text = types.getTypeConverterForType(type, String.class);
        if (text != null) {
            return text.getClass().getName().equals(UNREADABLE) ? parsed(type) : converted(text, type);
        }
        TypeConverter<?, ?> byDefault = types.getDefaultTypeConverterForType(type);
        if (byDefault != null
                && !(byDefault instanceof MultiColumnConverter)
                && BASIC.containsKey(types.getDatastoreTypeForTypeConverter(byDefault, type))) {
            return converted(byDefault, type);
        }
        return ValueCodec.unordered(
                FieldType.BYTES, value -> serializeValue(value, member), v -> deserialize((byte[]) v));
    }

    /** A persistent object would be copied, and would no longer be itself. */
    private static Object serializeValue(Object value, AbstractMemberMetaData member) {
        if (value instanceof Persistable) {
            throw new NucleusUserException(member.getFullFieldName() + " has an object of "
                    + value.getClass().getName() + ", which is persistent, and the type of the member does not say so:"
                    + " name the types of the objects in its metadata (types, or targetEntity)");
        }
        return serialize(value);
    }

    /** The converter that the metadata names for a role in a member, or the one that applies to the type. */
    private TypeConverter<?, ?> named(AbstractMemberMetaData member, FieldRole role, Class<?> type) {
        MetaData declared = declared(member, role);
        if (declared != null) {
            String name = declared.getValueForExtension(MetaData.EXTENSION_MEMBER_TYPE_CONVERTER_NAME);
            if (name != null) {
                TypeConverter<?, ?> named = types.getTypeConverterForName(name);
                if (named == null) {
                    throw new NucleusUserException(
                            member.getFullFieldName() + " has the converter " + name + ", which is not registered");
                }
                return named;
            }
            if (declared.hasExtension(MetaData.EXTENSION_MEMBER_TYPE_CONVERTER_DISABLED)) {
                return null;
            }
        }
        return types.getAutoApplyTypeConverterForType(type);
    }

    /** The metadata of what has a role in a member, or null. */
    private static MetaData declared(AbstractMemberMetaData member, FieldRole role) {
        return switch (role) {
            case ROLE_FIELD -> member;
            case ROLE_COLLECTION_ELEMENT, ROLE_ARRAY_ELEMENT -> member.getElementMetaData();
            case ROLE_MAP_KEY -> member.getKeyMetaData();
            case ROLE_MAP_VALUE -> member.getValueMetaData();
            default -> null;
        };
    }

    @SuppressWarnings("unchecked")
    private ValueCodec converted(TypeConverter<?, ?> converter, Class<?> type) {
        Class<?> stored = types.getDatastoreTypeForTypeConverter(converter, type);
        ValueCodec below = BASIC.get(stored);
        if (below == null) {
            throw new NucleusUserException("the converter "
                    + converter.getClass().getName() + " gives values of " + stored + ", which Mortar does not store");
        }
        TypeConverter<Object, Object> untyped = (TypeConverter<Object, Object>) converter;
        // A converter may not keep the order. Only equality is certain.
        return ValueCodec.unordered(
                below.type(),
                v -> below.encode(convert(type, untyped::toDatastoreType, v)),
                v -> convert(type, untyped::toMemberType, below.decode(v)));
    }

    /**
     * Calls a converter, which is code of the program and may fail. A value of another type is an error of the caller.
     */
    private static Object convert(Class<?> type, UnaryOperator<Object> direction, Object value) {
        try {
            return direction.apply(value);
        } catch (NucleusException | ClassCastException error) {
            throw error;
        } catch (RuntimeException error) {
            throw new NucleusUserException(
                    "a converter of values of " + type.getName() + " has failed: " + error, error);
        }
    }

    /** Values of a type with a static method {@code parse} for its texts. */
    private static ValueCodec parsed(Class<?> type) {
        return ValueCodec.unordered(FieldType.STRING, Object::toString, v -> {
            try {
                return type.getMethod("parse", String.class).invoke(null, v);
            } catch (ReflectiveOperationException error) {
                throw new NucleusUserException("the text " + v + " is not a " + type.getName(), error);
            }
        });
    }

    private ValueCodec enumeration(Class<?> type, AbstractMemberMetaData member, FieldRole role) {
        boolean numeric = isNumeric(member, role);
        return ValueCodec.of(
                numeric ? FieldType.INT64 : FieldType.STRING,
                v -> {
                    // A query may compare with the name of a constant.
                    Enum constant = v instanceof String name ? constant(type, name) : (Enum) v;
                    Object stored = EnumConversionHelper.getStoredValueFromEnum(member, role, constant);
                    return stored instanceof Number number ? (Object) number.longValue() : stored.toString();
                },
                v -> storedConstant(type, member, role, v));
    }

    private Object storedConstant(Class<?> type, AbstractMemberMetaData member, FieldRole role, Object stored) {
        try {
            return EnumConversionHelper.getEnumForStoredValue(
                    member, role, stored instanceof Long number ? (Object) number.intValue() : stored, loaders);
        } catch (IllegalArgumentException | IndexOutOfBoundsException unknown) {
            throw new NucleusUserException(
                    "an object has the value " + stored + " in " + member.getFullFieldName() + ", and " + type.getName()
                            + " has no such constant: was it removed or renamed?",
                    unknown);
        }
    }

    private static Enum constant(Class<?> type, String name) {
        try {
            return Enum.valueOf((Class<? extends Enum>) type, name);
        } catch (IllegalArgumentException unknown) {
            throw new NucleusUserException(type.getName() + " has no constant " + name, unknown);
        }
    }

    private static boolean isNumeric(AbstractMemberMetaData member, FieldRole role) {
        ColumnMetaData[] columns = switch (role) {
            case ROLE_FIELD -> member.getColumnMetaData();
            case ROLE_COLLECTION_ELEMENT, ROLE_ARRAY_ELEMENT ->
                member.getElementMetaData() == null
                        ? null
                        : member.getElementMetaData().getColumnMetaData();
            case ROLE_MAP_KEY ->
                member.getKeyMetaData() == null ? null : member.getKeyMetaData().getColumnMetaData();
            case ROLE_MAP_VALUE ->
                member.getValueMetaData() == null
                        ? null
                        : member.getValueMetaData().getColumnMetaData();
            default -> null;
        };
        return columns != null && columns.length == 1 && MetaDataUtils.isJdbcTypeNumeric(columns[0].getJdbcType());
    }

    /** Values in the form of Java serialization. */
    ValueCodec serialized() {
        return ValueCodec.unordered(FieldType.BYTES, ValueCodecs::serialize, v -> deserialize((byte[]) v));
    }

    private static Object serialize(Object value) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(value);
        } catch (IOException error) {
            throw new NucleusUserException("a value of " + value.getClass().getName() + " cannot be serialized", error);
        }
        return bytes.toByteArray();
    }

    private Object deserialize(byte[] bytes) {
        try (ObjectInputStream in = new ClassResolvingInput(new ByteArrayInputStream(bytes))) {
            return in.readObject();
        } catch (IOException | ClassNotFoundException error) {
            throw new NucleusUserException("a serialized value cannot be read", error);
        }
    }

    /** Finds classes with the class loaders of the persistence context. */
    private final class ClassResolvingInput extends ObjectInputStream {
        ClassResolvingInput(InputStream in) throws IOException {
            super(in);
        }

        @Override
        protected Class<?> resolveClass(ObjectStreamClass description) throws IOException, ClassNotFoundException {
            try {
                return super.resolveClass(description);
            } catch (ClassNotFoundException notFound) {
                return loaders.classForName(description.getName());
            }
        }
    }

    private static void add(Class<?> primitive, Class<?> boxed, ValueCodec codec, Object zero) {
        BASIC.put(primitive, codec.withZero(zero));
        BASIC.put(boxed, codec);
    }

    private static ValueCodec integer(Function<Number, Object> narrow) {
        return ValueCodec.of(FieldType.INT64, v -> ((Number) v).longValue(), v -> narrow.apply((Number) v));
    }

    private static ValueCodec floating(Function<Number, Object> narrow) {
        return ValueCodec.of(FieldType.FLOAT64, v -> ((Number) v).doubleValue(), v -> narrow.apply((Number) v));
    }

    /** A decimal; fields that were widened have values of their former type. */
    private static BigDecimal decimal(Object stored) {
        return stored instanceof BigDecimal decimal
                ? decimal
                : stored instanceof Long number ? BigDecimal.valueOf(number) : new BigDecimal(stored.toString());
    }

    private static Calendar calendar(Object stored) {
        Calendar calendar = new GregorianCalendar();
        calendar.setTimeInMillis(((Instant) stored).toEpochMilli());
        return calendar;
    }

    private static byte[] unbox(Object boxed) {
        Byte[] from = (Byte[]) boxed;
        byte[] bytes = new byte[from.length];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = from[i];
        }
        return bytes;
    }

    private static Byte[] box(Object stored) {
        byte[] from = (byte[]) stored;
        Byte[] boxed = new Byte[from.length];
        for (int i = 0; i < boxed.length; i++) {
            boxed[i] = from[i];
        }
        return boxed;
    }
}
