package io.mortar.jukebox.audio;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jukebox.RunningJukebox;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.Library;
import io.mortar.jukebox.model.Slice;
import io.mortar.jukebox.sample.TestPiece;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MusicImportTest {
    @Test
    void a_folder_is_imported_once_without_the_files_that_are_refused(@TempDir Path folder) throws IOException {
        byte[] wav = TestPiece.wav("Imported", "Artist", "Album", "", 1);
        Files.write(Files.createDirectory(folder.resolve("sub")).resolve("a.wav"), wav);
        Files.write(folder.resolve("wrong-extension.mp3"), TestPiece.wav("Misnamed", "Artist", "Album", "", 2));
        Files.writeString(folder.resolve("notes.wav"), "no music");
        Files.writeString(folder.resolve("notes.txt"), "no music");
        Files.write(folder.resolve("large.wav"), new byte[wav.length * 2]);
        try (RunningJukebox jukebox = new RunningJukebox(1)) {
            Library library = jukebox.store().library();
            String house =
                    jukebox.store().accounts().register(Accounts.HOUSE, "").id();
            MusicImport into = new MusicImport(library, house, wav.length + 100L, () -> false);
            assertEquals(2, into.add(folder));
            assertEquals(0, into.add(folder));
            assertEquals(
                    "Misnamed", library.newest(new Slice(0, 1)).items().get(0).title());
        }
    }
}
