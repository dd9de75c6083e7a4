package io.mortar.bench.model;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.OneToOne;
import jakarta.persistence.Table;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** The document of a composite part. */
@Entity
@Table(indexes = @Index(name = "document_title", columnList = "title"))
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public class Document {
    @Id
    private int id;

    private String title;

    @Column(length = 2000)
    private String text;

    @OneToOne(fetch = FetchType.LAZY)
    private CompositePart part;

    protected Document() {}

    public Document(int id, String title, String text) {
        this.id = id;
        this.title = title;
        this.text = text;
    }

    public int getId() {
        return id;
    }

    public String getTitle() {
        return title;
    }

    public String getText() {
        return text;
    }

    public CompositePart getPart() {
        return part;
    }

    public void setPart(CompositePart part) {
        this.part = part;
    }
}
