// The page for uploads. Files go one after the other and go on while other pages are shown.

import * as api from "./api.js";
import { h, notice } from "./dom.js";
import { session } from "./session.js";

const list = h("ul", { class: "uploads", "aria-label": "Uploads" });
let last = Promise.resolve();

export function uploadPage() {
  return {
    topics: [],
    load: async () => [h("h1", {}, "Upload"), dropField(), list],
  };
}

function dropField() {
  const input = h("input", { type: "file", id: "files", multiple: true, accept: "audio/*,.flac,.ogg,.oga,.mp3,.m4a,.wav" });
  input.addEventListener("change", () => { add(input.files); input.value = ""; });
  const field = h("label", { class: "drop", id: "drop" }, input, h("strong", {}, "Choose music, or drop it here"),
    h("div", { class: "muted" }, "FLAC, Ogg Vorbis, MP3, MP4 or WAV, up to " + Math.floor(session.uploadBytes / (1 << 20)) + " MiB a file"));
  field.addEventListener("dragover", (event) => { event.preventDefault(); field.classList.add("over"); });
  field.addEventListener("dragleave", () => field.classList.remove("over"));
  field.addEventListener("drop", (event) => {
    event.preventDefault();
    field.classList.remove("over");
    add(event.dataTransfer.files);
  });
  return field;
}

function add(files) {
  for (const file of files) {
    const bar = h("progress", { max: 1, value: 0, "aria-label": file.name });
    const state = h("div", { class: "state muted" }, "waits");
    list.prepend(h("li", {}, h("span", { class: "name" }, file.name), bar, state));
    last = last.then(() => send(file, bar, state));
  }
}

async function send(file, bar, state) {
  try {
    if (file.size > session.uploadBytes) throw new Error("The file is too large.");
    state.textContent = "is sent";
    const track = await api.upload(file, (part) => {
      bar.value = part;
      if (part === 1) state.textContent = "is stored";
    });
    bar.value = 1;
    state.replaceChildren(h("a", { href: "#/albums/" + track.album.id }, track.title + " · " + track.artist.name));
    state.classList.add("stored");
  } catch (error) {
    state.textContent = error.message;
    state.classList.add("failed");
    if (error.status === 401) notice("Log in again.");
  }
}
