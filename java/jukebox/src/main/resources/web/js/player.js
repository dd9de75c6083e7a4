// The bar at the bottom: plays a queue of tracks.

import { icon, notice, paintCover, time } from "./dom.js";

const audio = document.getElementById("audio");
const toggle = document.getElementById("player-toggle");
const previous = document.getElementById("player-previous");
const next = document.getElementById("player-next");
const seek = document.getElementById("player-seek");
const elapsed = document.getElementById("player-time");
const length = document.getElementById("player-length");

let queue = [];
let position = -1;
let isSeeking = false;

/** The track that is in the player, or null. */
export const current = () => queue[position] ?? null;

/** Plays tracks, beginning with one of them. */
export function play(tracks, index) {
  queue = tracks.slice();
  start(index);
}

/** Plays or pauses the current track. */
export function pauseOrPlay() {
  if (audio.paused) audio.play().catch(failed);
  else audio.pause();
}

export const isPlaying = () => !audio.paused;

export function reset() {
  audio.pause();
  audio.removeAttribute("src");
  queue = [];
  position = -1;
  show();
}

function start(index) {
  position = index;
  const track = current();
  if (track === null) return;
  audio.src = "/api/tracks/" + track.id + "/audio";
  audio.play().catch(failed);
  show();
}

function failed(error) {
  // Another track was chosen before this one began.
  if (error.name === "AbortError") return;
  notice(error.name === "NotAllowedError" ? "Press play to begin." : "This track cannot be played.");
}

function show() {
  const track = current();
  document.getElementById("now-title").textContent = track?.title ?? "Nothing plays";
  document.getElementById("now-artist").textContent = track?.artist.name ?? "";
  const square = document.getElementById("now-cover");
  if (track) paintCover(square, track.album.name);
  else { square.className = "cover"; square.textContent = ""; }
  document.title = track ? track.title + " · " + track.artist.name : "Jukebox";
  toggle.disabled = seek.disabled = track === null;
  previous.disabled = track === null;
  next.disabled = position + 1 >= queue.length;
  length.textContent = time(track?.seconds);
  if ("mediaSession" in navigator) {
    navigator.mediaSession.metadata = track
      ? new MediaMetadata({ title: track.title, artist: track.artist.name, album: track.album.name }) : null;
  }
  showState();
}

function showState() {
  toggle.replaceChildren(icon(audio.paused ? "play" : "pause"));
  toggle.title = audio.paused ? "Play" : "Pause";
  window.dispatchEvent(new Event("player-changed"));
}

function showTime() {
  const total = Number.isFinite(audio.duration) ? audio.duration : current()?.seconds ?? 0;
  elapsed.textContent = time(audio.currentTime);
  length.textContent = time(total);
  if (!isSeeking) seek.value = total ? Math.round(1000 * audio.currentTime / total) : 0;
}

function back() {
  if (audio.currentTime > 3 || position === 0) audio.currentTime = 0;
  else start(position - 1);
}

function forward() {
  if (position + 1 < queue.length) start(position + 1);
}

toggle.addEventListener("click", pauseOrPlay);
previous.addEventListener("click", back);
next.addEventListener("click", forward);
audio.addEventListener("play", showState);
audio.addEventListener("pause", showState);
audio.addEventListener("timeupdate", showTime);
audio.addEventListener("durationchange", showTime);
audio.addEventListener("ended", forward);
audio.addEventListener("error", () => { if (audio.getAttribute("src")) notice("This track cannot be played."); });
seek.addEventListener("input", () => { isSeeking = true; });
seek.addEventListener("change", () => {
  isSeeking = false;
  if (Number.isFinite(audio.duration)) audio.currentTime = audio.duration * seek.value / 1000;
});
if ("mediaSession" in navigator) {
  navigator.mediaSession.setActionHandler("previoustrack", back);
  navigator.mediaSession.setActionHandler("nexttrack", forward);
}
