package io.mortar.jdo.query;

import io.mortar.FieldType;
import io.mortar.Oid;
import io.mortar.jdo.mapping.Containers;
import io.mortar.jdo.mapping.References;
import io.mortar.jdo.mapping.ValueCodec;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.datanucleus.ExecutionContext;
import org.datanucleus.api.ApiAdapter;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.state.DNStateManager;

/** The parameters of a query of Mortar, with the values of the literals and parameters of the original query. */
final class Parameters {
    private static final int INLINE_DIGITS = 30;

    private final ExecutionContext context;
    private final Map<String, Object> values = new LinkedHashMap<>();

    Parameters(ExecutionContext context) {
        this.context = context;
    }

    Map<String, Object> values() {
        return values;
    }

    /** The text of a constant that is compared with a value of a term. */
    String text(Object constant, Term other) {
        return constant == null ? "null" : valueText(stored(constant, other));
    }

    private Object stored(Object constant, Term other) {
        if (other instanceof Term.Reference) {
            return identifier(constant);
        }
        if (other instanceof Term.Value || other.isConstant()) {
            return stored(constant, other.codec());
        }
        throw new Untranslatable("a constant is compared with a collection or an embedded object");
    }

    /** The text of a constant that is a string. */
    String string(Object constant) {
        return valueText(stored(constant, ValueCodec.TEXT));
    }

    /** A list of constants, of which a term is one. */
    String listText(Object constants, Term other) {
        List<Object> stored = new ArrayList<>();
        for (Object each : elements(constants)) {
            if (each != null) {
                stored.add(stored(each, other));
            }
        }
        return add(stored);
    }

    static List<Object> elements(Object container) {
        if (!Containers.isContainer(container)) {
            throw new Untranslatable("a constant is not a collection");
        }
        return Containers.elements(container);
    }

    Oid identifier(Object constant) {
        ApiAdapter api = context.getApiAdapter();
        if (!api.isPersistable(constant) || !api.isPersistent(constant) && !api.isDetached(constant)) {
            throw new Untranslatable("a constant that is compared with references is not a persistent object");
        }
        Object persistent = constant;
        if (!api.isPersistent(constant)) {
            persistent = context.findObject(api.getIdForObject(constant), false);
        }
        return References.of(context).identifier(persistent);
    }

    /** The stored object with an identity; null for null. */
    Object identified(Object identity) {
        try {
            return identity == null ? null : context.findObject(identity, true);
        } catch (NucleusException error) {
            throw new Untranslatable("a constant that is compared with an identity identifies no object");
        }
    }

    /** The value of a member of a constant object. */
    Object member(Object constant, String name) {
        DNStateManager manager = context.findStateManager(constant);
        if (manager == null) {
            throw new Untranslatable("a constant is not a persistent object");
        }
        int position = manager.getClassMetaData().getAbsolutePositionOfMember(name);
        if (position < 0) {
            throw new Untranslatable("the relation is owned by a member of an embedded object");
        }
        manager.loadField(position);
        return manager.provideField(position);
    }

    /** The stored form of a constant. A number stays of its type, because numbers of all types can be compared. */
    static Object stored(Object value, ValueCodec codec) {
        boolean numeric = codec == null || codec.keepsOrder() && codec.isNumeric();
        Object constant = numeric ? Values.number(value) : codec.isCharacter() ? character(value) : value;
        if (constant instanceof BigDecimal decimal && numeric && codec != null && codec.decode(0L) instanceof Float) {
            // As the member has been stored.
            return (double) decimal.floatValue();
        }
        if (constant instanceof Number number && numeric) {
            return number(number);
        }
        if (codec == null) {
            throw new Untranslatable("a constant of " + constant.getClass().getName() + " is compared with a number");
        }
        if (codec.type().equals(FieldType.STRING) && constant instanceof Character character) {
            return character.toString();
        }
        Object stored;
        try {
            stored = codec.encode(constant);
        } catch (ClassCastException error) {
            stored = inStoredForm(constant, codec);
        }
        if (stored instanceof java.sql.Date date && codec.type().equals(FieldType.DATE)) {
            stored = date.toLocalDate();
        }
        if (!isOfType(stored, codec.type())) {
            throw new Untranslatable(
                    "a constant of " + constant.getClass().getName() + " is compared with a value of another type");
        }
        return stored;
    }

    /** The character that a number is; another value stays as it is. */
    private static Object character(Object value) {
        if (!(value instanceof Number number)) {
            return value;
        }
        char character = (char) number.intValue();
        if (number.doubleValue() != character || Character.isSurrogate(character)) {
            throw new Untranslatable("a character is compared with " + number);
        }
        return character;
    }

    /** A constant that already has the stored form of a value with a converter; null if it has not. */
    private static Object inStoredForm(Object constant, ValueCodec codec) {
        if (constant instanceof Number number && codec.isNumeric()) {
            return number(number);
        }
        return constant instanceof String && codec.type().equals(FieldType.STRING) ? constant : null;
    }

    private static boolean isOfType(Object stored, FieldType type) {
        return switch (type.kind()) {
            case BOOL -> stored instanceof Boolean;
            case STRING -> stored instanceof String;
            case DATE -> stored instanceof LocalDate;
            case TIMESTAMP -> stored instanceof Instant;
            case INT64, FLOAT64, DECIMAL -> stored instanceof Number;
            default -> stored != null;
        };
    }

    private static Object number(Number number) {
        if (number instanceof BigDecimal) {
            return WrittenNumber.plain(number);
        }
        if (number instanceof BigInteger big) {
            return new BigDecimal(big);
        }
        return number instanceof Double || number instanceof Float
                ? (Object) number.doubleValue()
                : (Object) number.longValue();
    }

    private String valueText(Object stored) {
        if (stored instanceof Long || stored instanceof Boolean) {
            return stored.toString();
        }
        if (stored instanceof BigDecimal decimal
                && decimal.precision() < INLINE_DIGITS
                && Math.abs(decimal.scale()) < INLINE_DIGITS) {
            // A decimal literal that is compared with a floating-point number becomes the nearest one; a parameter does
            // not.
            String digits = decimal.toPlainString();
            return digits.contains(".") ? digits : digits + ".0";
        }
        return add(stored);
    }

    /** A parameter with a value. */
    String add(Object value) {
        for (Map.Entry<String, Object> known : values.entrySet()) {
            if (Objects.equals(known.getValue(), value)) {
                return ':' + known.getKey();
            }
        }
        String name = "p" + (values.size() + 1);
        values.put(name, value);
        return ':' + name;
    }
}
