// The pages of the library and of play lists. Each has the topics whose changes it shows, and loads its content.

import * as api from "./api.js";
import { ask, count, cover, h, icon, notice } from "./dom.js";
import * as player from "./player.js";
import { trackList } from "./tracks.js";
import { uploadPage } from "./upload.js";

const PAGE = 200;

/** Returns the page of an address: {topics, load()}. */
export function pageOf(address) {
  const [kind, ...rest] = address.replace(/^#?\/?/, "").split("/");
  const id = decodeURIComponent(rest.join("/"));
  switch (kind) {
    case "artists": return id ? artistPage(id) : cardsPage("Artists", "artists", countedCard("artists"), "artist");
    case "albums": return id ? albumPage(id) : cardsPage("Albums", "albums", albumCard);
    case "genres": return id ? genrePage(id) : genresPage();
    case "lists": return id ? listPage(id) : listsPage();
    case "search": return tracksPage("“" + id + "”", "search?q=" + encodeURIComponent(id) + "&", "Nothing found.");
    case "upload": return uploadPage();
    default: return tracksPage("New", "newest?", "There is no music yet. Upload some.");
  }
}

/** Loads the parts of a long list that are shown; `shown.pages` grows with the button. */
async function loadPages(path, shown, itemsOf = (reply) => reply) {
  const replies = [];
  for (let page = 0; page < shown.pages; page++) {
    replies.push(await api.get(path + "offset=" + page * PAGE + "&limit=" + PAGE));
    if (!itemsOf(replies[page]).more) break;
  }
  return { first: replies[0], items: replies.flatMap((reply) => itemsOf(reply).items), more: itemsOf(replies.at(-1)).more };
}

function moreButton(list, shown) {
  return list.more && h("button", {
    class: "more",
    onclick: () => { shown.pages++; window.dispatchEvent(new Event("hashchange")); },
  }, "Show more");
}

function head(title, detail, square, ...actions) {
  return h("div", { class: "head" }, square, h("div", { class: "text" }, h("h1", {}, title), h("div", { class: "muted" }, detail)),
    h("div", { class: "actions" }, ...actions));
}

function playButton(tracks) {
  return h("button", { class: "primary", disabled: tracks.length === 0, onclick: () => player.play(tracks, 0) }, icon("play"), " Play");
}

function tracksOrEmpty(tracks, empty, options) {
  return tracks.length ? trackList(tracks, options) : h("p", { class: "empty" }, empty);
}

function tracksPage(title, path, empty) {
  const shown = { pages: 1 };
  return {
    topics: ["library"],
    async load() {
      const list = await loadPages(path, shown);
      const totals = await api.get("totals");
      return [head(title, count(totals.tracks, "track", "tracks") + " in the library", null, playButton(list.items)),
        tracksOrEmpty(list.items, empty), moreButton(list, shown)];
    },
  };
}

function cardsPage(title, path, cardOf, kind) {
  const shown = { pages: 1 };
  return {
    topics: ["library"],
    async load() {
      const list = await loadPages(path + "?", shown);
      return [head(title, "", null),
        cardsOrEmpty(list.items.map(cardOf), kind), moreButton(list, shown)];
    },
  };
}

function card(address, name, detail) {
  return h("li", {}, h("a", { href: address }, cover(name), h("div", { class: "name" }, name), h("div", { class: "muted" }, detail)));
}

/** Returns the card of an artist, a genre or a play list; `kind` is the part of the address before its identifier. */
const countedCard = (kind) => ({ id, name, tracks }) => card("#/" + kind + "/" + id, name, count(tracks, "track", "tracks"));

function albumCard(album) {
  return card("#/albums/" + album.id, album.title, album.artist.name + (album.year ? " · " + album.year : ""));
}

function cardsOrEmpty(cards, kind = "") {
  return cards.length ? h("ul", { class: "cards " + kind }, cards) : h("p", { class: "empty" }, "There is no music yet.");
}

function artistPage(id) {
  return {
    topics: ["artist:" + id],
    async load() {
      const { artist, albums } = await api.get("artists/" + encodeURIComponent(id));
      return [head(artist.name, count(artist.tracks, "track", "tracks"), h("div", { class: "artist" }, cover(artist.name))),
        h("ul", { class: "cards" }, albums.map(albumCard))];
    },
  };
}

function albumPage(id) {
  return {
    topics: ["album:" + id],
    async load() {
      const { album, tracks } = await api.get("albums/" + encodeURIComponent(id));
      const detail = h("span", {}, h("a", { href: "#/artists/" + album.artist.id }, album.artist.name),
        (album.year ? " · " + album.year : "") + " · " + count(album.tracks, "track", "tracks"));
      return [head(album.title, detail, cover(album.title), playButton(tracks)), trackList(tracks)];
    },
  };
}

function genresPage() {
  return {
    topics: ["library"],
    async load() {
      const genres = await api.get("genres");
      return [head("Genres", "", null), cardsOrEmpty(genres.map(countedCard("genres")))];
    },
  };
}

function genrePage(id) {
  const shown = { pages: 1 };
  return {
    topics: ["genre:" + id],
    async load() {
      const list = await loadPages("genres/" + encodeURIComponent(id) + "?", shown, (reply) => reply.tracks);
      const { genre } = list.first;
      return [head(genre.name, count(genre.tracks, "track", "tracks"), cover(genre.name), playButton(list.items)),
        trackList(list.items), moreButton(list, shown)];
    },
  };
}

/** Creates the play list that a form names, and shows it. */
export async function createList(event) {
  event.preventDefault();
  const form = event.target;
  try {
    const list = await api.post("lists", { name: form.elements.name.value });
    form.reset();
    location.hash = "#/lists/" + list.id;
  } catch (error) {
    notice(error.message);
  }
}

/** The page of all play lists, for screens that are too narrow for the list at the side. */
function listsPage() {
  return {
    topics: ["account"],
    async load() {
      const lists = await api.get("lists");
      return [head("Play lists", "", null), h("ul", { class: "cards" }, lists.map(countedCard("lists"))),
      h("form", { class: "new-list", onsubmit: createList },
        h("input", { name: "name", placeholder: "New play list", "aria-label": "Name of a new play list", required: true, maxlength: 200 }),
        h("button", {}, "Create"))];
    },
  };
}

function listPage(id) {
  const path = "lists/" + encodeURIComponent(id);
  const change = async (request) => {
    try {
      await request();
    } catch (error) {
      notice(error.message);
      window.dispatchEvent(new Event("hashchange"));
    }
  };
  const order = {
    move: (from, to, track) => change(() => api.post(path + "/moves", { from, to, track: track.id })),
    remove: (position, track) => change(() => api.remove(path + "/tracks/" + position + "?track=" + encodeURIComponent(track.id))),
  };
  return {
    topics: ["list:" + id],
    async load() {
      const { list, tracks } = await api.get(path);
      const rename = async () => {
        const name = await ask("Rename the play list", "Rename", list.name);
        if (name) await change(() => api.patch(path, { name }));
      };
      const remove = async () => {
        if (await ask("Delete “" + list.name + "”?", "Delete")) {
          await change(async () => { await api.remove(path); location.hash = "#/"; });
        }
      };
      const seconds = tracks.reduce((sum, track) => sum + track.seconds, 0);
      return [head(list.name, count(list.tracks, "track", "tracks") + " · " + Math.ceil(seconds / 60) + " min", cover(list.name),
        playButton(tracks), h("button", { onclick: rename }, "Rename"), h("button", { onclick: remove }, "Delete")),
      tracksOrEmpty(tracks, "This play list is empty. Add tracks with + anywhere in the library.", { order })];
    },
  };
}
