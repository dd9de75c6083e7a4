package example.notes;

import jakarta.persistence.EntityManagerFactory;
import java.util.Map;
import org.datanucleus.api.jakarta.PersistenceProviderImpl;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.orm.jpa.JpaTransactionManager;
import org.springframework.orm.jpa.LocalContainerEntityManagerFactoryBean;
import org.springframework.transaction.PlatformTransactionManager;

/** A service for notes. {@code --notes.url=mortar://localhost:6678/main} says where they are. */
@SpringBootApplication(proxyBeanMethods = false)
public class NotesApplication {
    public static void main(String[] arguments) {
        SpringApplication.run(NotesApplication.class, arguments);
    }

    @Bean
    LocalContainerEntityManagerFactoryBean entityManagerFactory(@Value("${notes.url}") String url) {
        LocalContainerEntityManagerFactoryBean factory = new LocalContainerEntityManagerFactoryBean();
        factory.setPersistenceProviderClass(PersistenceProviderImpl.class);
        factory.setPackagesToScan(NotesApplication.class.getPackageName());
        factory.setJpaPropertyMap(Map.of("jakarta.persistence.jdbc.url", url));
        return factory;
    }

    @Bean
    PlatformTransactionManager transactionManager(EntityManagerFactory factory) {
        return new JpaTransactionManager(factory);
    }
}
