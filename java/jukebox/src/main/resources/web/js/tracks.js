// Lists of tracks.

import * as api from "./api.js";
import { ask, count, h, icon, iconButton, notice, time } from "./dom.js";
import * as player from "./player.js";
import { session } from "./session.js";

/**
 * Returns a list of tracks. `options.order` has {move(from, to, track), remove(position, track)} for a play list; without it,
 * the rows have the buttons of the library.
 */
export function trackList(tracks, options = {}) {
  return h("ol", { class: "tracks" }, tracks.map((track, index) => row(tracks, index, options)));
}

function row(tracks, index, { order }) {
  const track = tracks[index];
  const start = () => {
    if (player.current()?.id === track.id) player.pauseOrPlay();
    else player.play(tracks, index);
  };
  const item = h("li", { class: "track" + (order ? " ordered" : ""), "data-track": track.id },
    h("button", { class: "start", title: "Play " + track.title, onclick: start }, icon("play")),
    h("div", { class: "text" }, h("div", { class: "title" }, track.title),
      h("div", { class: "by" }, h("a", { href: "#/artists/" + track.artist.id }, track.artist.name))),
    h("div", { class: "album" }, h("a", { href: "#/albums/" + track.album.id }, track.album.name)),
    h("span", { class: "time" }, time(track.seconds)),
    h("div", { class: "buttons" }, order ? orderButtons(tracks, index, order) : libraryButtons(track)));
  if (order) makeDraggable(item, track, index, order);
  return item;
}

function orderButtons(tracks, index, order) {
  const track = tracks[index];
  return [
    iconButton("up", "Move up", () => order.move(index, index - 1, track), { disabled: index === 0 }),
    iconButton("down", "Move down", () => order.move(index, index + 1, track), { disabled: index === tracks.length - 1 }),
    iconButton("remove", "Remove from the play list", () => order.remove(index, track)),
  ];
}

function libraryButtons(track) {
  const isMine = track.owner === session.account.id;
  return [
    isMine && iconButton("trash", "Remove from the library", async () => {
      if (await ask("Remove “" + track.title + "” from the library?", "Remove")) await removeTrack(track);
    }),
    iconButton("add", "Add to a play list", () => chooseList(track)),
  ];
}

async function removeTrack(track) {
  try {
    await api.remove("tracks/" + track.id);
  } catch (error) {
    notice(error.message);
  }
}

let dragged = null;

function makeDraggable(item, track, index, order) {
  item.draggable = true;
  item.addEventListener("dragstart", (event) => {
    dragged = { index, track };
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", track.title);
    item.classList.add("dragged");
  });
  item.addEventListener("dragend", () => { dragged = null; item.classList.remove("dragged"); });
  item.addEventListener("dragover", (event) => { if (dragged) { event.preventDefault(); item.classList.add("target"); } });
  item.addEventListener("dragleave", () => item.classList.remove("target"));
  item.addEventListener("drop", (event) => {
    event.preventDefault();
    item.classList.remove("target");
    if (dragged && dragged.index !== index) order.move(dragged.index, index, dragged.track);
  });
}

/** Marks the rows of the track that plays. */
export function showPlaying() {
  const id = player.current()?.id;
  for (const item of document.querySelectorAll(".track")) {
    const isCurrent = item.dataset.track === id;
    item.classList.toggle("playing", isCurrent);
    item.querySelector(".start").replaceChildren(icon(isCurrent && player.isPlaying() ? "pause" : "play"));
  }
}

window.addEventListener("player-changed", showPlaying);

const dialog = document.getElementById("add-dialog");
let chosen = null;

async function chooseList(track) {
  chosen = track;
  document.getElementById("add-track").textContent = track.title + " · " + track.artist.name;
  try {
    const lists = await api.get("lists");
    document.getElementById("add-lists").replaceChildren(...lists.map((list) => h("button", {
      onclick: () => addTo(list),
    }, list.name + " ", h("span", { class: "muted" }, count(list.tracks, "track", "tracks")))));
    dialog.showModal();
  } catch (error) {
    notice(error.message);
  }
}

async function addTo(list) {
  dialog.close();
  try {
    await api.post("lists/" + list.id + "/tracks", { track: chosen.id });
    notice("Added to " + list.name + ".");
  } catch (error) {
    notice(error.message);
  }
}

document.getElementById("add-cancel").addEventListener("click", () => dialog.close());
document.getElementById("add-new").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  try {
    await addTo(await api.post("lists", { name: form.elements.name.value }));
    form.reset();
  } catch (error) {
    notice(error.message);
  }
});
