package io.mortar.jukebox.browser;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jukebox.RunningJukebox;
import io.mortar.jukebox.audio.MusicImport;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.sample.SampleMusic;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.openqa.selenium.Keys;

/** The jukebox as a person uses it: two instances on one store, in a real browser. */
@Tag("browser")
class BrowserTest {
    private static final String TITLES = Person.TITLES;

    @TempDir
    private static Path folder;

    private static RunningJukebox jukebox;
    private Browser browser;
    private Person person;

    @BeforeAll
    static void start() throws IOException {
        jukebox = new RunningJukebox(2);
        String house = jukebox.store().accounts().register(Accounts.HOUSE, "").id();
        Path samples = Files.createDirectory(folder.resolve("samples"));
        SampleMusic.write(samples);
        new MusicImport(jukebox.store().library(), house, RunningJukebox.UPLOAD_BYTES, () -> false).add(samples);
    }

    @AfterAll
    static void stop() {
        jukebox.close();
    }

    @BeforeEach
    void openBrowser() throws IOException {
        browser = new Browser();
        browser.open(jukebox.address(0));
        person = new Person(browser);
    }

    @AfterEach
    void closeBrowser() throws IOException {
        browser.close();
    }

    @Test
    void a_person_registers_leaves_and_comes_back() {
        String name = person.register();
        assertTrue(browser.find("#logout").getText().contains(name));
        browser.click("#logout");
        browser.type("#login [name=name]", name);
        browser.type("#login [name=password]", "a wrong password");
        browser.click("#login [value=login]");
        browser.awaitTexts("#login-error", List.of("the name or the password is wrong"));
        browser.type("#login [name=password]", "a long password");
        browser.click("#login [value=login]");
        browser.find("#page .tracks");
        browser.open(jukebox.address(1));
        browser.find("#page .tracks");
    }

    @Test
    void uploaded_flac_and_ogg_are_played() throws Exception {
        String title = "<b>Loud</b> & clear";
        List<Path> files = List.of(
                AudioFiles.flac(folder, title, "Uploader", "Formats"),
                AudioFiles.ogg(folder, "Soft", "Uploader", "Formats"),
                Files.writeString(folder.resolve("notes.txt"), "no music"));
        person.register();
        person.show("upload");
        browser.find("#drop");
        browser.choose("#files", files);
        browser.await(
                "two stored files", () -> browser.texts(".uploads .stored").size() == 2);
        browser.await(
                "one refused file", () -> browser.texts(".uploads .failed").size() == 1);
        assertTrue(browser.texts(".uploads .failed").get(0).contains("not audio"));
        browser.errors();

        person.showAlbum("Formats");
        browser.awaitTexts(TITLES, List.of(title, "Soft"));
        browser.click("#page .head .primary");
        browser.await("FLAC plays", person::isPlaying);
        browser.awaitTexts("#now-title", List.of(title));
        browser.click("#player-next");
        browser.awaitTexts("#now-title", List.of("Soft"));
        browser.await("Ogg plays", person::isPlaying);
        browser.script("const a = document.getElementById('audio'); a.currentTime = a.duration - 1");
        browser.await(
                "the end of the list",
                () -> Boolean.TRUE.equals(browser.script("return document.getElementById('audio').ended")));
        assertEquals(List.of(), browser.errors());
    }

    @Test
    void a_play_list_changes_in_the_other_instance_while_it_is_shown() throws Exception {
        person.register();
        browser.type("#new-list [name=name]", "Evening", Keys.ENTER);
        browser.await("the new list", () -> browser.texts("#page h1").equals(List.of("Evening")));
        person.addAll("Songs of the British Isles", "Evening");
        browser.click("#lists a");
        browser.awaitTexts(TITLES, List.of("Greensleeves", "Scarborough Fair"));
        String address = (String) browser.script("return location.hash");
        String here = browser.tab();

        String there = browser.newTab();
        browser.open(jukebox.address(1) + "/" + address);
        browser.awaitTexts(TITLES, List.of("Greensleeves", "Scarborough Fair"));

        browser.tab(here);
        browser.click("#page .track:nth-child(1) [title='Move down']");
        browser.awaitTexts(TITLES, List.of("Scarborough Fair", "Greensleeves"));
        browser.tab(there);
        browser.awaitTexts(TITLES, List.of("Scarborough Fair", "Greensleeves"));

        browser.click("#page .track:nth-child(2) [title='Remove from the play list']");
        browser.awaitTexts(TITLES, List.of("Scarborough Fair"));
        browser.tab(here);
        browser.awaitTexts(TITLES, List.of("Scarborough Fair"));

        person.pressButton("Rename");
        browser.type("#ask-text", "Night", Keys.ENTER);
        browser.tab(there);
        browser.awaitTexts("#page h1", List.of("Night"));
        browser.awaitTexts("#lists a span:first-child", List.of("Night"));
        assertEquals(List.of(), browser.errors());

        person.pressButton("Delete");
        browser.click("#ask-yes");
        browser.awaitTexts("#lists a", List.of());
        browser.tab(here);
        browser.awaitTexts("#lists a", List.of());
        browser.awaitTexts("#page .empty", List.of("there is no such play list"));
    }

    @Test
    void new_music_appears_in_the_other_instance() throws Exception {
        person.register();
        String here = browser.tab();
        String there = browser.newTab();
        browser.open(jukebox.address(1));
        browser.find("#page .tracks");
        browser.tab(here);
        person.show("upload");
        browser.find("#drop");
        browser.choose("#files", List.of(AudioFiles.ogg(folder, "Just arrived", "Uploader", "Arrivals")));
        browser.tab(there);
        browser.await("the new track", () -> browser.texts(TITLES).contains("Just arrived"));
    }

    @Test
    void a_person_removes_an_own_track_from_the_library() throws Exception {
        person.register();
        person.show("upload");
        browser.find("#drop");
        browser.choose("#files", List.of(AudioFiles.ogg(folder, "Mistake", "Uploader", "Mistakes")));
        browser.await("the upload", () -> browser.texts(".uploads .stored").size() == 1);
        person.showAlbum("Mistakes");
        browser.click("#page .track [title='Remove from the library']");
        browser.click("#ask-yes");
        browser.awaitTexts("#page .empty", List.of("there is no such album"));
        person.showAlbum("Peer Gynt");
        assertEquals(List.of(), browser.texts("#page .track [title='Remove from the library']"));
    }

    @Test
    void a_search_finds_a_track() {
        person.register();
        browser.type("#search [name=q]", "fur elise", Keys.ENTER);
        browser.awaitTexts(TITLES, List.of("Für Elise"));
    }
}
