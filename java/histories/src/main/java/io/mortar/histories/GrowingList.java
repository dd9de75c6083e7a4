package io.mortar.histories;

import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;
import javax.jdo.annotations.Unique;

/** A list that only grows. No two transactions append the same element. */
@PersistenceCapable(detachable = "true")
public class GrowingList {
    @Unique
    private String name;

    @Persistent(defaultFetchGroup = "true")
    private List<Long> elements = new ArrayList<>();

    protected GrowingList() {}

    GrowingList(String name) {
        this.name = name;
    }

    List<Long> elements() {
        return List.copyOf(elements);
    }

    void append(long element) {
        elements.add(element);
    }
}
