// Translation while typing, with the memories and with the base model alone.

import { send } from "./api.js";
import { $, make, showError, showStatus } from "./dom.js";
import { unpin, updateEvidence } from "./evidence.js";
import { state } from "./state.js";

const PAUSE = 250; // milliseconds between the last key and the request
const MAX_COMPARED = 600; // words; comparing takes the product of both lengths

let request = null; // the AbortController of the running requests
let timer = 0;

function selectedMemories() {
  const names = state.memories.map((memory) => memory.name).filter((name) => state.used.has(name));
  return names.length === state.memories.length ? undefined : names;
}

export function scheduleTranslation() {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
  showCount();
}

export function showCount() {
  const limit = state.settings?.charLimit ?? 0;
  const length = $("source").value.length;
  $("count").textContent = length ? `${length.toLocaleString("en")} / ${limit.toLocaleString("en")}` : "";
}

export async function translate() {
  clearTimeout(timer);
  request?.abort();
  const text = $("source").value;
  if (!text.trim()) {
    clear();
    return;
  }
  const mine = (request = new AbortController());
  setBusy(true);
  try {
    const same = { q: text, source: "auto", target: state.settings?.language.target.code };
    const [withMemory, alone] = await Promise.all([
      send("POST", "/translate", { ...same, memories: selectedMemories(), glossary: state.glossary, explain: true }, mine),
      send("POST", "/translate", { ...same, memories: [], glossary: "none" }, mine),
    ]);
    if (mine.signal.aborted) return;
    state.source = text;
    state.response = withMemory;
    show(withMemory, alone.translatedText);
    if ($("status").classList.contains("wrong")) showStatus("");
  } catch (error) {
    showError(error);
    if (error.wait) timer = setTimeout(translate, 1000 * error.wait);
  } finally {
    if (request === mine) setBusy(false);
  }
}

function setBusy(busy) {
  for (const pane of [$("memory-pane"), $("base-pane")]) pane.setAttribute("aria-busy", String(busy));
}

function clear() {
  state.response = null;
  state.source = "";
  setBusy(false);
  for (const id of ["translation", "base"]) $(id).replaceChildren();
  for (const id of ["legend", "base-note", "warnings"]) $(id).hidden = true;
  for (const id of ["correct", "copy"]) $(id).disabled = true;
  $("examples").hidden = false;
  unpin();
  updateEvidence();
}

const shareLevel = (word) => (word.memory_share >= 0.7 ? 3 : word.memory_share >= 0.4 ? 2 : word.memory_share >= 0.1 ? 1 : 0);

function show(response, base) {
  const { translation, words } = response.explanation;
  const text = Array.from(translation); // offsets count code points, not UTF-16 units
  const parts = [];
  let place = 0;
  words.forEach((word, number) => {
    if (!word.text) return;
    parts.push(text.slice(place, word.start).join(""));
    const label = `${word.text}, ${word.summary}`;
    const button = make("button", { type: "button", class: `word share-${shareLevel(word)}`, "aria-label": label }, word.text);
    button.dataset.number = number;
    button.tabIndex = parts.length === 1 ? 0 : -1;
    parts.push(button);
    place = word.end;
  });
  $("translation").replaceChildren(...parts, text.slice(place).join(""));
  showLegend();
  showWarnings(response.warnings ?? [], text);
  for (const id of ["correct", "copy"]) $(id).disabled = false;
  $("examples").hidden = true;
  unpin();
  updateEvidence();
  showBase(base, translation);
}

function showWarnings(warnings, text) {
  const shorten = (part) => (part.length > 30 ? `${part.slice(0, 30).join("")}…` : part.join(""));
  const lines = warnings.map(({ start, end, message }) => `“${shorten(text.slice(start, end))}”: ${message}`);
  $("warnings").textContent = lines.length ? `Please check: ${lines.slice(0, 3).join("; ")}${lines.length > 3 ? "; …" : ""}.` : "";
  $("warnings").hidden = !lines.length;
}

export function showLegend() {
  $("legend").hidden = $("translation").hidden || !state.response?.explanation.words.some((word) => shareLevel(word) > 0);
}

function showBase(base, translation) {
  const runs = base.split(/(\s+)/);
  const same = findCommonWords(runs.filter((run) => run.trim()), translation.split(/\s+/).filter(Boolean));
  let number = -1;
  $("base").replaceChildren(...runs.map((run) => {
    if (!run.trim()) return run;
    number += 1;
    return same.has(number) ? run : make("span", { class: "changed" }, run);
  }));
  $("base-note").hidden = same.size === number + 1;
}

// Returns the indices of the words of `a` that are in a longest common subsequence with `b`.
function findCommonWords(a, b) {
  if (a.length > MAX_COMPARED || b.length > MAX_COMPARED) return new Set(a.keys());
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const same = new Set();
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { same.add(i); i += 1; j += 1; }
    else if (best[i + 1][j] >= best[i][j + 1]) i += 1;
    else j += 1;
  }
  return same;
}
