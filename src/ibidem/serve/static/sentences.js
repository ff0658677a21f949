// The sentences of the translation: their words, their sources, and the views (by sentence, marks, comparison).

import { $, make, showStatus } from "./dom.js";
import { FROM_GLOSSARY, showSentenceEvidence } from "./evidence.js";
import { state } from "./state.js";

const MAX_COMPARED = 400; // words; comparing takes the product of both lengths
const LOW = 0.5; // confidence below which a sentence is shown as uncertain
const VIEWS = { "by-sentence": false, marks: true, compare: false };

let linked = null; // the number of the sentence that is shown on both sides

// Returns the number of the sentence of an element of the translation, or null.
export function sentenceAt(target) {
  const sentence = target.closest?.("#translation .sentence");
  return sentence ? Number(sentence.dataset.sentence) : null;
}

export function showSentences() {
  linked = null;
  const parts = [];
  let [place, number] = [0, 0];
  for (const [index, segment] of state.segments.entries()) {
    const gap = state.text.slice(place, segment.start) || (index ? " " : "");
    if (gap) parts.push(make("span", { class: "gap" }, gap));
    place = segment.end;
    const words = [];
    const text = Array.from(segment.translation); // offsets count code points, not UTF-16 units
    let offset = 0;
    for (const [at, word] of segment.words.entries()) {
      if (!word.text) continue;
      words.push(text.slice(offset, word.start).join(""));
      const button = make("button", { type: "button", class: "word" }, word.text);
      button.dataset.number = `${index} ${at}`;
      button.tabIndex = number === 0 ? 0 : -1;
      number += 1;
      words.push(button);
      offset = word.end;
    }
    words.push(text.slice(offset).join(""));
    const from = make("button", { type: "button", class: "from", lang: state.source, title: "Edit the source" }, segment.source);
    from.addEventListener("click", () => editSource(segment));
    const kind = segment.unknown ? "sentence unknown" : segment.pending ? "sentence pending" : "sentence";
    const sentence = make("span", { class: kind }, from, make("span", { class: "to" }, ...words), sure(segment));
    sentence.dataset.sentence = index;
    parts.push(sentence);
  }
  const rest = state.text.slice(place);
  if (rest && state.segments.length) parts.push(make("span", { class: "gap" }, rest));
  $("translation").replaceChildren(...parts);
  showConfidence();
  showChanges();
  showMirror();
  showViews();
}

// Marks the words that the memory changed, as soon as the translation without it is known.
export function showChanges() {
  const changed = state.segments.map(changedWords);
  for (const button of document.querySelectorAll("#translation .word")) {
    const [sentence, number] = button.dataset.number.split(" ").map(Number);
    const marked = changed[sentence].has(number);
    button.classList.toggle("changed", marked);
    const label = describe(state.segments[sentence].words[number], marked);
    if (label) button.setAttribute("aria-label", label);
    else button.removeAttribute("aria-label");
  }
  showLegend();
  showBase();
  if (linked !== null) showSentenceEvidence(linked);
}

function describe(word, changed) {
  if (word.summary.startsWith(FROM_GLOSSARY)) return `${word.text}, ${word.summary}`;
  return changed ? `${word.text}, changed by the memory` : null;
}

function sure(segment) {
  const known = Number.isFinite(segment.confidence);
  const low = known && segment.confidence < LOW;
  return make("span", { class: low ? "sure low" : "sure", title: "Probability that the sentence needs no edit" },
    known ? `${Math.round(100 * segment.confidence)} %` : "");
}

function showConfidence() {
  const known = state.segments.filter((segment) => Number.isFinite(segment.confidence));
  const low = known.filter((segment) => segment.confidence < LOW).length;
  $("confidence").hidden = !known.length;
  if (known.length === 1) $("confidence").textContent = `Confidence ${Math.round(100 * known[0].confidence)} %`;
  else $("confidence").textContent = low ? `${low} of ${known.length} to check` : "All likely right";
}

// Returns the numbers of the words that the base model alone did not write.
function changedWords(segment) {
  if (segment.base === undefined || segment.base === segment.translation) return new Set();
  const words = segment.words.map((word, number) => [word.text, number]).filter(([text]) => text);
  const same = commonWords(words.map(([text]) => text), segment.base.split(/\s+/).filter(Boolean));
  return new Set(words.filter((_, place) => !same.has(place)).map(([, number]) => number));
}

export function showLegend() {
  const changed = state.segments.some((segment) => segment.base !== undefined && changedWords(segment).size);
  $("legend").hidden = $("translation").hidden || !isOn("marks") || !changed;
}

function showBase() {
  const parts = [];
  let [place, differs] = [0, false];
  for (const [index, segment] of state.segments.entries()) {
    parts.push(state.text.slice(place, segment.start) || (index ? " " : ""));
    place = segment.end;
    if (segment.base === undefined) {
      parts.push("…");
      continue;
    }
    const runs = segment.base.split(/(\s+)/);
    const same = commonWords(runs.filter((run) => run.trim()), segment.translation.split(/\s+/).filter(Boolean));
    let number = -1;
    for (const run of runs) {
      if (run.trim()) number += 1;
      if (!run.trim() || same.has(number)) parts.push(run);
      else {
        parts.push(make("span", { class: "differs" }, run));
        differs = true;
      }
    }
  }
  $("base").replaceChildren(...parts);
  $("base-note").hidden = !differs;
}

// Returns the indices of the words of `a` that are in a longest common subsequence with `b`.
function commonWords(a, b) {
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

// Shows which sentence of the source belongs to which one of the translation.
export function link(number) {
  if (number === linked) return;
  linked = number;
  for (const sentence of document.querySelectorAll("#translation .sentence")) {
    sentence.classList.toggle("linked", Number(sentence.dataset.sentence) === number && state.segments.length > 1);
  }
  showMirror();
  if (number !== null) showSentenceEvidence(number);
}

export function linkAtCaret() {
  if ($("source").value !== state.text) return;
  const caret = $("source").selectionStart;
  const found = state.segments.findIndex((segment) => caret >= segment.start && caret <= segment.end);
  link(found < 0 ? null : found);
}

export function showMirror() {
  const text = $("source").value;
  const segment = state.segments.length > 1 && text === state.text ? state.segments[linked] : undefined;
  if (!segment) $("mirror").replaceChildren();
  else $("mirror").replaceChildren(text.slice(0, segment.start), make("mark", {}, text.slice(segment.start, segment.end)), text.slice(segment.end));
}

function editSource(segment) {
  setView("by-sentence", false);
  const source = $("source");
  source.focus();
  source.setSelectionRange(segment.start, segment.start);
}

export const isOn = (view) => $(view).getAttribute("aria-pressed") === "true";

function setView(view, on) {
  $(view).setAttribute("aria-pressed", String(on));
  try { localStorage.setItem(`view-${view}`, on ? "1" : "0"); } catch { /* without storage the choice lasts until the page is closed */ }
  showViews();
  showLegend();
}

function showViews() {
  const rows = isOn("by-sentence") && state.segments.length > 0;
  $("panes").classList.toggle("by-sentence", rows || $("correction").classList.contains("several"));
  $("panes").classList.toggle("marked", isOn("marks"));
  $("base-pane").hidden = !isOn("compare");
  $("memory-title").textContent = $("panes").classList.contains("by-sentence") ? "Text and translation" : "Translation";
}

export { showViews };

export function startViews() {
  for (const [view, preset] of Object.entries(VIEWS)) {
    let stored = null;
    try { stored = localStorage.getItem(`view-${view}`); } catch { /* without storage the preset is used */ }
    $(view).setAttribute("aria-pressed", String(stored === null ? preset : stored === "1"));
    $(view).addEventListener("click", () => {
      setView(view, !isOn(view));
      if (view === "by-sentence" && isOn(view) && !state.segments.length) showStatus("A text will be shown sentence by sentence.");
    });
  }
  showViews();
}
