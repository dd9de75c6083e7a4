package io.mortar.jdo;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.ListedObject;
import io.mortar.Listing;
import io.mortar.NotFoundException;
import io.mortar.ObjectKind;
import io.mortar.jdo.entities.Sample;
import io.mortar.jdo.model.Film;
import io.mortar.jdo.model.Trailer;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.NonWritableChannelException;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.UUID;
import javax.jdo.JDOException;
import javax.jdo.JDOOptimisticVerificationException;
import javax.jdo.PersistenceManager;
import javax.jdo.Query;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Members with bytes that are streamed. */
class LargeObjectTest {
    private static final int MANY = 300_000;
    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    /** Bytes that depend on their offset, made as they are read. */
    static final class Pattern extends InputStream {
        private final long length;
        private long at;

        Pattern(long length) {
            this.length = length;
        }

        static int octet(long offset) {
            return (int) (offset * 31 + (offset >> 8)) & 0xff;
        }

        @Override
        public int read() {
            return at == length ? -1 : octet(at++);
        }

        @Override
        public int read(byte[] into, int offset, int count) {
            int read = (int) Math.min(count, length - at);
            for (int i = 0; i < read; i++) {
                into[offset + i] = (byte) octet(at++);
            }
            return read == 0 && count > 0 ? -1 : read;
        }
    }

    private static LargeObject pattern(long length) {
        return LargeObject.of(new Pattern(length));
    }

    private static void assertPattern(long length, LargeObject object) {
        try (InputStream bytes = object.read()) {
            byte[] piece = new byte[8192];
            long at = 0;
            for (int read; (read = bytes.read(piece)) > 0; ) {
                for (int i = 0; i < read; i++) {
                    if (piece[i] != (byte) Pattern.octet(at++)) {
                        throw new AssertionError("the byte at " + (at - 1) + " differs");
                    }
                }
            }
            assertEquals(length, at);
            assertEquals(length, object.length());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String text(LargeObject object) {
        try (InputStream bytes = object.read()) {
            return new String(bytes.readAllBytes(), UTF_8);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static LargeObject of(String text) {
        return LargeObject.of(text.getBytes(UTF_8));
    }

    private Object create(LargeObject video) {
        return store.call(manager -> manager.getObjectId(manager.makePersistent(new Film("A", video))));
    }

    private static Film film(PersistenceManager manager, Object id) {
        return (Film) manager.getObjectById(id);
    }

    private int blobs() {
        int blobs = 0;
        try (Listing<ListedObject> objects = store.client().objects()) {
            while (objects.hasNext()) {
                blobs += objects.next().kind() == ObjectKind.BLOB ? 1 : 0;
            }
        }
        return blobs;
    }

    @Test
    void few_and_many_bytes_are_kept() {
        Object none = create(LargeObject.of(new byte[0]));
        Object few = create(of("few"));
        Object many = create(pattern(MANY));
        store.run(manager -> {
            assertPattern(0, film(manager, none).getVideo());
            assertEquals("few", text(film(manager, few).getVideo()));
            assertPattern(MANY, film(manager, many).getVideo());
        });
        assertEquals(3, blobs());
    }

    @Test
    void many_bytes_pass_through_a_small_heap() throws Exception {
        String output = ChildProgram.run(StreamProgram.class, "24m");
        assertEquals("67108864 bytes: ok", output);
    }

    @Test
    void a_file_is_stored_and_can_be_read_before() throws IOException {
        Path file = Files.createTempFile("large", ".bin");
        try {
            Files.writeString(file, "0123456789");
            LargeObject object = LargeObject.of(file);
            assertEquals(10, object.length());
            assertEquals("234", new String(object.read(2, 5).readAllBytes(), UTF_8));
            Object id = create(object);
            assertEquals("0123456789", text(object));
            store.run(
                    manager -> assertEquals("0123456789", text(film(manager, id).getVideo())));
        } finally {
            Files.delete(file);
        }
    }

    @Test
    void a_file_is_not_read_after_it_was_stored() throws IOException {
        Path file = Files.createTempFile("large", ".txt");
        try (PersistenceManager manager = store.manager()) {
            Files.writeString(file, "first");
            LargeObject video = LargeObject.of(file);
            manager.currentTransaction().begin();
            manager.makePersistent(new Film("film", video));
            manager.flush();
            manager.currentTransaction().rollback();
            Files.writeString(file, "second");
            assertEquals("second", text(video));
            manager.currentTransaction().begin();
            manager.makePersistent(new Film("film", video));
            manager.currentTransaction().commit();
            Files.writeString(file, "the third");
            assertEquals("second", text(video));
            assertEquals(6, video.length());
            manager.currentTransaction().begin();
            Film copy = manager.makePersistent(new Film("copy", video));
            manager.currentTransaction().commit();
            manager.currentTransaction().begin();
            assertEquals("second", text(copy.getVideo()));
            manager.currentTransaction().rollback();
        } finally {
            Files.delete(file);
        }
    }

    @Test
    void another_large_object_replaces_the_blob() {
        Object id = create(pattern(MANY));
        LargeObject before = store.call(manager -> film(manager, id).getVideo());
        store.run(manager -> film(manager, id).setVideo(of("new")));
        store.run(manager -> assertEquals("new", text(film(manager, id).getVideo())));
        assertEquals(1, blobs());
        assertTrue(assertThrows(IOException.class, () -> before.read().read()).getCause() instanceof NotFoundException);
        store.run(manager -> film(manager, id).setVideo(null));
        store.run(manager -> assertNull(film(manager, id).getVideo()));
        assertEquals(0, blobs());
    }

    @Test
    void a_change_of_another_member_keeps_the_blob() {
        Object id = create(pattern(MANY));
        LargeObject before = store.call(manager -> film(manager, id).getVideo());
        store.run(manager -> film(manager, id).setTitle("B"));
        store.run(manager -> {
            assertEquals(before, film(manager, id).getVideo());
            assertPattern(MANY, film(manager, id).getVideo());
        });
    }

    @Test
    void deleting_the_object_deletes_its_blobs() {
        Object id = create(pattern(MANY));
        store.run(manager -> film(manager, id).setTrailer(new Trailer("en", of("trailer"))));
        assertEquals(2, blobs());
        store.run(manager ->
                assertEquals("trailer", text(film(manager, id).getTrailer().getVideo())));
        store.run(manager -> film(manager, id).setTrailer(null));
        assertEquals(1, blobs());
        store.run(manager -> film(manager, id).setTrailer(new Trailer("de", of("Vorschau"))));
        store.run(manager -> manager.deletePersistent(film(manager, id)));
        assertEquals(0, blobs());
    }

    @Test
    void a_rollback_leaves_nothing() {
        Object id = create(of("old"));
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().begin();
            manager.makePersistent(new Film("B", pattern(MANY)));
            film(manager, id).setVideo(pattern(MANY));
            manager.flush();
            manager.currentTransaction().rollback();
        }
        store.run(manager -> assertEquals("old", text(film(manager, id).getVideo())));
        assertEquals(1, blobs());
    }

    @Test
    void several_flushes_of_a_transaction_keep_the_last_bytes() {
        Object id = create(of("0"));
        store.run(manager -> {
            film(manager, id).setVideo(pattern(MANY));
            manager.flush();
            film(manager, id).setVideo(of("2"));
            manager.flush();
            film(manager, id).setVideo(pattern(MANY + 1));
        });
        store.run(manager -> assertPattern(MANY + 1, film(manager, id).getVideo()));
        assertEquals(1, blobs());
    }

    @Test
    void of_two_transactions_that_replace_the_bytes_one_conflicts() {
        Object id = create(of("old"));
        try (PersistenceManager first = store.manager();
                PersistenceManager second = store.manager()) {
            first.currentTransaction().begin();
            second.currentTransaction().begin();
            film(first, id).setVideo(pattern(MANY));
            film(second, id).setVideo(of("second"));
            first.currentTransaction().commit();
            assertThrows(JDOOptimisticVerificationException.class, second.currentTransaction()::commit);
        }
        store.run(manager -> assertPattern(MANY, film(manager, id).getVideo()));
        assertEquals(1, blobs());
    }

    @Test
    void a_stream_that_fails_fails_the_commit() {
        InputStream broken = new InputStream() {
            @Override
            public int read() throws IOException {
                throw new IOException("the disk is on fire");
            }
        };
        JDOException error = assertThrows(JDOException.class, () -> create(LargeObject.of(broken)));
        assertTrue(error.toString().contains("the disk is on fire"), error.toString());
        assertEquals(0, blobs());
    }

    @Test
    void a_large_object_of_two_members_is_copied() {
        Object first = create(pattern(MANY));
        Object second = store.call(manager -> manager.getObjectId(
                manager.makePersistent(new Film("B", film(manager, first).getVideo()))));
        assertEquals(2, blobs());
        store.run(manager -> manager.deletePersistent(film(manager, first)));
        store.run(manager -> assertPattern(MANY, film(manager, second).getVideo()));
    }

    @Test
    void a_detached_object_can_be_read_and_attached() throws Exception {
        Object id = create(pattern(MANY));
        Film detached = store.call(manager -> manager.detachCopy(film(manager, id)));
        assertPattern(MANY, detached.getVideo());
        detached.setTitle("B");
        store.run(manager -> manager.makePersistent(detached));
        store.run(manager -> {
            assertEquals("B", film(manager, id).getTitle());
            assertPattern(MANY, film(manager, id).getVideo());
        });
        Film sent = store.call(manager -> manager.detachCopy(film(manager, id)));
        sent.setVideo(of("new"));
        store.run(manager -> manager.makePersistent(sent));
        store.run(manager -> assertEquals("new", text(film(manager, id).getVideo())));
        assertEquals(1, blobs());
        LargeObject serialized =
                serialized(store.call(manager -> film(manager, id).getVideo()));
        assertTrue(assertThrows(RuntimeException.class, serialized::read)
                .getMessage()
                .contains("serialized"));
    }

    private static LargeObject serialized(LargeObject object) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(object);
        }
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
            return (LargeObject) in.readObject();
        }
    }

    @Test
    void a_channel_reads_anywhere_and_does_not_write() throws IOException {
        Object id = create(pattern(MANY));
        LargeObject object = store.call(manager -> film(manager, id).getVideo());
        try (SeekableByteChannel channel = object.channel()) {
            assertEquals(MANY, channel.size());
            for (long position : new long[] {0, 250_000, 7, MANY - 1}) {
                ByteBuffer two = ByteBuffer.allocate(2);
                channel.position(position);
                while (two.hasRemaining() && channel.read(two) >= 0) {}
                assertEquals((byte) Pattern.octet(position), two.get(0));
                assertEquals(Math.min(MANY, position + 2), channel.position());
            }
            assertEquals(-1, channel.position(MANY).read(ByteBuffer.allocate(1)));
            assertThrows(NonWritableChannelException.class, () -> channel.write(ByteBuffer.allocate(1)));
        }
        byte[] part = object.read(100, 104).readAllBytes();
        assertArrayEquals(
                new byte[] {
                    (byte) Pattern.octet(100),
                    (byte) Pattern.octet(101),
                    (byte) Pattern.octet(102),
                    (byte) Pattern.octet(103)
                },
                part);
    }

    @Test
    void queries_test_for_null() {
        create(of("a"));
        create(null);
        store.run(manager -> {
            Query<Film> query = manager.newQuery(Film.class, "video == null");
            assertEquals(1, query.executeList().size());
            assertTrue(Queries.inMemory(query).isEmpty());
        });
    }

    @Test
    void an_entity_has_large_objects() {
        String url = "mortar:memory:" + UUID.randomUUID();
        EntityManagerFactory factory =
                Persistence.createEntityManagerFactory("music", Map.of("jakarta.persistence.jdbc.url", url));
        try (Store same = Store.with(Map.of("javax.jdo.option.ConnectionURL", url))) {
            EntityManager manager = factory.createEntityManager();
            manager.getTransaction().begin();
            manager.persist(new Sample("a", pattern(MANY)));
            manager.getTransaction().commit();
            manager.getTransaction().begin();
            Sample found = factory.createEntityManager().find(Sample.class, "a");
            assertPattern(MANY, found.getBytes());
            manager.find(Sample.class, "a").setBytes(of("new"));
            manager.getTransaction().commit();
            assertEquals(
                    "new",
                    text(factory.createEntityManager().find(Sample.class, "a").getBytes()));
            manager.close();
        } finally {
            factory.close();
        }
    }
}
