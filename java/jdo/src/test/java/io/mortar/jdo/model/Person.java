package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.jdo.annotations.Embedded;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;
import javax.jdo.annotations.Version;
import javax.jdo.annotations.VersionStrategy;

/** A class with datastore identity, references to itself, collections and an embedded object. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
@Version(strategy = VersionStrategy.VERSION_NUMBER)
public class Person {
    @Index
    private String name;

    private int age;
    private Double height;
    private boolean active = true;
    private Person boss;
    private Set<Person> friends = new HashSet<>();
    private List<String> tags = new ArrayList<>();
    private Map<String, Integer> scores = new HashMap<>();

    @Persistent(defaultFetchGroup = "true")
    @Embedded
    private Address address;

    protected Person() {}

    public Person(String name, int age) {
        this.name = name;
        this.age = age;
    }

    public String getName() {
        return name;
    }

    public void setName(String name) {
        this.name = name;
    }

    public int getAge() {
        return age;
    }

    public void setAge(int age) {
        this.age = age;
    }

    public Double getHeight() {
        return height;
    }

    public void setHeight(Double height) {
        this.height = height;
    }

    public boolean isActive() {
        return active;
    }

    public void setActive(boolean active) {
        this.active = active;
    }

    public Person getBoss() {
        return boss;
    }

    public void setBoss(Person boss) {
        this.boss = boss;
    }

    public Set<Person> getFriends() {
        return friends;
    }

    public List<String> getTags() {
        return tags;
    }

    public Map<String, Integer> getScores() {
        return scores;
    }

    public Address getAddress() {
        return address;
    }

    public void setAddress(Address address) {
        this.address = address;
    }
}
