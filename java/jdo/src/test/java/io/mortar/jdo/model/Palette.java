package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.jdo.annotations.Column;
import javax.jdo.annotations.Element;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Key;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Value;

/** A class with containers of constants of an enumeration, which are stored by their names or by their ordinals. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Palette {
    /** An enumeration whose names and ordinals have different orders. */
    public enum Color {
        RED,
        GREEN,
        BLUE
    }

    private String name;
    private Color favourite;
    private List<Color> named = new ArrayList<>();

    @Element(columns = @Column(jdbcType = "INTEGER"))
    private List<Color> numbered = new ArrayList<>();

    @Value(columns = @Column(jdbcType = "INTEGER"))
    private Map<String, Color> numberedByUse = new HashMap<>();

    @Key(columns = @Column(jdbcType = "INTEGER"))
    private Map<Color, String> usesByNumbered = new HashMap<>();

    private Palette[] relatives = {};
    private Palette parent;

    protected Palette() {}

    public Palette(String name, Color favourite) {
        this.name = name;
        this.favourite = favourite;
    }

    public List<Color> getNamed() {
        return named;
    }

    public List<Color> getNumbered() {
        return numbered;
    }

    public Map<String, Color> getNumberedByUse() {
        return numberedByUse;
    }

    public Map<Color, String> getUsesByNumbered() {
        return usesByNumbered;
    }

    public void setRelatives(Palette... relatives) {
        this.relatives = relatives;
    }

    public void setParent(Palette parent) {
        this.parent = parent;
    }
}
