// The page of `ibidem serve`: what it begins with, and what its keys and buttons do.

import { ask, key } from "./asking.js";
import { correct, learn, leaveCorrection } from "./correction.js";
import { $, make } from "./elements.js";
import { letGo, look, pin, walk, wordAt } from "./evidence.js";
import { listMemories } from "./memories.js";
import { state } from "./state.js";
import { fail, say, showKey } from "./telling.js";
import { count, later, translate } from "./translation.js";

const EXAMPLES = {
  de: [
    "Die Datei konnte nicht geöffnet werden.",
    "Klicken Sie auf die Schaltfläche, um die Einstellungen zu speichern.",
    "Der Mandant wurde gelöscht.",
  ],
};

async function begin() {
  try {
    state.settings = await ask("GET", "/frontend/settings");
    const { source, target } = state.settings.language;
    $("pair").textContent = `${source.name} to ${target.name}, with a memory`;
    $("source-title").textContent = source.name;
    $("memory-title").textContent = `${target.name}, with memory`;
    $("base-title").textContent = `${target.name}, base model alone`;
    $("source").lang = source.code;
    for (const id of ["target", "translation", "base"]) $(id).lang = target.code;
    $("source").maxLength = state.settings.charLimit;
    $("key-button").hidden = !state.settings.keyRequired;
    $("examples").replaceChildren(...(EXAMPLES[source.code] ?? []).map((text) => {
      const button = make("button", { type: "button", lang: source.code }, text);
      button.addEventListener("click", () => {
        $("source").value = text;
        $("source").focus();
        count();
        translate();
      });
      return button;
    }));
    if (state.settings.keyRequired && !key()) showKey();
    else await listMemories();
    if ($("source").value) translate();
  } catch (error) {
    fail(error);
  }
}

$("key-button").addEventListener("click", showKey);
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value.trim());
  $("key").value = "";
  $("key-form").hidden = true;
  say("");
  begin();
});
$("source").addEventListener("input", () => {
  if (!$("source").value.trim()) leaveCorrection();
  later();
});
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    correct();
  }
});
$("target").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    learn();
  }
});
$("correct").addEventListener("click", correct);
$("learn").addEventListener("click", learn);
$("cancel").addEventListener("click", leaveCorrection);
$("copy").addEventListener("click", async () => {
  await navigator.clipboard?.writeText(state.answer.translatedText);
  say("Copied.");
});
$("copy").hidden = !navigator.clipboard;
$("unpin").addEventListener("click", letGo);
$("translation").addEventListener("mouseover", (event) => wordAt(event.target) && look(wordAt(event.target)));
$("translation").addEventListener("focusin", (event) => wordAt(event.target) && look(wordAt(event.target)));
$("translation").addEventListener("click", (event) => wordAt(event.target) && pin(wordAt(event.target)));
$("translation").addEventListener("dblclick", correct);
$("translation").addEventListener("keydown", walk);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!$("correction").hidden) leaveCorrection();
  else letGo();
});
begin();
