package example.notes;

import jakarta.persistence.EntityManager;
import jakarta.persistence.PersistenceContext;
import java.time.Instant;
import java.util.List;
import org.springframework.http.HttpStatus;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

/** Writes notes, and finds them. Each request is a transaction. */
@RestController
@RequestMapping("/notes")
@Transactional
class NoteController {
    @PersistenceContext
    private EntityManager notes;

    @PostMapping
    @ResponseStatus(HttpStatus.CREATED)
    Note write(@RequestBody String text) {
        if (text.isBlank()) {
            throw new ResponseStatusException(HttpStatus.BAD_REQUEST, "a note has a text");
        }
        Note note = new Note(text, Instant.now());
        notes.persist(note);
        return note;
    }

    @GetMapping("/{id}")
    Note read(@PathVariable long id) {
        Note note = notes.find(Note.class, id);
        if (note == null) {
            throw new ResponseStatusException(HttpStatus.NOT_FOUND, "there is no note " + id);
        }
        return note;
    }

    @GetMapping
    List<Note> search(@RequestParam(defaultValue = "") String word) {
        return notes.createQuery(
                        "SELECT n FROM Note n WHERE LOWER(n.text) LIKE :pattern ORDER BY n.written DESC", Note.class)
                .setParameter("pattern", '%' + word.toLowerCase() + '%')
                .setMaxResults(100)
                .getResultList();
    }
}
