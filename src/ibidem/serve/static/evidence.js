// The evidence for a word: who was asked, what they said, and how it adds up.

import { $, make } from "./elements.js";
import { state } from "./state.js";

const SHOWN = 4; // neighbours of a token before "show all"
const hint = [...$("evidence-body").childNodes];

let pinned = null; // the number of the word that is held
let looked = null; // the word whose evidence is shown

export const wordAt = (target) => target.closest?.("#translation .word") ?? null;
const percent = (value) => `${Math.round(100 * value)} %`;
const figure = (value) => (value >= 0.995 ? "1.00" : value.toFixed(value < 0.01 ? 4 : 2));

export function look(button) {
  if (pinned !== null && Number(button.dataset.number) !== pinned) return;
  const { words, pairs } = state.answer.explanation;
  const word = (looked = words[button.dataset.number]);
  const verdict = make("p", { class: "verdict" }, make("strong", {}, word.text), ` ${word.verdict}`);
  const tokens = word.tokens.map((token) => describe(token, word.tokens.length > 1, pairs));
  $("evidence-body").replaceChildren(verdict, make("div", { class: "tokens" }, ...tokens));
}

// After a new translation: the evidence for the same word if it is still there, else none.
export function lookAgain() {
  const before = looked;
  looked = null;
  $("evidence-body").replaceChildren(...hint);
  const same = (word) => word.text === before?.text && word.start === before.start;
  const number = state.answer?.explanation.words.findIndex(same) ?? -1;
  const button = document.querySelector(`#translation .word[data-number="${number}"]`);
  if (button) look(button);
}

function describe(token, several, pairs) {
  const votes = token.neighbours.filter((one) => one.agrees).reduce((sum, one) => sum + one.vote, 0);
  const left = make("div", {});
  if (several) left.append(make("h3", {}, piece(token.text)));
  left.append(
    make("dl", { class: "bars" },
      ...bar("base model", "base", token.base_probability),
      ...bar("memory", "memory", token.memory_probability ?? null),
      ...bar("together", "mix", token.probability)),
    make("p", { class: "sum muted" },
      `${figure(token.base_weight)} × ${figure(token.base_probability)} + ${figure(votes)} = ${figure(token.probability)}`));
  return make("div", { class: "token" }, left, cite(token.neighbours, pairs));
}

const piece = (text) => text.replaceAll("▁", "") || "space";

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
  if (!neighbours.length) return make("p", { class: "muted" }, "No sentence of a memory was asked.");
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
  const marked = target.slice(neighbour.start, neighbour.end).join("") || "end";
  const inner = make("i");
  inner.style.width = `${100 * neighbour.vote}%`;
  const where = pair.location ? `${pair.origin}, line ${pair.location}` : pair.origin;
  return make("li", { class: neighbour.agrees ? "neighbour" : "neighbour against" },
    make("div", { class: "vote" }, `${percent(neighbour.vote)} ${neighbour.agrees ? "for" : "against"}`,
      make("div", { class: "bar memory", "aria-hidden": "true" }, inner)),
    make("div", {},
      make("p", { class: "cited" }, target.slice(0, neighbour.start).join(""), make("mark", {}, marked),
        target.slice(neighbour.end).join("")),
      make("p", { class: "cited source" }, pair.source),
      make("p", { class: "origin" }, `${pair.memory}: ${where} · distance ${neighbour.distance.toPrecision(3)}`)));
}

export function pin(button) {
  const number = Number(button.dataset.number);
  const held = pinned === number;
  letGo();
  if (held) return;
  pinned = number;
  button.classList.add("pinned");
  button.setAttribute("aria-pressed", "true");
  $("unpin").hidden = false;
  look(button);
}

export function letGo() {
  pinned = null;
  $("unpin").hidden = true;
  for (const word of document.querySelectorAll("#translation .pinned")) {
    word.classList.remove("pinned");
    word.removeAttribute("aria-pressed");
  }
}

export function walk(event) {
  const button = wordAt(event.target);
  if (!button) return;
  const words = [...document.querySelectorAll("#translation .word")];
  const here = words.indexOf(button);
  const there = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: words.length - 1 }[event.key];
  if (there === undefined || !words[there]) return;
  event.preventDefault();
  button.tabIndex = -1;
  words[there].tabIndex = 0;
  words[there].focus();
}
