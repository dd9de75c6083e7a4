package io.mortar.bench.model;

import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Table;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** An edge of the graph of a composite part. */
@Entity
@Table(
        indexes = {
            @Index(name = "connection_outgoing", columnList = "outgoing_id"),
            @Index(name = "connection_incoming", columnList = "incoming_id")
        })
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public class Connection {
    @Id
    private int id;

    private String type;
    private int length;

    @ManyToOne(fetch = FetchType.LAZY)
    @JoinColumn(name = "source_id")
    private AtomicPart source;

    @ManyToOne(fetch = FetchType.LAZY)
    @JoinColumn(name = "target_id")
    private AtomicPart target;

    protected Connection() {}

    public Connection(int id, String type, int length, AtomicPart source, AtomicPart target) {
        this.id = id;
        this.type = type;
        this.length = length;
        this.source = source;
        this.target = target;
    }

    public int getId() {
        return id;
    }

    public String getType() {
        return type;
    }

    public int getLength() {
        return length;
    }

    public AtomicPart getSource() {
        return source;
    }

    public AtomicPart getTarget() {
        return target;
    }
}
