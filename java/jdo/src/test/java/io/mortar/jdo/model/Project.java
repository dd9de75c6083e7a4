package io.mortar.jdo.model;

import java.util.HashSet;
import java.util.Set;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** The other side of a relation of many objects to many. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Project {
    private String name;

    @Persistent(mappedBy = "projects")
    private Set<Employee> members = new HashSet<>();

    protected Project() {}

    public Project(String name) {
        this.name = name;
    }

    public String getName() {
        return name;
    }

    public Set<Employee> getMembers() {
        return members;
    }
}
