package io.mortar.jdo.model;

import javax.jdo.annotations.PersistenceCapable;

/** More classes that refer to each other than one call creates. */
public final class Chapters {
    private Chapters() {}

    @PersistenceCapable
    public static class C1 {
        C2 next;
    }

    @PersistenceCapable
    public static class C2 {
        C3 next;
    }

    @PersistenceCapable
    public static class C3 {
        C4 next;
    }

    @PersistenceCapable
    public static class C4 {
        C5 next;
    }

    @PersistenceCapable
    public static class C5 {
        C6 next;
    }

    @PersistenceCapable
    public static class C6 {
        C7 next;
    }

    @PersistenceCapable
    public static class C7 {
        C8 next;
    }

    @PersistenceCapable
    public static class C8 {
        C9 next;
    }

    @PersistenceCapable
    public static class C9 {
        C10 next;
    }

    @PersistenceCapable
    public static class C10 {
        C11 next;
    }

    @PersistenceCapable
    public static class C11 {
        C12 next;
    }

    @PersistenceCapable
    public static class C12 {
        C13 next;
    }

    @PersistenceCapable
    public static class C13 {
        C14 next;
    }

    @PersistenceCapable
    public static class C14 {
        C15 next;
    }

    @PersistenceCapable
    public static class C15 {
        C16 next;
    }

    @PersistenceCapable
    public static class C16 {
        C17 next;
    }

    @PersistenceCapable
    public static class C17 {
        C18 next;
    }

    @PersistenceCapable
    public static class C18 {
        C19 next;
    }

    @PersistenceCapable
    public static class C19 {
        C20 next;
    }

    @PersistenceCapable
    public static class C20 {
        C21 next;
    }

    @PersistenceCapable
    public static class C21 {
        C22 next;
    }

    @PersistenceCapable
    public static class C22 {
        C23 next;
    }

    @PersistenceCapable
    public static class C23 {
        C24 next;
    }

    @PersistenceCapable
    public static class C24 {
        C25 next;
    }

    @PersistenceCapable
    public static class C25 {
        C26 next;
    }

    @PersistenceCapable
    public static class C26 {
        C27 next;
    }

    @PersistenceCapable
    public static class C27 {
        C28 next;
    }

    @PersistenceCapable
    public static class C28 {
        C29 next;
    }

    @PersistenceCapable
    public static class C29 {
        C30 next;
    }

    @PersistenceCapable
    public static class C30 {
        C31 next;
    }

    @PersistenceCapable
    public static class C31 {
        C32 next;
    }

    @PersistenceCapable
    public static class C32 {
        C33 next;
    }

    @PersistenceCapable
    public static class C33 {
        C34 next;
    }

    @PersistenceCapable
    public static class C34 {
        C35 next;
    }

    @PersistenceCapable
    public static class C35 {
        C36 next;
    }

    @PersistenceCapable
    public static class C36 {
        C37 next;
    }

    @PersistenceCapable
    public static class C37 {
        C38 next;
    }

    @PersistenceCapable
    public static class C38 {
        C39 next;
    }

    @PersistenceCapable
    public static class C39 {
        C40 next;
    }

    @PersistenceCapable
    public static class C40 {
        C41 next;
    }

    @PersistenceCapable
    public static class C41 {
        C1 next;
    }
}
