package io.mortar.jdo.model;

import java.util.HashSet;
import java.util.Set;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;

/** An element of bidirectional relations. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Employee {
    private String name;
    private long salary;
    private Department department;
    private Department leads;
    private Set<Project> projects = new HashSet<>();

    protected Employee() {}

    public Employee(String name, long salary) {
        this.name = name;
        this.salary = salary;
    }

    public String getName() {
        return name;
    }

    public long getSalary() {
        return salary;
    }

    public void setSalary(long salary) {
        this.salary = salary;
    }

    public Department getDepartment() {
        return department;
    }

    public void setDepartment(Department department) {
        this.department = department;
    }

    public Department getLeads() {
        return leads;
    }

    public void setLeads(Department leads) {
        this.leads = leads;
    }

    public Set<Project> getProjects() {
        return projects;
    }
}
