package io.mortar.jdo.model;

import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** An element of the containers of a library. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Book {
    private String title;
    private Integer copies;
    private Library library;
    private Library catalogue;
    private Library stock;
    private Library window;
    private Library ranking;
    private Library archive;
    private Book original;
    private int rank;

    protected Book() {}

    public Book(String title) {
        this.title = title;
    }

    public String getTitle() {
        return title;
    }

    public Integer getCopies() {
        return copies;
    }

    public Library getLibrary() {
        return library;
    }

    public void setLibrary(Library library) {
        this.library = library;
    }

    public Book getOriginal() {
        return original;
    }

    public Library getCatalogue() {
        return catalogue;
    }

    public void setWindow(Library window) {
        this.window = window;
    }

    public int getRank() {
        return rank;
    }

    public void setRank(int rank) {
        this.rank = rank;
    }

    public Library getWindow() {
        return window;
    }
}
