// The choice of the languages, their exchange, and a hint if the text seems to be in another language.

import { send } from "./api.js";
import { $, make, makeButton, showStatus } from "./dom.js";
import { showMemories } from "./memories.js";
import { languageName, state } from "./state.js";
import { forget, fitSource, translate } from "./translation.js";

const SURE = 60; // percent, from which a detected language is mentioned
const ENOUGH = 12; // letters, from which a language is detected
const DETECTED = 1_000; // characters that are sent

let changed = () => {};
let started = false;

// Calls a function with the first languages and after each change; its argument is whether they were changed.
export function chooseLanguages(action) {
  changed = action;
}

const find = (code) => state.languages.find((one) => one.code === code);
const sources = () => state.languages.filter((one) => one.targets.length);

export function startLanguages() {
  const { source, target } = state.settings.language;
  state.source = find(state.source)?.targets.includes(state.target) ? state.source : source.code;
  state.target = find(state.source)?.targets.includes(state.target) ? state.target : target.code;
  started = false;
  show();
}

function fill(select, codes, chosen) {
  select.replaceChildren(...codes.map((code) => make("option", { value: code, selected: code === chosen }, languageName(code))));
  select.disabled = codes.length < 2;
}

function show() {
  const { source, target } = state;
  fill($("source-language"), sources().map((one) => one.code), source);
  fill($("target-language"), find(source)?.targets ?? [target], target);
  const possible = find(target)?.targets.includes(source) ?? false;
  $("swap").setAttribute("aria-disabled", String(!possible));
  const reason = possible ? "" : `This server does not translate from ${languageName(target)} to ${languageName(source)}.`;
  $("swap-reason").textContent = reason;
  $("swap").title = reason || "Swap the languages";
  $("source").lang = source;
  for (const id of ["correction", "translation", "base"]) $(id).lang = target;
  changed(started);
  started = true;
}

function set(source, target) {
  state.source = source;
  state.target = target;
  $("detected").hidden = true;
  forget();
  show();
  showMemories();
  translate();
}

function swap() {
  if ($("swap").getAttribute("aria-disabled") === "true") {
    showStatus($("swap-reason").textContent);
    return;
  }
  if (state.translation) $("source").value = state.translation;
  fitSource();
  set(state.target, state.source);
}

$("swap").addEventListener("click", swap);
$("source-language").addEventListener("change", () => {
  const source = $("source-language").value;
  const targets = find(source).targets;
  set(source, targets.includes(state.target) ? state.target : targets[0]);
});
$("target-language").addEventListener("change", () => set(state.source, $("target-language").value));

// Mentions the language of a text that is not the chosen one; without an answer of the server nothing is shown.
export async function detect(text, options) {
  const hint = $("detected");
  if ((text.match(/\p{L}/gu) ?? []).length < ENOUGH) {
    hint.hidden = true;
    return;
  }
  const [found] = await send("POST", "/detect", { q: text.slice(0, DETECTED).toWellFormed?.() ?? text.slice(0, DETECTED) }, options).catch(() => []);
  if (options.signal.aborted) return;
  const other = found && found.confidence >= SURE && found.language !== state.source && /^[a-z]{2,3}\b/.test(found.language);
  hint.hidden = !other;
  if (!other) return;
  hint.replaceChildren(`This text seems to be ${languageName(found.language)}. It is translated as ${languageName(state.source)}.`);
  const targets = find(found.language)?.targets ?? [];
  if (targets.length) {
    const target = targets.includes(state.target) ? state.target : targets[0];
    hint.append(makeButton(`Translate from ${languageName(found.language)}`, () => set(found.language, target)));
  }
}
