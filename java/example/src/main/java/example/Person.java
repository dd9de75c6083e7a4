package example;

import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;

/** A plain class. The annotation is all that makes its objects persistent. */
@PersistenceCapable
public class Person {
    @Index
    private String name;

    private int age;
    private Person boss;

    protected Person() {}

    public Person(String name, int age, Person boss) {
        this.name = name;
        this.age = age;
        this.boss = boss;
    }

    public void celebrateBirthday() {
        age++;
    }

    @Override
    public String toString() {
        return boss == null ? name + ", " + age : name + ", " + age + ", works for " + boss.name;
    }
}
