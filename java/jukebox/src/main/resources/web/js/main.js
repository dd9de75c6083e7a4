// Starts the application, and shows the page of the address.

import * as api from "./api.js";
import * as changes from "./changes.js";
import { count, h, notice } from "./dom.js";
import { createList, pageOf } from "./pages.js";
import * as player from "./player.js";
import { session } from "./session.js";
import { showPlaying } from "./tracks.js";

const content = document.getElementById("page");
let shown = { address: null, page: null };
let loading = 0;

function showAddress() {
  if (session.account === null) return;
  const address = location.hash || "#/";
  const isNew = shown.address !== address;
  if (isNew) shown = { address, page: pageOf(address) };
  showLinks();
  changes.watch([...new Set(["account", ...shown.page.topics])], onChange);
  return loadPage(isNew);
}

/** Loads the page. If another load begins meanwhile, the result of this one is dropped. */
async function loadPage(isNew) {
  const number = ++loading;
  let nodes;
  try {
    nodes = await shown.page.load();
  } catch (error) {
    nodes = [h("p", { class: "empty", role: "alert" }, error.message)];
    // The service refuses a watch of something that does not exist, and with it that of the account.
    if (number === loading && error.status === 404) changes.watch(["account"], onChange);
  }
  if (number !== loading) return;
  const top = content.scrollTop;
  content.replaceChildren(...nodes.filter(Boolean));
  content.scrollTop = isNew ? 0 : top;
  showPlaying();
}

function onChange(topics) {
  if (topics.includes("account")) loadLists();
  if (topics.some((topic) => shown.page.topics.includes(topic))) loadPage(false);
}

async function loadLists() {
  try {
    const lists = await api.get("lists");
    document.getElementById("lists").replaceChildren(...lists.map((list) => h("a", { href: "#/lists/" + list.id, "data-list": list.id },
      h("span", {}, list.name), h("span", { class: "muted", title: count(list.tracks, "track", "tracks") }, String(list.tracks)))));
    showLinks();
  } catch (error) {
    notice(error.message);
  }
}

function showLinks() {
  const address = location.hash || "#/";
  for (const link of document.querySelectorAll(".side a")) {
    const target = link.getAttribute("href");
    const isCurrent = target === address || target !== "#/" && address.startsWith(target + "/");
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function begin(me) {
  session.account = me.account;
  session.uploadBytes = me.uploadBytes;
  document.getElementById("logout").textContent = "Log out " + me.account.name;
  document.getElementById("welcome").hidden = true;
  document.getElementById("jukebox").hidden = false;
  loadLists();
  showAddress();
}

function end() {
  session.account = null;
  shown = { address: null, page: null };
  loading++;
  changes.stop();
  player.reset();
  content.replaceChildren();
  document.getElementById("lists").replaceChildren();
  document.getElementById("jukebox").hidden = true;
  document.getElementById("welcome").hidden = false;
}

document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const failure = document.getElementById("login-error");
  failure.textContent = "";
  try {
    const me = await api.post(event.submitter?.value ?? "login", { name: form.elements.name.value.trim(), password: form.elements.password.value });
    form.reset();
    begin(me);
  } catch (error) {
    failure.textContent = error.message;
  }
});

document.getElementById("logout").addEventListener("click", async () => {
  await api.post("logout").catch((error) => notice(error.message));
  end();
});

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = event.target.elements.q.value.trim();
  if (words) location.hash = "#/search/" + encodeURIComponent(words);
});

document.getElementById("new-list").addEventListener("submit", createList);

window.addEventListener("hashchange", showAddress);
window.addEventListener("signed-out", end);

api.get("me").then(begin, (error) => {
  end();
  if (error.status !== 401) document.getElementById("login-error").textContent = error.message;
});
