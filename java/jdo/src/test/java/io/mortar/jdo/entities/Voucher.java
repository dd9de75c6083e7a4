package io.mortar.jdo.entities;

import jakarta.persistence.AttributeConverter;
import jakarta.persistence.Column;
import jakarta.persistence.Convert;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.ManyToOne;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** An entity with columns that are not always written, converted elements, and numbers of small types. */
@Entity
public class Voucher {
    /** Stores texts in upper case. Refuses the text {@code bad}. */
    public static class UpperCase implements AttributeConverter<String, String> {
        @Override
        public String convertToDatabaseColumn(String text) {
            if ("bad".equals(text)) {
                throw new IllegalArgumentException("a bad text");
            }
            return text == null ? null : text.toUpperCase();
        }

        @Override
        public String convertToEntityAttribute(String stored) {
            return stored;
        }
    }

    @Id
    private long id;

    @Column(updatable = false)
    private String issuer;

    @Column(insertable = false)
    private String cashier;

    @Column(nullable = false, insertable = false, updatable = false)
    private String generated;

    @ManyToOne
    @JoinColumn(updatable = false)
    private Pen signedWith;

    @Column(name = "branch")
    private long branch;

    /** Another view of the column of {@link #branch} in a database. */
    @ManyToOne
    @JoinColumn(name = "branch", insertable = false, updatable = false)
    private Pen branchPen;

    @ElementCollection
    @Convert(converter = UpperCase.class)
    private List<String> codes = new ArrayList<>();

    @ElementCollection
    @Convert(attributeName = "value", converter = UpperCase.class)
    private Map<String, String> notes = new HashMap<>();

    @ElementCollection
    private List<String> tags = new ArrayList<>();

    private short copies = 3;
    private Integer pages = 5;
    private long serial = 7;
    private float weight = 1.5f;

    protected Voucher() {}

    public Voucher(long id, String issuer, String cashier, Pen signedWith) {
        this.id = id;
        this.issuer = issuer;
        this.cashier = cashier;
        this.signedWith = signedWith;
        this.branchPen = signedWith;
    }

    public String getIssuer() {
        return issuer;
    }

    public String getCashier() {
        return cashier;
    }

    public String getGenerated() {
        return generated;
    }

    public Pen getSignedWith() {
        return signedWith;
    }

    public Pen getBranchPen() {
        return branchPen;
    }

    public List<String> getCodes() {
        return codes;
    }

    public Map<String, String> getNotes() {
        return notes;
    }

    public void change(String newIssuer, String newCashier, Pen pen) {
        issuer = newIssuer;
        cashier = newCashier;
        generated = "by hand";
        signedWith = pen;
    }
}
