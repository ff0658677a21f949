// The evidence for a word: its probabilities and the sentence pairs that were retrieved.

import { $, make } from "./dom.js";
import { state } from "./state.js";

const SHOWN = 4; // neighbours of a token above the button "Show all"
const hint = [...$("evidence-body").childNodes];

let pinned = null; // the number of the pinned word
let shown = null; // the word whose evidence is shown

export const wordAt = (target) => target.closest?.("#translation .word") ?? null;
const percent = (value) => `${Math.round(100 * value)} %`;
const figure = (value) => (value >= 0.995 ? "1.00" : value.toFixed(value < 0.01 ? 4 : 2));

export function showEvidence(button) {
  if (pinned !== null && Number(button.dataset.number) !== pinned) return;
  const { words, pairs } = state.response.explanation;
  const word = (shown = words[button.dataset.number]);
  const summary = make("p", { class: "summary" }, make("strong", {}, word.text), ` ${word.summary}`);
  const tokens = word.tokens.map((token) => describe(token, word.tokens.length > 1, pairs));
  $("evidence-body").replaceChildren(summary, make("div", { class: "tokens" }, ...tokens));
}

// After a new translation: shows the evidence for the same word again, if the translation still has it.
export function updateEvidence() {
  const before = shown;
  shown = null;
  $("evidence-body").replaceChildren(...hint);
  const same = (word) => word.text === before?.text && word.start === before.start;
  const number = state.response?.explanation.words.findIndex(same) ?? -1;
  const button = document.querySelector(`#translation .word[data-number="${number}"]`);
  if (button) showEvidence(button);
}

function describe(token, several, pairs) {
  const memory = token.neighbours.filter((one) => one.agrees).reduce((sum, one) => sum + one.weight, 0);
  const left = make("div", {});
  if (several) left.append(make("h3", {}, tokenText(token.text)));
  left.append(
    make("dl", { class: "bars" },
      ...bar("base model", "base", token.base_probability),
      ...bar("memory", "memory", token.memory_probability ?? null),
      ...bar("combined", "mix", token.probability)),
    make("p", { class: "sum muted" },
      `${figure(token.base_weight)} × ${figure(token.base_probability)} + ${figure(memory)} = ${figure(token.probability)}`));
  return make("div", { class: "token" }, left, cite(token.neighbours, pairs));
}

const tokenText = (text) => text.replaceAll("▁", "") || "space";

function bar(name, kind, value) {
  const inner = make("i");
  inner.style.width = `${100 * (value ?? 0)}%`;
  return [
    make("dt", {}, name),
    make("dd", { class: `bar ${kind}`, "aria-hidden": "true" }, inner),
    make("dd", { class: "figure" }, value === null ? "none" : figure(value)),
  ];
}

function cite(neighbours, pairs) {
  if (!neighbours.length) return make("p", { class: "muted" }, "No memory entry was retrieved for this token.");
  const citation = (neighbour) => quote(neighbour, pairs[neighbour.pair]);
  const list = make("ul", { class: "neighbours" }, ...neighbours.slice(0, SHOWN).map(citation));
  const box = make("div", {}, list);
  if (neighbours.length > SHOWN) {
    const more = make("button", { type: "button", class: "quiet more" }, `Show all ${neighbours.length}`);
    more.addEventListener("click", () => {
      list.append(...neighbours.slice(SHOWN).map(citation));
      more.remove();
    });
    box.append(more);
  }
  return box;
}

function quote(neighbour, pair) {
  const target = Array.from(pair.target);
  const marked = target.slice(neighbour.start, neighbour.end).join("") || (neighbour.start < target.length ? "space" : "end");
  const inner = make("i");
  inner.style.width = `${100 * neighbour.weight}%`;
  const place = pair.location ? `${pair.origin}, line ${pair.location}` : pair.origin;
  return make("li", { class: neighbour.agrees ? "neighbour" : "neighbour other" },
    make("div", { class: "weight" }, `${percent(neighbour.weight)} ${neighbour.agrees ? "same token" : "other token"}`,
      make("div", { class: "bar memory", "aria-hidden": "true" }, inner)),
    make("div", {},
      make("p", { class: "cited" }, target.slice(0, neighbour.start).join(""), make("mark", {}, marked),
        target.slice(neighbour.end).join("")),
      make("p", { class: "cited source" }, pair.source),
      make("p", { class: "origin" }, `${pair.memory}: ${place} · distance ${neighbour.distance.toPrecision(3)}`)));
}

export function pin(button) {
  const number = Number(button.dataset.number);
  const wasPinned = pinned === number;
  unpin();
  if (wasPinned) return;
  pinned = number;
  button.classList.add("pinned");
  button.setAttribute("aria-pressed", "true");
  $("unpin").hidden = false;
  showEvidence(button);
}

export function unpin() {
  pinned = null;
  $("unpin").hidden = true;
  for (const word of document.querySelectorAll("#translation .pinned")) {
    word.classList.remove("pinned");
    word.removeAttribute("aria-pressed");
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
