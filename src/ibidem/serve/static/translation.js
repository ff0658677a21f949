// Translation while typing, sentence by sentence: a sentence that was translated before is not sent again.

import { explain, send } from "./api.js";
import { $, makeButton, showKeyForm, showStatus } from "./dom.js";
import { unpin, updateEvidence } from "./evidence.js";
import { detect } from "./languages.js";
import { showChanges, showMirror, showSentences } from "./sentences.js";
import { selectedMemories, state } from "./state.js";

const PAUSE = 250; // milliseconds between the last key and the request
const GROUP = 6; // sentences of a request
const GROUP_CHARACTERS = 1_500;
const MATCHES = 3; // similar sentences of the memories that are asked for
const KEPT = 600; // sentences

let request = null; // the AbortController of the running requests
let timer = 0;
const known = { memory: new Map(), base: new Map() }; // results by options and sentence, the last used ones last

export function scheduleTranslation() {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
  fitSource();
}

// Forgets the translations, since a memory, a glossary or a language has changed.
export function forget() {
  known.memory.clear();
}

export function fitSource() {
  const source = $("source");
  const limit = state.settings?.charLimit ?? 0;
  const length = source.value.length;
  $("count").textContent = length > limit / 2 && limit ? `${length.toLocaleString("en")} of ${limit.toLocaleString("en")} characters` : "";
  $("clear").disabled = !length;
  $("examples").hidden = Boolean(source.value.trim());
  $("source-hint").hidden = !source.value.trim();
  // Without a height the field is stretched to the old translation beside it, and measures that instead of its text.
  const top = window.scrollY;
  source.style.minHeight = "";
  source.style.height = "0";
  const needed = source.scrollHeight;
  source.style.height = "";
  source.style.minHeight = `max(${needed}px, ${getComputedStyle(source).minHeight})`;
  if (window.scrollY !== top) window.scrollTo({ top, behavior: "instant" });
  showMirror();
}

export async function translate() {
  clearTimeout(timer);
  request?.abort();
  const text = $("source").value;
  if (!text.trim()) {
    clear();
    return;
  }
  if (!state.settings) return; // the page cannot reach the server yet
  const limit = state.settings.charLimit;
  if (text.length > limit) {
    setBusy(false);
    showProblem(`The text has ${text.length.toLocaleString("en")} characters, and the server translates ${limit.toLocaleString("en")} at once. Send it as a file.`);
    return;
  }
  const mine = (request = new AbortController());
  setBusy(true);
  let translated = false;
  try {
    const options = { source: state.source, target: state.target };
    const withMemory = { ...options, memories: selectedMemories(), glossary: state.glossary };
    const spans = await findSegments(text, withMemory, mine);
    const sources = spans.map(({ start, end }) => text.slice(start, end));
    const share = (done, total) => {
      if (mine.signal.aborted) return;
      showProgress(done, total);
      if (total > GROUP) show(text, spans, sources, withMemory);
    };
    await fetchSentences(known.memory, sources, { ...withMemory, explain: true, matches: MATCHES }, withMemory, mine, share);
    if (mine.signal.aborted) return;
    hideProblem();
    show(text, spans, sources, withMemory);
    setBusy(false, { base: true });
    translated = true;
    detect(text, mine);
    const without = { ...options, memories: [], glossary: "none" };
    if (withMemory.memories?.length === 0 && withMemory.glossary === "none") {
      for (const source of sources) keep(known.base, cacheKey(without, source), { translation: result(known.memory, withMemory, source).translation });
    }
    await fetchSentences(known.base, sources, without, without, mine, () => {});
    if (mine.signal.aborted) return;
    for (const segment of state.segments) segment.base = result(known.base, without, segment.source).translation;
    showChanges();
  } catch (error) {
    if (error.name === "AbortError" || mine.signal.aborted) return;
    if (error.status === 403 && state.settings.keyRequired) showKeyForm();
    if (error.wait) timer = setTimeout(translate, 1000 * error.wait);
    if (error.wait && translated) return; // only the comparison is missing
    const again = error.wait ? ` It is tried again in ${error.wait} s.` : "";
    showProblem(explain(error) + again, translate);
  } finally {
    if (request === mine) {
      setBusy(false);
      $("progress").hidden = true;
    }
  }
}

// Returns the sentences of a text in UTF-16 units; the server counts code points.
async function findSegments(text, options, signal) {
  const { memories, source, target } = options;
  const { segments } = await send("POST", "/segments", { q: wellFormed(text), source, target, memories }, signal);
  const units = [];
  let place = 0;
  for (const character of text) {
    units.push(place);
    place += character.length;
  }
  units.push(place);
  return segments.map(({ start, end }) => ({ start: units[start], end: units[end] }));
}

const wellFormed = (text) => text.toWellFormed?.() ?? text;
const cacheKey = (options, source) => JSON.stringify([options.source, options.target, options.memories ?? null, options.glossary ?? null, source]);
const result = (cache, options, source) => cache.get(cacheKey(options, source));

function keep(cache, key, value) {
  cache.delete(key);
  cache.set(key, value);
  if (cache.size > KEPT + state.segments.length) cache.delete(cache.keys().next().value);
}

// Translates the sentences that the cache lacks, a few in each request.
async function fetchSentences(cache, sources, body, options, signal, share) {
  const missing = [...new Set(sources)].filter((source) => !result(cache, options, source));
  for (const source of sources) {
    const found = result(cache, options, source);
    if (found) keep(cache, cacheKey(options, source), found);
  }
  const groups = [];
  let size = Infinity;
  for (const source of missing) {
    if (size + source.length > GROUP_CHARACTERS || groups.at(-1).length === GROUP) {
      groups.push([]);
      size = 0;
    }
    groups.at(-1).push(source);
    size += source.length;
  }
  let done = sources.length - missing.length;
  for (const group of groups) {
    if (groups.length > 1) share(done, sources.length);
    const response = await send("POST", "/translate", { ...body, q: group.map(wellFormed) }, signal);
    group.forEach((source, number) => {
      const warnings = response.warnings?.[number] ?? [];
      const segments = response.segments?.[number] ?? [];
      const explained = response.explanation?.[number];
      keep(cache, cacheKey(options, source), {
        translation: response.translatedText[number],
        words: explained?.words ?? [],
        pairs: explained?.pairs ?? [],
        warnings: warnings.map((warning) => warning.message),
        confidence: segments.length ? Math.min(...segments.map((one) => one.confidence ?? NaN)) : NaN,
        matches: segments.flatMap((one) => one.matches ?? []),
      });
    });
    done += group.length;
  }
  share(done, sources.length);
}

function show(text, spans, sources, options) {
  const before = new Map(state.segments.map((segment) => [segment.source, segment]));
  state.text = text;
  state.segments = spans.map((span, number) => {
    const source = sources[number];
    const found = result(known.memory, options, source);
    const base = before.get(source)?.base;
    const empty = { translation: source, unknown: true, words: [], pairs: [], warnings: [], confidence: NaN, matches: [] };
    return { ...(found ?? before.get(source) ?? empty), ...span, source, pending: !found, base };
  });
  state.translation = join(text, state.segments);
  showSentences();
  for (const id of ["correct", "copy"]) $(id).disabled = state.segments.some((segment) => segment.pending);
  showWarnings();
  unpin();
  updateEvidence();
}

// Puts the translations of sentences in place of their sources.
export function join(text, segments, field = "translation") {
  let [joined, place] = ["", 0];
  for (const [number, segment] of segments.entries()) {
    const gap = text.slice(place, segment.start);
    joined += (number && !gap ? " " : gap) + (segment[field] ?? "");
    place = segment.end;
  }
  return joined + text.slice(place);
}

function showWarnings() {
  const shorten = (part) => (part.length > 30 ? `${part.slice(0, 30)}…` : part);
  const lines = state.segments.flatMap((segment) => segment.warnings.map((message) => `“${shorten(segment.translation)}”: ${message}`));
  $("warnings").textContent = lines.length ? `Please check: ${lines.slice(0, 3).join("; ")}${lines.length > 3 ? `; and ${lines.length - 3} more` : ""}.` : "";
  $("warnings").hidden = !lines.length;
}

function showProgress(done, total) {
  $("progress").hidden = total <= GROUP || done >= total;
  $("progress-bar").value = done / total;
  $("progress-text").textContent = `${done} of ${total} sentences`;
}

function setBusy(busy, { base = busy } = {}) {
  $("memory-pane").setAttribute("aria-busy", String(busy));
  $("base-pane").setAttribute("aria-busy", String(base));
}

// Shows a message above the translation, which no longer belongs to the text.
export function showProblem(message, again = null) {
  const problem = $("problem");
  problem.replaceChildren(Object.assign(document.createElement("span"), { textContent: message }));
  if (again) problem.append(makeButton("Try again", again));
  problem.hidden = false;
  for (const id of ["memory-pane", "base-pane"]) $(id).classList.add("stale");
  for (const id of ["correct", "copy"]) $(id).disabled = true;
}

function hideProblem() {
  $("problem").hidden = true;
  for (const id of ["memory-pane", "base-pane"]) $(id).classList.remove("stale");
  if ($("status").classList.contains("wrong")) showStatus("");
}

export function clear() {
  clearTimeout(timer);
  request?.abort();
  Object.assign(state, { text: "", segments: [], translation: "" });
  setBusy(false);
  hideProblem();
  for (const id of ["progress", "warnings", "detected"]) $(id).hidden = true;
  for (const id of ["correct", "copy"]) $(id).disabled = true;
  showSentences();
  fitSource();
  unpin();
  updateEvidence();
}
