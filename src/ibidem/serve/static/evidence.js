// The evidence for a word (the passages of the memories that it comes from) and for its sentence.

import { startCorrection } from "./correction.js";
import { $, make, makeButton } from "./dom.js";
import { state } from "./state.js";

const SHOWN = 3; // passages above the button "Show all"
const MARKED = 0.2; // share of the largest weight from which an entry of a passage is marked
const SIMILAR = 0.01; // weight from which a passage is mentioned outside the details
export const FROM_GLOSSARY = "from the glossary "; // the beginning of the summary of such words
const hint = [...$("evidence-body").childNodes];

let pinned = null; // the number of the pinned word
let shown = null; // { text, source, place }: the word whose evidence is shown
let detailed = false; // whether the details are open

export const wordAt = (target) => target.closest?.("#translation .word") ?? null;
const percent = (value) => `${Math.round(100 * value)} %`;
const figure = (value) => (value >= 0.995 ? "1.00" : value.toFixed(value < 0.01 ? 4 : 2));
const numbersOf = (button) => button.dataset.number.split(" ").map(Number);

export function showEvidence(button) {
  if (pinned !== null && button.dataset.number !== pinned) return;
  const [sentence, number] = numbersOf(button);
  const segment = state.segments[sentence];
  const word = segment.words[number];
  shown = { text: word.text, source: segment.source, number };
  const passages = findPassages(word, segment.pairs);
  const summary = make("p", { class: "summary" }, make("strong", {}, word.text), describe(word, passages));
  const parts = [summary];
  if (passages.length) parts.push(citePassages(passages));
  if (word.tokens.length) parts.push(details(word, segment.pairs));
  $("evidence-body").replaceChildren(...parts);
  $("evidence").classList.remove("idle");
  $("evidence").scrollTop = 0;
  $("unpin").hidden = false;
  showSentenceEvidence(sentence);
}

function describe(word, passages) {
  const agreeing = passages.filter((passage) => passage.agrees).length;
  if (word.summary.startsWith(FROM_GLOSSARY)) return `From the glossary ${word.summary.slice(FROM_GLOSSARY.length)}.`;
  if (!passages.length) return "The memory has no similar passage: this word comes from the base model.";
  const several = `${agreeing} of ${passages.length} similar passages ${agreeing === 1 ? "agrees" : "agree"}`;
  const one = agreeing ? "The one similar passage agrees" : "The one similar passage has another word";
  return `${passages.length === 1 ? one : several}. The word comes mostly from the ${word.memory_share >= 0.5 ? "memory" : "base model"}.`;
}

// Joins the retrieved entries of a word by the pairs that they come from, without those that have no influence.
function findPassages(word, pairs) {
  const found = new Map();
  for (const token of word.tokens) {
    for (const neighbour of token.neighbours) {
      const passage = found.get(neighbour.pair) ?? { pair: pairs[neighbour.pair], entries: [], weight: 0, agreeing: 0 };
      passage.entries.push(neighbour);
      passage.weight += neighbour.weight / word.tokens.length;
      if (neighbour.agrees) passage.agreeing += neighbour.weight / word.tokens.length;
      found.set(neighbour.pair, passage);
    }
  }
  return [...found.values()].filter((passage) => passage.weight >= SIMILAR).map(judge).sort((a, b) => b.weight - a.weight);
}

// A passage agrees if the entries that agree have most of its weight; the entries that count are marked.
function judge({ pair, entries, weight, agreeing }) {
  const agrees = 2 * agreeing >= weight;
  const same = entries.filter((entry) => entry.agrees === agrees);
  const most = Math.max(...same.map((entry) => entry.weight));
  const spans = same.filter((entry) => entry.weight >= MARKED * most).map(({ start, end }) => [start, end]);
  return { pair, weight, agrees, spans };
}

function citePassages(passages) {
  const list = make("ul", { class: "neighbours" }, ...passages.slice(0, SHOWN).map(cite));
  const box = make("div", {}, list);
  if (passages.length > SHOWN) {
    const more = makeButton(`Show all ${passages.length}`, () => {
      list.append(...passages.slice(SHOWN).map(cite));
      more.remove();
    }, { class: "quiet more" });
    box.append(more);
  }
  return box;
}

function cite(passage) {
  const { pair, agrees } = passage;
  return make("li", { class: agrees ? "neighbour" : "neighbour other" },
    make("p", { class: "cited" }, ...mark(Array.from(pair.target), passage.spans)),
    make("p", { class: "cited source" }, pair.source),
    make("p", { class: "origin" }, make("span", { class: "verdict" }, agrees ? "Agrees" : "Has another word"), ` · ${pair.memory}: ${place(pair)}`));
}

const place = (pair) => (pair.location ? `${pair.origin}, line ${pair.location}` : pair.origin);

// Returns a text with marked parts; overlapping ones are joined.
function mark(text, spans) {
  const parts = [];
  let [at, open] = [0, null];
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0]).filter(([first, last]) => last > first)) {
    if (open && start <= open[1] + 1) open[1] = Math.max(open[1], end);
    else {
      if (open) parts.push(open);
      open = [start, end];
    }
  }
  if (open) parts.push(open);
  const found = [];
  for (const [start, end] of parts) {
    found.push(text.slice(at, start).join(""), make("mark", {}, text.slice(start, end).join("")));
    at = end;
  }
  return [...found, text.slice(at).join("")];
}

function details(word, pairs) {
  const box = make("details", {}, make("summary", {}, "Details"), make("p", { class: "sum" }, word.summary),
    ...word.tokens.map((token) => describeToken(token, word.tokens.length > 1, pairs)));
  box.open = detailed;
  box.addEventListener("toggle", () => { detailed = box.open; });
  return box;
}

function describeToken(token, several, pairs) {
  const memory = token.neighbours.filter((one) => one.agrees).reduce((sum, one) => sum + one.weight, 0);
  const box = make("div", { class: "token" });
  if (several) box.append(make("h3", {}, token.text.replaceAll("▁", "") || "space"));
  box.append(
    make("dl", { class: "bars" },
      ...level("base model", "base", token.base_probability),
      ...level("memory", "memory", token.memory_probability ?? null),
      ...level("combined", "mix", token.probability)),
    make("p", { class: "sum" },
      `${figure(token.base_weight)} × ${figure(token.base_probability)} + ${figure(memory)} = ${figure(token.probability)}`),
    make("ol", { class: "weights" }, ...token.neighbours.map((one) => make("li", {},
      `${one.text.replaceAll("▁", " ").trim() || "space"}: weight ${percent(one.weight)}, distance ${one.distance.toPrecision(3)}, pair ${pairs[one.pair].id}`))));
  return box;
}

function level(name, kind, value) {
  const inner = make("i");
  inner.style.width = `${100 * (value ?? 0)}%`;
  return [
    make("dt", {}, name),
    make("dd", { class: `level ${kind}`, "aria-hidden": "true" }, inner),
    make("dd", { class: "figure" }, value === null ? "none" : figure(value)),
  ];
}

// Shows what is known about a whole sentence: its confidence, the base model's translation, similar sentences.
export function showSentenceEvidence(number) {
  const segment = state.segments[number];
  if (!segment || (pinned !== null && Number(pinned.split(" ")[0]) !== number)) return;
  const parts = [];
  if (Number.isFinite(segment.confidence)) {
    parts.push(make("p", { class: "sure-line" }, `This sentence needs no edit with a probability of ${percent(segment.confidence)}.`));
  }
  if (segment.base !== undefined && segment.base !== segment.translation) {
    const forced = segment.words.some((word) => word.summary.startsWith(FROM_GLOSSARY));
    parts.push(make("h3", {}, forced ? "Without memory and glossary" : "Without memory"), make("p", { class: "without", lang: state.target }, segment.base));
  }
  if (segment.matches.length) {
    const use = (match) => makeButton("Use", () => startCorrection(number, match.target), { "aria-label": `Use the translation ${match.target}` });
    const items = segment.matches.map((match) => make("li", { class: "match" },
      make("span", { class: "percent" }, `${Math.round(match.percent)} %`),
      make("div", {}, make("p", { class: "cited" }, match.target), make("p", { class: "cited source" }, match.source),
        make("p", { class: "origin" }, [match.memory, place(match)].filter(Boolean).join(": "))),
      use(match)));
    parts.push(make("h3", {}, "Similar sentences in the memory"), make("ul", { class: "matches" }, ...items));
  }
  $("sentence-body").replaceChildren(...parts);
}

// After a new translation: shows the evidence for the same word again, if the translation still has it.
export function updateEvidence() {
  const before = shown;
  shown = null;
  $("evidence-body").replaceChildren(...hint);
  $("sentence-body").replaceChildren();
  $("evidence").classList.add("idle");
  $("unpin").hidden = true;
  if (!before) return;
  const sentence = state.segments.findIndex((segment) => segment.source === before.source);
  if (state.segments[sentence]?.words[before.number]?.text !== before.text) return;
  const button = document.querySelector(`#translation .word[data-number="${sentence} ${before.number}"]`);
  if (button) showEvidence(button);
}

export function pin(button) {
  const wasPinned = pinned === button.dataset.number;
  unpin();
  if (wasPinned) return;
  pinned = button.dataset.number;
  button.classList.add("pinned");
  button.setAttribute("aria-pressed", "true");
  showEvidence(button);
  button.scrollIntoView({ block: "nearest" }); // in a narrow window the evidence would cover the word
}

export function unpin({ close = false } = {}) {
  pinned = null;
  for (const word of document.querySelectorAll("#translation .pinned")) {
    word.classList.remove("pinned");
    word.removeAttribute("aria-pressed");
  }
  if (close) {
    shown = null;
    updateEvidence();
  }
}

export function moveFocus(event) {
  const button = wordAt(event.target);
  if (!button) return;
  const words = [...document.querySelectorAll("#translation .word")];
  const current = words.indexOf(button);
  const next = { ArrowRight: current + 1, ArrowDown: current + 1, ArrowLeft: current - 1, ArrowUp: current - 1, Home: 0, End: words.length - 1 }[event.key];
  if (next === undefined || !words[next]) return;
  event.preventDefault();
  button.tabIndex = -1;
  words[next].tabIndex = 0;
  words[next].focus();
}
