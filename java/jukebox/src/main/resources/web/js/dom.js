// Makes elements. Text always becomes text nodes, so nothing that a user wrote is read as HTML.

/** Returns an element: h("a", {href: "#/", class: "brand", onclick: f}, "text", child). Values of null and false are left out. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Returns an icon of index.html. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", "#" + name);
  svg.append(use);
  return svg;
}

export function iconButton(name, title, onclick, attributes) {
  return h("button", { class: "small", title, "aria-label": title, onclick, ...attributes }, icon(name));
}

/** Returns a square with the initials of a name, in a colour that depends on it. */
export function cover(name) {
  const square = h("div", { class: "cover", "aria-hidden": "true" });
  paintCover(square, name);
  return square;
}

export function paintCover(square, name) {
  let hash = 0;
  for (const character of name) hash = (hash * 31 + character.codePointAt(0)) >>> 0;
  const words = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  square.className = "cover hue-" + (hash % 8);
  square.textContent = words.slice(0, 2).map((word) => [...word][0].toUpperCase()).join("");
}

export function time(seconds) {
  const whole = Math.max(0, Math.floor(seconds || 0));
  return Math.floor(whole / 60) + ":" + String(whole % 60).padStart(2, "0");
}

export function count(number, one, many) {
  return number + " " + (number === 1 ? one : many);
}

let noticeTimer;

/** Shows a short message for some seconds. */
export function notice(text) {
  const box = document.getElementById("notice");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { box.hidden = true; }, 4000);
}

/** Asks for text, or for a yes if there is no text. Resolves to the text (or true), or to null. */
export function ask(title, yes, text) {
  const dialog = document.getElementById("ask-dialog");
  const input = document.getElementById("ask-text");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-yes").textContent = yes;
  input.hidden = text === undefined;
  input.required = text !== undefined;
  input.value = text ?? "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue !== "yes" ? null : text === undefined ? true : input.value.trim());
    }, { once: true });
  });
}
