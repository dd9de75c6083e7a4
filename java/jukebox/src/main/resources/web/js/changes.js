// Receives changes from the service, including those that other accounts make and those at other instances.

let source = null;
let watched = "";

/** Watches topics instead of those before; `changed` is called with the topics of each change, and with all after a (re)connection. */
export function watch(topics, changed) {
  const wanted = topics.map((topic) => "topic=" + encodeURIComponent(topic)).join("&");
  if (wanted === watched && source !== null && source.readyState !== EventSource.CLOSED) return;
  stop();
  watched = wanted;
  open(topics, wanted, changed);
}

function open(topics, wanted, changed) {
  const opened = new EventSource("/api/changes?" + wanted);
  source = opened;
  // A change between the first load of a page and this moment would be missed otherwise.
  opened.addEventListener("ready", (event) => changed(JSON.parse(event.data)));
  opened.addEventListener("changed", (event) => changed(JSON.parse(event.data)));
  opened.addEventListener("error", () => {
    // The browser connects again by itself, except after a refusal.
    if (opened.readyState === EventSource.CLOSED) {
      setTimeout(() => { if (source === opened) open(topics, wanted, changed); }, 5000);
    }
  });
}

export function stop() {
  source?.close();
  source = null;
  watched = "";
}

window.addEventListener("pagehide", stop);
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
