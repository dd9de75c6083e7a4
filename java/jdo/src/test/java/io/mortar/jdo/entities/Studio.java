package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Embeddable;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OneToOne;
import jakarta.persistence.OrderBy;
import jakarta.persistence.Version;
import java.util.ArrayList;
import java.util.List;

/** An entity with entities that belong to it, alone and in a list, and with embedded objects in an order. */
@Entity
public class Studio {
    @Id
    private long id;

    @Version
    private int version;

    private String name;

    @OneToOne(cascade = CascadeType.ALL, orphanRemoval = true)
    private Pen pen;

    @OneToMany(mappedBy = "studio", cascade = CascadeType.ALL, orphanRemoval = true)
    private List<Session> sessions = new ArrayList<>();

    @ElementCollection
    @OrderBy("city DESC")
    private List<Branch> branches = new ArrayList<>();

    protected Studio() {}

    public Studio(long id, String name) {
        this.id = id;
        this.name = name;
    }

    public long getId() {
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

    public Pen getPen() {
        return pen;
    }

    public void setPen(Pen pen) {
        this.pen = pen;
    }

    public List<Session> getSessions() {
        return sessions;
    }

    public List<Branch> getBranches() {
        return branches;
    }

    /** An entity that refers to its studio, to which operations do not cascade. */
    @Entity
    public static class Session {
        @Id
        private long id;

        private String take;

        @ManyToOne
        private Studio studio;

        protected Session() {}

        public Session(long id, Studio studio) {
            this.id = id;
            this.studio = studio;
        }

        public String getTake() {
            return take;
        }

        public void setTake(String take) {
            this.take = take;
        }

        public Studio getStudio() {
            return studio;
        }
    }

    /** An embedded object. */
    @Embeddable
    public static class Branch {
        private String city;

        protected Branch() {}

        public Branch(String city) {
            this.city = city;
        }

        public String getCity() {
            return city;
        }
    }
}
