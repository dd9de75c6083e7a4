package io.mortar.jukebox.browser;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import org.openqa.selenium.By;
import org.openqa.selenium.OutputType;
import org.openqa.selenium.WebElement;
import org.openqa.selenium.chrome.ChromeDriver;
import org.openqa.selenium.chrome.ChromeDriverService;
import org.openqa.selenium.chrome.ChromeOptions;
import org.openqa.selenium.logging.LogEntry;
import org.openqa.selenium.logging.LogType;
import org.openqa.selenium.logging.LoggingPreferences;
import org.openqa.selenium.support.ui.WebDriverWait;

/** Chromium without a window, as Debian packages it. */
final class Browser implements AutoCloseable {
    private static final Duration LONGEST = Duration.ofSeconds(15);

    private final Path profile;
    private final ChromeDriver driver;

    Browser() throws IOException {
        profile = Files.createTempDirectory("jukebox-browser-");
        ChromeOptions options = new ChromeOptions();
        options.setBinary(System.getProperty("jukebox.chromium", "/usr/bin/chromium"));
        options.addArguments(
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--user-data-dir=" + profile,
                "--hide-scrollbars",
                "--lang=en");
        LoggingPreferences logs = new LoggingPreferences();
        logs.enable(LogType.BROWSER, Level.ALL);
        options.setCapability("goog:loggingPrefs", logs);
        ChromeDriverService service = new ChromeDriverService.Builder()
                .usingDriverExecutable(Path.of(System.getProperty("jukebox.chromedriver", "/usr/bin/chromedriver"))
                        .toFile())
                .build();
        driver = new ChromeDriver(service, options);
        desktop();
    }

    void open(String address) {
        driver.get(address);
    }

    String newTab() {
        return driver.switchTo().newWindow(org.openqa.selenium.WindowType.TAB).getWindowHandle();
    }

    String tab() {
        return driver.getWindowHandle();
    }

    void tab(String handle) {
        driver.switchTo().window(handle);
    }

    /** The element, when it is visible. */
    WebElement find(String selector) {
        return new WebDriverWait(driver, LONGEST)
                .ignoring(org.openqa.selenium.StaleElementReferenceException.class)
                .until(d -> {
                    List<WebElement> found = d.findElements(By.cssSelector(selector));
                    return found.isEmpty() || !found.get(0).isDisplayed() ? null : found.get(0);
                });
    }

    void click(String selector) {
        new WebDriverWait(driver, LONGEST)
                .ignoring(org.openqa.selenium.WebDriverException.class)
                .until(d -> {
                    find(selector).click();
                    return true;
                });
    }

    void type(String selector, CharSequence... keys) {
        WebElement field = find(selector);
        field.clear();
        field.sendKeys(keys);
    }

    /** Chooses files in a field, which may be invisible. */
    void choose(String selector, List<Path> files) {
        driver.findElement(By.cssSelector(selector))
                .sendKeys(String.join("\n", files.stream().map(Path::toString).toList()));
    }

    /** The texts of all elements, in their order. */
    List<String> texts(String selector) {
        Object texts = driver.executeScript(
                "return Array.from(document.querySelectorAll(arguments[0]), element => element.textContent.trim())",
                selector);
        return ((List<?>) texts).stream().map(Object::toString).toList();
    }

    Object script(String script) {
        return driver.executeScript(script);
    }

    void await(String what, BooleanSupplier condition) {
        new WebDriverWait(driver, LONGEST).withMessage(what).until(d -> condition.getAsBoolean());
    }

    void awaitTexts(String selector, List<String> expected) {
        new WebDriverWait(driver, LONGEST)
                .withMessage(() -> selector + " is " + texts(selector) + ", not " + expected)
                .until(d -> texts(selector).equals(expected));
    }

    void desktop() {
        metrics(1080, 680, false);
    }

    void phone() {
        metrics(390, 780, true);
    }

    private void metrics(int width, int height, boolean mobile) {
        driver.executeCdpCommand(
                "Emulation.setDeviceMetricsOverride",
                Map.of("width", width, "height", height, "deviceScaleFactor", 1, "mobile", mobile));
    }

    /** Moves the pointer to where nothing reacts to it. */
    void pointAway() {
        driver.executeCdpCommand("Input.dispatchMouseEvent", Map.of("type", "mouseMoved", "x", 2, "y", 2));
    }

    void colours(String scheme) {
        driver.executeCdpCommand(
                "Emulation.setEmulatedMedia",
                Map.of("features", List.of(Map.of("name", "prefers-color-scheme", "value", scheme))));
    }

    /** Writes a picture of the page into the folder that the property {@code jukebox.screenshots} names. */
    void picture(String name) throws IOException {
        Path folder = Path.of(System.getProperty("jukebox.screenshots"));
        Files.createDirectories(folder);
        Files.write(folder.resolve(name + ".png"), driver.getScreenshotAs(OutputType.BYTES));
    }

    /**
     * The errors that the page has reported since the last call, such as violations of its security policy. The first
     * request of a page, for the account, is refused before the login, and does not count.
     */
    List<String> errors() {
        return driver.manage().logs().get(LogType.BROWSER).getAll().stream()
                .filter(entry -> entry.getLevel().intValue() >= Level.SEVERE.intValue())
                .map(LogEntry::getMessage)
                .filter(message -> !message.contains("/api/me "))
                .toList();
    }

    @Override
    public void close() throws IOException {
        driver.quit();
        try (var files = Files.walk(profile)) {
            for (Path file : files.sorted(java.util.Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        }
    }
}
