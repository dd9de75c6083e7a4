package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.mortar.jdo.entities.Owner;
import org.junit.jupiter.api.Test;

/** Jakarta Persistence 3.1, section 2.4.1: keys that are derived from those of other entities. */
class DerivedKeysTest extends EntityTest {
    @Test
    void an_entity_can_have_the_embedded_key_of_another_one() {
        Owner owner = new Owner();
        run(manager -> {
            manager.persist(owner);
            Owner.Note note = new Owner.Note("first", owner);
            manager.persist(note);
            manager.persist(new Owner.Attachment(note, "a.txt"));
        });
        run(manager -> {
            Owner.Note.Key key = new Owner.Note.Key(owner.getId(), "first");
            Owner.Attachment attachment = manager.find(Owner.Attachment.class, key);
            assertEquals("a.txt", attachment.getFile());
            assertSame(manager.find(Owner.Note.class, key), attachment.getNote());
        });
    }
}
