package io.mortar.jdo.mapping;

import org.datanucleus.PersistableObjectType;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/** A member with a persistable object in serialized form. It belongs to its owner like an embedded object. */
final class SerializedObjectMapping extends ValueMapping {
    SerializedObjectMapping(AbstractMemberMetaData member, Column column, ValueCodec codec) {
        super(member, column, codec);
    }

    @Override
    Object read(RecordReader from) {
        Object object = super.read(from);
        if (object != null) {
            // From now on a change of the object is a change of its owner.
            from.context()
                    .getNucleusContext()
                    .getStateManagerFactory()
                    .newForEmbedded(
                            from.context(), object, false, from.owner(), position(), PersistableObjectType.EMBEDDED_PC);
        }
        return object;
    }

    @Override
    void write(RecordWriter to, Object value) {
        if (value == null) {
            super.write(to, null);
            return;
        }
        DNStateManager embedded = to.context()
                .findStateManagerForEmbedded(value, to.owner(), member(), PersistableObjectType.EMBEDDED_PC);
        // Otherwise the object detaches itself when it is serialized.
        embedded.setStoringPC();
        try {
            super.write(to, value);
        } finally {
            embedded.unsetStoringPC();
        }
    }
}
