// The search for words in the pairs of a memory, where the server offers it.

import { send } from "./api.js";
import { $, count, make, makeButton, showError, showStatus } from "./dom.js";
import { offers, state } from "./state.js";
import { forget, translate } from "./translation.js";

const SHOWN = 20;

let asked = null; // { memory, words, offset } of the shown results

export function fillSearch() {
  const select = $("search-memory");
  const chosen = select.value;
  select.replaceChildren(...state.memories.map((memory) => make("option", { value: memory.name, selected: memory.name === chosen }, memory.name)));
  select.hidden = state.memories.length < 2;
  $("search-pane").hidden = !offers("search") || !state.memories.length;
}

export function startSearch() {
  fillSearch();
}

const path = (name) => `/memories/${encodeURIComponent(name)}`;

async function search(offset) {
  const { memory, words } = asked;
  try {
    const query = new URLSearchParams({ q: words, limit: SHOWN, offset });
    const { pairs, total, complete = true } = await send("GET", `${path(memory)}/search?${query}`);
    $("search-list").querySelector(".more")?.remove();
    if (!offset) $("search-list").replaceChildren();
    $("search-list").append(...pairs.map((pair) => row(pair, memory, words)));
    $("search-note").textContent = total ? `${count(total, "pair")}${complete ? "" : " or more"}` : "No pair has these words.";
    const shown = offset + pairs.length;
    if (pairs.length && shown < total) {
      $("search-list").append(make("li", { class: "more" }, makeButton("Show more", () => search(shown))));
    }
  } catch (error) {
    showError(error);
  }
}

function row(pair, memory, words) {
  const origin = pair.location ? `${pair.origin}, line ${pair.location}` : pair.origin;
  const item = make("li", {}, make("p", { class: "cited source", lang: state.source }, ...highlight(pair.source, words)),
    make("p", { class: "cited", lang: state.target }, ...highlight(pair.target, words)), make("p", { class: "origin" }, origin));
  if (state.memories.find((one) => one.name === memory)?.learns) {
    item.append(makeButton("Remove", () => remove(item, pair, memory), { class: "quiet", "aria-label": `Remove the pair ${pair.source}` }));
  }
  return item;
}

// Marks the words that were searched for.
function highlight(text, words) {
  const wanted = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!wanted.length) return [text];
  return text.split(new RegExp(`(${wanted.join("|")})`, "giu")).map((part, number) => (number % 2 ? make("mark", {}, part) : part));
}

async function remove(item, pair, memory) {
  try {
    await send("DELETE", `${path(memory)}/pairs`, { ids: [pair.id] });
    item.remove();
    forget();
    translate();
    const { source, target, origin } = pair;
    showStatus("The pair was removed.", { undo: async () => {
      await send("POST", `${path(memory)}/pairs`, { pairs: [{ source, target }], origin }).catch(showError);
      forget();
      translate();
      search(0);
    } });
  } catch (error) {
    showError(error);
  }
}

$("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = $("search-text").value.trim();
  if (!words) return;
  asked = { memory: $("search-memory").value || state.memories[0].name, words };
  search(0);
});
