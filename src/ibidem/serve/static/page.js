// The page of `ibidem serve`: its start, its buttons and its keyboard shortcuts.

import { explain, key, send } from "./api.js";
import { endCorrection, learn, startCorrection } from "./correction.js";
import { showFormats, startDocuments } from "./documents.js";
import { $, make, showError, showKeyForm, showStatus } from "./dom.js";
import { moveFocus, pin, showEvidence, unpin, wordAt } from "./evidence.js";
import { listGlossaries } from "./glossaries.js";
import { chooseLanguages, startLanguages } from "./languages.js";
import { listMemories } from "./memories.js";
import { startSearch } from "./search.js";
import { link, linkAtCaret, sentenceAt, startViews } from "./sentences.js";
import { state } from "./state.js";
import { clear, fitSource, scheduleTranslation, showProblem, translate } from "./translation.js";
import { listTrash } from "./trash.js";

const EXAMPLES = {
  de: [
    "Die Datei konnte nicht geöffnet werden.",
    "Klicken Sie auf die Schaltfläche, um die Einstellungen zu speichern.",
    "Der Mandant wurde gelöscht.",
  ],
  en: [
    "The file could not be opened.",
    "Click the button to save the settings.",
    "The client was deleted.",
  ],
};

async function start() {
  try {
    const [settings, languages] = await Promise.all([send("GET", "/frontend/settings"), send("GET", "/languages")]);
    state.settings = settings;
    state.languages = languages;
    startLanguages();
    showFormats();
    $("key-button").hidden = !settings.keyRequired;
    if (settings.keyRequired && !key()) showKeyForm();
    else {
      await Promise.all([listMemories(), listGlossaries()]);
      await listTrash();
      startSearch();
    }
    if ($("source").value) translate();
    else clear();
  } catch (error) {
    if (error.status) showError(error);
    else showProblem(explain(error), start);
  }
}

function showExamples() {
  $("examples").replaceChildren(...(EXAMPLES[state.source] ?? []).map((text) => {
    const button = make("button", { type: "button", lang: state.source }, text);
    button.addEventListener("click", () => setSource(text));
    return button;
  }));
}

function setSource(text) {
  $("source").value = text;
  $("source").focus();
  fitSource();
  translate();
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
$("clear").addEventListener("click", () => {
  const text = $("source").value;
  $("source").value = "";
  endCorrection();
  clear();
  $("source").focus();
  showStatus("The text was cleared.", { undo: () => setSource(text) });
});
document.addEventListener("selectionchange", () => {
  if (document.activeElement === $("source")) linkAtCaret();
});
$("correction").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    learn();
  }
});
$("correct").addEventListener("click", () => startCorrection());
$("learn").addEventListener("click", learn);
$("cancel").addEventListener("click", endCorrection);
$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(state.translation);
    showStatus("Copied.");
  } catch {
    showStatus("The browser does not allow copying: select the text and copy it.", { wrong: true });
  }
});
$("copy").hidden = !navigator.clipboard;
$("unpin").addEventListener("click", () => unpin({ close: true }));

// In a narrow window the evidence is drawn over the foot of the page.
const isNarrow = () => innerWidth <= 1200;

function point(event) {
  const word = wordAt(event.target);
  // In a narrow window the evidence would cover the word between press and release, which would then be no click.
  if (word && (!isNarrow() || word.matches(":focus-visible"))) showEvidence(word);
  link(sentenceAt(event.target));
}
$("translation").addEventListener("mouseover", point);
$("translation").addEventListener("focusin", point);
$("translation").addEventListener("mouseleave", () => link(null));
$("translation").addEventListener("click", (event) => wordAt(event.target) && pin(wordAt(event.target)));
$("translation").addEventListener("dblclick", (event) => startCorrection(sentenceAt(event.target)));
$("translation").addEventListener("keydown", moveFocus);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!$("correction").hidden) endCorrection();
  else unpin({ close: true });
});
window.addEventListener("resize", fitSource);

// In a narrow window the evidence is shown only while the translation is in view.
new IntersectionObserver(([entry]) => $("evidence").classList.toggle("away", !entry.isIntersecting && isNarrow())).observe($("workspace"));

startViews();
$("by-sentence").addEventListener("click", fitSource); // the field that was hidden has the height of an earlier text
fitSource();
chooseLanguages((changed) => {
  showExamples();
  if (changed) listGlossaries().catch(showError);
});
startDocuments();
start();
