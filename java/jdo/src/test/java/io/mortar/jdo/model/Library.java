package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Key;
import javax.jdo.annotations.Order;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;
import javax.jdo.annotations.Value;

/** The owner of containers whose elements live without it and refer to it. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Library {
    @Persistent(mappedBy = "library", defaultFetchGroup = "true")
    private Set<Book> books = new HashSet<>();

    @Persistent(mappedBy = "catalogue")
    @Key(mappedBy = "title")
    private Map<String, Book> byTitle = new HashMap<>();

    @Persistent(mappedBy = "stock")
    @Value(mappedBy = "copies")
    private Map<Book, Integer> copies = new HashMap<>();

    @Persistent(mappedBy = "window")
    private List<Book> displayed = new ArrayList<>();

    @Persistent(mappedBy = "ranking")
    @Order(mappedBy = "rank")
    private List<Book> ranked = new ArrayList<>();

    @Key(dependent = "true")
    @Value(dependent = "true")
    private Map<Book, Book> translations = new HashMap<>();

    /** Copies of lost books, by the books. */
    @Persistent(mappedBy = "archive")
    @Key(mappedBy = "original", dependent = "true")
    private Map<Book, Book> replacements = new HashMap<>();

    public Set<Book> getBooks() {
        return books;
    }

    public void setBooks(Set<Book> books) {
        this.books = books;
    }

    public Map<String, Book> getByTitle() {
        return byTitle;
    }

    public Map<Book, Integer> getCopies() {
        return copies;
    }

    public List<Book> getDisplayed() {
        return displayed;
    }

    public List<Book> getRanked() {
        return ranked;
    }

    public Map<Book, Book> getReplacements() {
        return replacements;
    }

    public Map<Book, Book> getTranslations() {
        return translations;
    }
}
