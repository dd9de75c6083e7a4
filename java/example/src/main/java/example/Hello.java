package example;

import io.mortar.Client;
import java.nio.charset.StandardCharsets;

/** Stores bytes under a name, and reads them. The argument is the URL of a server, which {@code mortar dev} starts. */
public final class Hello {
    private Hello() {}

    public static void main(String[] arguments) {
        try (Client client = arguments.length > 0 ? Client.connect(arguments[0]) : Client.inMemory()) {
            client.run(t -> t.bind("greetings/hello", t.createBlob("Hello, world".getBytes(StandardCharsets.UTF_8))));
            byte[] hello = client.resolve("greetings/hello")
                    .flatMap(client::get)
                    .orElseThrow()
                    .data();
            System.out.println(new String(hello, StandardCharsets.UTF_8));
        }
    }
}
