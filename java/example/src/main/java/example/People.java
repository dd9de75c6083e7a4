package example;

import java.util.List;
import java.util.Map;
import javax.jdo.JDOHelper;
import javax.jdo.PersistenceManager;
import javax.jdo.PersistenceManagerFactory;

/** Stores people who work for each other, and finds them. The argument is the URL of the store. */
public final class People {
    private People() {}

    public static void main(String[] arguments) {
        String url = arguments.length > 0 ? arguments[0] : "mortar:embedded:people-data";
        PersistenceManagerFactory factory = JDOHelper.getPersistenceManagerFactory(Map.of(
                "javax.jdo.PersistenceManagerFactoryClass", "org.datanucleus.api.jdo.JDOPersistenceManagerFactory",
                "javax.jdo.option.ConnectionURL", url,
                "javax.jdo.option.Optimistic", "true"));
        try (PersistenceManager manager = factory.getPersistenceManager()) {
            manager.currentTransaction().begin();
            Person ann = new Person("Ann", 50, null);
            manager.makePersistent(new Person("Bob", 30, ann)); // and Ann, whom Bob refers to
            manager.currentTransaction().commit();

            manager.currentTransaction().begin();
            ann.celebrateBirthday(); // the commit writes what has changed
            manager.currentTransaction().commit();

            List<Person> found = manager.newQuery(Person.class, "boss.name == 'Ann' && boss.age > 50")
                    .executeList();
            found.forEach(System.out::println);
        } finally {
            factory.close();
        }
    }
}
