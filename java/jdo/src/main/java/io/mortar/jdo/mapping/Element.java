package io.mortar.jdo.mapping;

import io.mortar.FieldType;
import io.mortar.Oid;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.datanucleus.metadata.AbstractMemberMetaData;

/**
 * How the elements, keys or values of a container are stored.
 *
 * @param type their type in Mortar
 * @param codec converts values; null for references to objects
 */
public record Element(FieldType type, ValueCodec codec) {
    public boolean isReference() {
        return codec == null;
    }

    Object encode(RecordWriter to, AbstractMemberMetaData member, Object value) {
        if (value == null) {
            return null;
        }
        return isReference() ? to.references().persist(value, member) : codec.encode(value);
    }

    List<Object> decode(RecordReader from, Collection<?> stored) {
        if (isReference()) {
            List<Oid> oids = new ArrayList<>(stored.size());
            stored.forEach(oid -> oids.add((Oid) oid));
            return from.references().objects(oids);
        }
        List<Object> values = new ArrayList<>(stored.size());
        for (Object value : stored) {
            values.add(codec.decode(value instanceof ByteBuffer buffer ? bytes(buffer) : value));
        }
        return values;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
