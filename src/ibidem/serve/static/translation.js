// Translating as you type, with the memories and without.

import { ask } from "./asking.js";
import { common } from "./comparison.js";
import { $, make } from "./elements.js";
import { letGo, lookAgain } from "./evidence.js";
import { state } from "./state.js";
import { fail, say } from "./telling.js";

const PAUSE = 250; // milliseconds after the last key before a text is translated

let request = null; // aborts the translation under way
let timer = 0;

function chosen() {
  const names = state.memories.map((memory) => memory.name).filter((name) => state.used.has(name));
  return names.length === state.memories.length ? undefined : names;
}

export function later() {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
  count();
}

export function count() {
  const limit = state.settings?.charLimit ?? 0;
  const length = $("source").value.length;
  $("count").textContent = length ? `${length.toLocaleString("en")} / ${limit.toLocaleString("en")}` : "";
}

export async function translate() {
  clearTimeout(timer);
  request?.abort();
  const text = $("source").value;
  if (!text.trim()) {
    showNothing();
    return;
  }
  const mine = (request = new AbortController());
  busy(true);
  try {
    const same = { q: text, source: "auto", target: state.settings?.language.target.code };
    const [withMemory, alone] = await Promise.all([
      ask("POST", "/translate", { ...same, memories: chosen(), explain: true }, mine),
      ask("POST", "/translate", { ...same, memories: [] }, mine),
    ]);
    if (mine.signal.aborted) return;
    state.source = text;
    state.answer = withMemory;
    show(withMemory, alone.translatedText);
    if ($("status").classList.contains("wrong")) say("");
  } catch (error) {
    fail(error);
    if (error.wait) timer = setTimeout(translate, 1000 * error.wait);
  } finally {
    if (request === mine) busy(false);
  }
}

function busy(is) {
  for (const pane of [$("memory-pane"), $("base-pane")]) pane.setAttribute("aria-busy", String(is));
}

function showNothing() {
  state.answer = null;
  state.source = "";
  busy(false);
  for (const id of ["translation", "base"]) $(id).replaceChildren();
  for (const id of ["legend", "base-note"]) $(id).hidden = true;
  for (const id of ["correct", "copy"]) $(id).disabled = true;
  $("examples").hidden = false;
  letGo();
  lookAgain();
}

const share = (word) => (word.memory_share >= 0.7 ? 3 : word.memory_share >= 0.4 ? 2 : word.memory_share >= 0.1 ? 1 : 0);

function show(answer, base) {
  const { translation, words } = answer.explanation;
  const text = Array.from(translation); // offsets count characters, as Python does, and not UTF-16 units
  const parts = [];
  let place = 0;
  words.forEach((word, number) => {
    if (!word.text) return;
    parts.push(text.slice(place, word.start).join(""));
    const label = `${word.text}, ${word.verdict}`;
    const button = make("button", { type: "button", class: `word share-${share(word)}`, "aria-label": label }, word.text);
    button.dataset.number = number;
    button.tabIndex = parts.length === 1 ? 0 : -1;
    parts.push(button);
    place = word.end;
  });
  $("translation").replaceChildren(...parts, text.slice(place).join(""));
  showLegend();
  for (const id of ["correct", "copy"]) $(id).disabled = false;
  $("examples").hidden = true;
  letGo();
  lookAgain();
  showBase(base, translation);
}

export function showLegend() {
  $("legend").hidden = $("translation").hidden || !state.answer?.explanation.words.some((word) => share(word) > 0);
}

function showBase(base, translation) {
  const runs = base.split(/(\s+)/);
  const same = common(runs.filter((run) => run.trim()), translation.split(/\s+/).filter(Boolean));
  let number = -1;
  $("base").replaceChildren(...runs.map((run) => {
    if (!run.trim()) return run;
    number += 1;
    return same.has(number) ? run : make("span", { class: "changed" }, run);
  }));
  $("base-note").hidden = same.size === number + 1;
}
