package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.jdo.annotations.Element;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** The owner of bidirectional relations. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Department {
    private String name;

    @Persistent(mappedBy = "department")
    @Element(dependent = "true")
    private Set<Employee> employees = new HashSet<>();

    private List<Employee> ranking = new ArrayList<>();
    private Map<String, Employee> byRole = new HashMap<>();
    private Map<Employee, String> desks = new HashMap<>();
    private Employee[] board = {};

    @Persistent(mappedBy = "leads")
    private Employee leader;

    protected Department() {}

    public Department(String name) {
        this.name = name;
    }

    public String getName() {
        return name;
    }

    public Set<Employee> getEmployees() {
        return employees;
    }

    public List<Employee> getRanking() {
        return ranking;
    }

    public Map<String, Employee> getByRole() {
        return byRole;
    }

    public Map<Employee, String> getDesks() {
        return desks;
    }

    public Employee[] getBoard() {
        return board;
    }

    public void setBoard(Employee... board) {
        this.board = board;
    }

    public Employee getLeader() {
        return leader;
    }

    public void setLeader(Employee leader) {
        this.leader = leader;
    }
}
