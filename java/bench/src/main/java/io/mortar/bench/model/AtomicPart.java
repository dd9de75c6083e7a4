package io.mortar.bench.model;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.Table;
import java.util.HashSet;
import java.util.Set;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** A node of the graph of a composite part. */
@Entity
@Table(
        indexes = {
            @Index(name = "atomic_build_date", columnList = "buildDate"),
            @Index(name = "atomic_composite", columnList = "composite_id")
        })
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public class AtomicPart {
    @Id
    private int id;

    private String type;
    private int buildDate;
    private int x;
    private int y;
    private int documentId;

    @ManyToOne(fetch = FetchType.LAZY)
    @JoinColumn(name = "partOf_id")
    private CompositePart partOf;

    @OneToMany(cascade = CascadeType.PERSIST)
    @JoinColumn(name = "outgoing_id")
    @Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
    private Set<Connection> outgoing = new HashSet<>();

    @OneToMany
    @JoinColumn(name = "incoming_id")
    @Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
    private Set<Connection> incoming = new HashSet<>();

    protected AtomicPart() {}

    public AtomicPart(int id, String type, int buildDate, CompositePart partOf) {
        this.id = id;
        this.type = type;
        this.buildDate = buildDate;
        this.partOf = partOf;
    }

    public int getId() {
        return id;
    }

    public String getType() {
        return type;
    }

    public int getBuildDate() {
        return buildDate;
    }

    public int getX() {
        return x;
    }

    public int getY() {
        return y;
    }

    public void setPosition(int newX, int newY) {
        x = newX;
        y = newY;
    }

    public int getDocumentId() {
        return documentId;
    }

    public void setDocumentId(int id) {
        documentId = id;
    }

    public CompositePart getPartOf() {
        return partOf;
    }

    public Set<Connection> getOutgoing() {
        return outgoing;
    }

    public Set<Connection> getIncoming() {
        return incoming;
    }
}
