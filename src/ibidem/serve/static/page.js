// The page of `ibidem serve`: its start, its buttons and its keyboard shortcuts.

import { key, send } from "./api.js";
import { endCorrection, learn, startCorrection } from "./correction.js";
import { showFormats, startDocuments } from "./documents.js";
import { $, make, showError, showKeyForm, showStatus } from "./dom.js";
import { moveFocus, pin, showEvidence, unpin, wordAt } from "./evidence.js";
import { listGlossaries } from "./glossaries.js";
import { listMemories } from "./memories.js";
import { state } from "./state.js";
import { scheduleTranslation, showCount, translate } from "./translation.js";

const EXAMPLES = {
  de: [
    "Die Datei konnte nicht geöffnet werden.",
    "Klicken Sie auf die Schaltfläche, um die Einstellungen zu speichern.",
    "Der Mandant wurde gelöscht.",
  ],
};

async function start() {
  try {
    state.settings = await send("GET", "/frontend/settings");
    const { source, target } = state.settings.language;
    $("pair").textContent = `${source.name} to ${target.name}, with a memory`;
    $("source-title").textContent = source.name;
    $("memory-title").textContent = `${target.name}, with memory`;
    $("base-title").textContent = `${target.name}, base model alone`;
    $("source").lang = source.code;
    for (const id of ["target", "translation", "base"]) $(id).lang = target.code;
    $("source").maxLength = state.settings.charLimit;
    showFormats();
    $("key-button").hidden = !state.settings.keyRequired;
    $("examples").replaceChildren(...(EXAMPLES[source.code] ?? []).map((text) => {
      const button = make("button", { type: "button", lang: source.code }, text);
      button.addEventListener("click", () => {
        $("source").value = text;
        $("source").focus();
        showCount();
        translate();
      });
      return button;
    }));
    if (state.settings.keyRequired && !key()) showKeyForm();
    else await Promise.all([listMemories(), listGlossaries()]);
    if ($("source").value) translate();
  } catch (error) {
    showError(error);
  }
}

$("key-button").addEventListener("click", showKeyForm);
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value.trim());
  $("key").value = "";
  $("key-form").hidden = true;
  showStatus("");
  start();
});
$("source").addEventListener("input", () => {
  if (!$("source").value.trim()) endCorrection();
  scheduleTranslation();
});
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    startCorrection();
  }
});
$("target").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    learn();
  }
});
$("correct").addEventListener("click", startCorrection);
$("learn").addEventListener("click", learn);
$("cancel").addEventListener("click", endCorrection);
$("copy").addEventListener("click", async () => {
  await navigator.clipboard?.writeText(state.response.translatedText);
  showStatus("Copied.");
});
$("copy").hidden = !navigator.clipboard;
$("unpin").addEventListener("click", unpin);
$("translation").addEventListener("mouseover", (event) => wordAt(event.target) && showEvidence(wordAt(event.target)));
$("translation").addEventListener("focusin", (event) => wordAt(event.target) && showEvidence(wordAt(event.target)));
$("translation").addEventListener("click", (event) => wordAt(event.target) && pin(wordAt(event.target)));
$("translation").addEventListener("dblclick", startCorrection);
$("translation").addEventListener("keydown", moveFocus);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!$("correction").hidden) endCorrection();
  else unpin();
});
startDocuments();
start();
