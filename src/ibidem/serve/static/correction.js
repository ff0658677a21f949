// Correction of a translation, sentence by sentence, which is added to a memory.

import { send } from "./api.js";
import { $, count, make, showError, showStatus } from "./dom.js";
import { listMemories } from "./memories.js";
import { showLegend, showViews } from "./sentences.js";
import { fitting, state } from "./state.js";
import { forget, translate } from "./translation.js";

let subject = null; // the corrected sentences and their translations; the source field may change meanwhile

const teachable = () => fitting().filter((memory) => memory.learns);

// Opens the translation for correction, at a sentence, and puts a text into it if one is given.
export function startCorrection(number = null, text = null) {
  if (!state.segments.length || state.segments.some((segment) => segment.pending)) return;
  if ($("memory-pane").classList.contains("stale")) return;
  if ($("correction").hidden) open();
  const fields = $("correction").querySelectorAll("textarea");
  const field = fields[number ?? 0] ?? fields[0];
  if (text !== null && state.segments[number]?.source === subject[number]?.source) field.value = text;
  fit(field);
  field.focus();
}

function open() {
  subject = state.segments.map(({ source, translation }) => ({ source, translation }));
  const several = subject.length > 1;
  $("correction").className = several ? "several" : "single";
  $("correction").replaceChildren(...subject.map(({ source, translation }, number) => {
    const field = make("textarea", { rows: several ? 1 : 5, lang: state.target, "aria-describedby": "target-hint",
      "aria-label": several ? `Your translation of sentence ${number + 1}` : "Your translation" });
    if (!several) field.id = "target";
    field.value = translation;
    field.addEventListener("input", () => fit(field));
    return several ? make("div", { class: "pair" }, make("span", { class: "from", lang: state.source }, source), field) : field;
  }));
  $("correction").hidden = false;
  $("target-hint").hidden = false;
  $("translation").hidden = true;
  showViews();
  showLegend();
  for (const field of $("correction").querySelectorAll(".pair textarea")) fit(field);
  for (const id of ["learn", "cancel"]) $(id).hidden = false;
  const memories = teachable();
  $("learn").disabled = !memories.length;
  $("into-label").hidden = memories.length < 2;
  $("correct").hidden = true;
  if (!memories.length) {
    const remedy = state.creates ? "create one below" : "this server has none that you may change";
    showStatus(`There is no memory for corrections: ${remedy}.`, { wrong: true });
  }
}

function fit(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

export function endCorrection() {
  $("correction").hidden = true;
  $("correction").className = "";
  $("target-hint").hidden = true;
  $("translation").hidden = false;
  for (const id of ["learn", "cancel", "into-label"]) $(id).hidden = true;
  $("correct").hidden = false;
  showViews();
  showLegend();
}

// Returns the changed sentences, or all of them if the translation was confirmed without a change.
function corrections() {
  const given = [...$("correction").querySelectorAll("textarea")].map((field) => field.value.trim().replace(/\s*\n\s*/g, " "));
  if (given.some((text) => !text)) return null;
  const pairs = subject.map(({ source }, number) => ({ source, target: given[number] }));
  const changed = pairs.filter((pair, number) => pair.target !== subject[number].translation.trim());
  return changed.length ? changed : pairs;
}

export async function learn() {
  if ($("learn").disabled) return;
  const pairs = corrections();
  if (!pairs?.length) {
    showStatus("A sentence has no translation: write one, or cancel.", { wrong: true });
    return;
  }
  const memory = $("into").value;
  const path = `/memories/${encodeURIComponent(memory)}/pairs`;
  $("learn").disabled = true;
  try {
    const { added, replaced } = await send("POST", path, { pairs, origin: "suggested", replace: true });
    endCorrection();
    if (added.length) {
      const undo = () => undoLearning(path, added, replaced);
      showStatus(added.length === 1 ? "Learnt the correction." : `Learnt ${count(added.length, "sentence")}.`, { undo });
    } else {
      showStatus("The memory already contains this pair.");
    }
    forget();
    await Promise.all([translate(), listMemories()]);
    document.querySelector('#translation .word[tabindex="0"]')?.focus({ preventScroll: true });
  } catch (error) {
    showError(error);
  } finally {
    $("learn").disabled = !teachable().length;
  }
}

async function undoLearning(path, ids, replaced) {
  try {
    await send("DELETE", path, { ids });
    const once = new Map(replaced.map((pair) => [JSON.stringify([pair.source, pair.target]), pair]));
    for (const { source, target, origin } of once.values()) await send("POST", path, { pairs: [{ source, target }], origin });
    showStatus("The correction was undone.");
    forget();
    await Promise.all([translate(), listMemories()]);
  } catch (error) {
    showError(error);
  }
}
