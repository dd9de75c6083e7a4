package io.mortar.jukebox.browser;

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** What a person does in the pages of a jukebox. */
final class Person {
    static final String TITLES = "#page .track .title";

    private static final AtomicInteger ACCOUNTS = new AtomicInteger();

    private final Browser browser;

    Person(Browser browser) {
        this.browser = browser;
    }

    /** Creates an account with a new name. */
    String register() {
        return register("listener" + ACCOUNTS.incrementAndGet());
    }

    String register(String name) {
        browser.type("#login [name=name]", name);
        browser.type("#login [name=password]", "a long password");
        browser.click("#login [value=register]");
        browser.find("#page h1");
        return name;
    }

    void show(String page) {
        browser.script("location.hash = '#/" + page + "'");
    }

    /** Opens an album by its title. */
    void showAlbum(String title) {
        show("albums");
        browser.await(
                "album " + title, () -> browser.texts("#page .cards .name").contains(title));
        browser.script(
                "Array.from(document.querySelectorAll('#page .cards a')).find(a => a.querySelector('.name').textContent === '"
                        + title + "').click()");
        browser.await(title, () -> browser.texts("#page h1").equals(List.of(title)));
    }

    /** Adds the tracks of an album to the play list with this name. */
    void addAll(String album, String list) {
        showAlbum(album);
        int tracks = browser.texts(TITLES).size();
        for (int i = 1; i <= tracks; i++) {
            int before = browser.texts("#lists a .muted").stream()
                    .mapToInt(Integer::parseInt)
                    .sum();
            browser.click("#page .track:nth-child(" + i + ") [title='Add to a play list']");
            browser.await(
                    "the list " + list,
                    () -> browser.texts("#add-dialog[open] #add-lists button").stream()
                            .anyMatch(text -> text.startsWith(list)));
            browser.script("Array.from(document.querySelectorAll('#add-dialog[open] #add-lists button'))"
                    + ".find(button => button.textContent.startsWith('" + list + "')).click()");
            browser.await(
                    "one more track in the list",
                    () -> browser.texts("#lists a .muted").stream()
                                    .mapToInt(Integer::parseInt)
                                    .sum()
                            == before + 1);
        }
    }

    /** Presses a button at the head of the page by its text. */
    void pressButton(String text) {
        browser.script("Array.from(document.querySelectorAll('#page .head button'))"
                + ".find(button => button.textContent === '" + text + "').click()");
    }

    boolean isPlaying() {
        return Boolean.TRUE.equals(
                browser.script(
                        "const a = document.getElementById('audio'); return !a.paused && a.currentTime > 0.2 && a.error === null"));
    }
}
