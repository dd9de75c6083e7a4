package io.mortar.bench.model;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.SequenceGenerator;
import jakarta.persistence.Version;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** An object of about 500 bytes. Its text follows from its serial number, so that a reader can check it. */
@Entity
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public class Item {
    private static final int TEXT_LENGTH = 440;
    /** Letters without a short period. */
    private static final String LETTERS = letters(8192);

    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "item")
    @SequenceGenerator(name = "item", sequenceName = "item_sequence", allocationSize = 50)
    private long id;

    @Version
    private int version;

    private long serial;
    private int counter;
    private String name;

    @Column(length = TEXT_LENGTH)
    private String text;

    protected Item() {}

    public Item(long serial) {
        this.serial = serial;
        name = nameOf(serial);
        text = textOf(serial);
    }

    private static String letters(int length) {
        StringBuilder letters = new StringBuilder(length);
        long state = 1;
        for (int i = 0; i < length; i++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            letters.append((char) ('a' + (state >>> 33) % 26));
        }
        return letters.toString();
    }

    private static String nameOf(long serial) {
        return "item number " + serial;
    }

    private static String textOf(long serial) {
        int from = (int) Math.floorMod(serial * 31, (long) LETTERS.length() - TEXT_LENGTH);
        return LETTERS.substring(from, from + TEXT_LENGTH);
    }

    public long getId() {
        return id;
    }

    /** Gives the identity where the store does not. */
    public void setId(long id) {
        this.id = id;
    }

    public long getSerial() {
        return serial;
    }

    public int getCounter() {
        return counter;
    }

    public void setCounter(int counter) {
        this.counter = counter;
    }

    public String getName() {
        return name;
    }

    public String getText() {
        return text;
    }

    /** Checks that all is there as it was written. */
    public void check() {
        if (!nameOf(serial).equals(name) || !textOf(serial).equals(text)) {
            throw new IllegalStateException(
                    "the item " + id + " with the serial number " + serial + " is damaged: " + name);
        }
    }
}
