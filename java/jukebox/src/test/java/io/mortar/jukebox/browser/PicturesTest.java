package io.mortar.jukebox.browser;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jukebox.RunningJukebox;
import io.mortar.jukebox.audio.MusicImport;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.sample.SampleMusic;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.openqa.selenium.Keys;

/** Pages on a desktop and on a phone, light and dark. The pictures are those of the documentation. */
@Tag("browser")
class PicturesTest {
    @TempDir
    private Path samples;

    private Browser browser;
    private Person person;

    @Test
    void pages_fit_a_desktop_and_a_phone_in_light_and_dark() throws IOException {
        try (RunningJukebox jukebox = new RunningJukebox(1);
                Browser opened = new Browser()) {
            SampleMusic.write(samples);
            String house =
                    jukebox.store().accounts().register(Accounts.HOUSE, "").id();
            new MusicImport(jukebox.store().library(), house, RunningJukebox.UPLOAD_BYTES, () -> false).add(samples);
            browser = opened;
            person = new Person(browser);
            browser.open(jukebox.address(0));
            person.register("ann");
            makeLists();

            browser.colours("light");
            showList();
            picture("jukebox-play-list");
            browser.colours("dark");
            showAlbums();
            picture("jukebox-albums-dark");
            browser.phone();
            picture("jukebox-phone-dark");
            browser.colours("light");
            showList();
            picture("jukebox-phone");
            browser.click("#links .narrow");
            browser.awaitTexts("#page .cards .name", List.of("Evening", "Sunday morning"));
            person.show("upload");
            browser.find("#drop");
            assertFits("upload");
        }
    }

    private void makeLists() {
        for (String list : List.of("Evening", "Sunday morning")) {
            browser.type("#new-list [name=name]", list, Keys.ENTER);
            browser.await("the new list", () -> browser.texts("#page h1").equals(List.of(list)));
        }
        for (String album : List.of("Peer Gynt", "Nursery Tunes", "Bagatelles", "The Well-Tempered Clavier")) {
            person.addAll(album, "Sunday morning");
        }
        person.addAll("Songs of the British Isles", "Evening");
        showList();
        browser.click("#page .track:nth-child(2) .start");
        browser.await("music", person::isPlaying);
        // Stops where the bar looks good.
        browser.script("const a = document.getElementById('audio'); a.currentTime = 7; a.pause()");
    }

    private void showList() {
        browser.script("Array.from(document.querySelectorAll('#lists a')).at(-1).click()");
        browser.await("the list", () -> browser.texts(Person.TITLES).size() == 5);
    }

    private void showAlbums() {
        person.show("albums");
        browser.await("the albums", () -> browser.texts("#page .cards .name").size() > 5);
    }

    private void picture(String name) throws IOException {
        browser.script("document.getElementById('notice').hidden = true; document.activeElement?.blur()");
        browser.pointAway();
        assertFits(name);
        browser.picture(name);
    }

    private void assertFits(String page) {
        assertEquals(
                Boolean.TRUE,
                browser.script("return document.documentElement.scrollWidth <= innerWidth"
                        + " && document.getElementById('page').scrollWidth <= innerWidth"
                        + " && document.getElementById('player').getBoundingClientRect().bottom <= innerHeight"),
                page + " fits");
    }
}
