package io.mortar.jdo.model;

import javax.jdo.AttributeConverter;
import javax.jdo.annotations.Convert;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** Has a position that a converter stores as text. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Harbour {
    @Convert(PositionText.class)
    private Position position;

    protected Harbour() {}

    public Harbour(Position position) {
        this.position = position;
    }

    public Position getPosition() {
        return position;
    }

    /** Such as {@code 54/10}. */
    public static class PositionText implements AttributeConverter<Position, String> {
        @Override
        public String convertToDatastore(Position position) {
            return position.latitude() + "/" + position.longitude();
        }

        @Override
        public Position convertToAttribute(String text) {
            String[] parts = text.split("/");
            return new Position(Integer.parseInt(parts[0]), Integer.parseInt(parts[1]));
        }
    }
}
