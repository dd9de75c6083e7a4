package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Column;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OrderBy;
import jakarta.persistence.PrePersist;
import jakarta.persistence.Transient;
import jakarta.persistence.Version;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** An entity with a generated identity, a version and the albums that refer to it. */
@Entity
public class Artist {
    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    private Long id;

    @Version
    private int version;

    @Column(unique = true, nullable = false)
    private String name;

    @OneToMany(mappedBy = "artist", cascade = CascadeType.ALL, orphanRemoval = true)
    @OrderBy("year")
    private List<Album> albums = new ArrayList<>();

    @ElementCollection
    private Set<String> genres = new HashSet<>();

    @ElementCollection
    private Map<String, Integer> prizes = new HashMap<>();

    @ElementCollection
    @OrderBy
    private List<String> instruments = new ArrayList<>();

    @ElementCollection
    @OrderBy("DESC")
    private List<Integer> awards = new ArrayList<>();

    @Transient
    private boolean greeted;

    protected Artist() {}

    public Artist(String name) {
        this.name = name;
    }

    @PrePersist
    void greet() {
        greeted = true;
    }

    public Long getId() {
        return id;
    }

    public int getVersion() {
        return version;
    }

    public String getName() {
        return name;
    }

    public void setName(String name) {
        this.name = name;
    }

    public List<Album> getAlbums() {
        return albums;
    }

    public Set<String> getGenres() {
        return genres;
    }

    public boolean isGreeted() {
        return greeted;
    }

    public Album add(String title, int year) {
        Album album = new Album(title, year, this);
        albums.add(album);
        return album;
    }

    public List<String> getInstruments() {
        return instruments;
    }

    public List<Integer> getAwards() {
        return awards;
    }

    public Map<String, Integer> getPrizes() {
        return prizes;
    }
}
