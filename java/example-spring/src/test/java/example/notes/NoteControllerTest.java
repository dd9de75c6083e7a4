package example.notes;

import static org.hamcrest.Matchers.hasSize;
import static org.springframework.test.web.servlet.request.MockMvcRequestBuilders.get;
import static org.springframework.test.web.servlet.request.MockMvcRequestBuilders.post;
import static org.springframework.test.web.servlet.result.MockMvcResultMatchers.jsonPath;
import static org.springframework.test.web.servlet.result.MockMvcResultMatchers.status;

import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.autoconfigure.web.servlet.AutoConfigureMockMvc;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.test.web.servlet.MockMvc;

@SpringBootTest(
        properties = {"notes.url=mortar:memory", "spring.main.banner-mode=off", "logging.level.root=WARN"})
@AutoConfigureMockMvc
class NoteControllerTest {
    @Autowired
    private MockMvc service;

    @Test
    void notes_are_written_and_found() throws Exception {
        String milk = service.perform(post("/notes").content("Buy milk"))
                .andExpect(status().isCreated())
                .andReturn()
                .getResponse()
                .getContentAsString();
        String id = milk.replaceFirst(".*\"id\":(\\d+).*", "$1");
        service.perform(post("/notes").content("Read the paper"))
                .andExpect(status().isCreated())
                .andExpect(jsonPath("$.text").value("Read the paper"));
        service.perform(post("/notes").content(" ")).andExpect(status().isBadRequest());
        service.perform(get("/notes"))
                .andExpect(jsonPath("$", hasSize(2)))
                .andExpect(jsonPath("$[0].text").value("Read the paper"));
        service.perform(get("/notes").param("word", "MILK"))
                .andExpect(jsonPath("$", hasSize(1)))
                .andExpect(jsonPath("$[0].text").value("Buy milk"));
        service.perform(get("/notes/" + id))
                .andExpect(status().isOk())
                .andExpect(jsonPath("$.text").value("Buy milk"));
        service.perform(get("/notes/4711")).andExpect(status().isNotFound());
    }
}
