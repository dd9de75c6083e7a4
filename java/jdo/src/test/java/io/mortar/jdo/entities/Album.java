package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Embedded;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.NamedQuery;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OrderColumn;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;

/** An entity that refers to another, and has a list of others. */
@Entity
@NamedQuery(name = "Album.after", query = "SELECT a FROM Album a WHERE a.year > :year ORDER BY a.title")
public class Album {
    /** A kind of album. */
    public enum Kind {
        STUDIO,
        LIVE
    }

    @Id
    @GeneratedValue
    private long id;

    private String title;
    private int year;
    private LocalDate released;

    @Enumerated(EnumType.STRING)
    private Kind kind = Kind.STUDIO;

    @ManyToOne
    private Artist artist;

    @OneToMany(cascade = CascadeType.ALL)
    @OrderColumn
    private List<Track> tracks = new ArrayList<>();

    @Embedded
    private Label label;

    protected Album() {}

    public Album(String title, int year, Artist artist) {
        this.title = title;
        this.year = year;
        this.artist = artist;
        this.released = LocalDate.of(year, 1, 1);
    }

    public long getId() {
        return id;
    }

    public String getTitle() {
        return title;
    }

    public int getYear() {
        return year;
    }

    public void setYear(int year) {
        this.year = year;
    }

    public LocalDate getReleased() {
        return released;
    }

    public Kind getKind() {
        return kind;
    }

    public void setKind(Kind kind) {
        this.kind = kind;
    }

    public Artist getArtist() {
        return artist;
    }

    public List<Track> getTracks() {
        return tracks;
    }

    public Label getLabel() {
        return label;
    }

    public void setLabel(Label label) {
        this.label = label;
    }
}
