// Correction of a translation, which is added to a memory.

import { send } from "./api.js";
import { $, showError, showStatus } from "./dom.js";
import { listMemories } from "./memories.js";
import { state } from "./state.js";
import { showLegend, translate } from "./translation.js";

let subject = null; // the corrected source and its translation; the source field may change meanwhile

const canLearn = () => state.memories.some((memory) => memory.learns);

export function startCorrection() {
  if (!state.response) return;
  subject = { source: state.source, translation: state.response.translatedText };
  $("target").value = subject.translation;
  $("correction").hidden = false;
  $("translation").hidden = true;
  showLegend();
  for (const id of ["learn", "cancel"]) $(id).hidden = false;
  $("learn").disabled = !canLearn();
  $("into-label").hidden = state.memories.filter((memory) => memory.learns).length < 2;
  $("correct").hidden = true;
  $("target").focus();
  if (!canLearn()) showStatus("There is no memory for corrections: start the server with -m FOLDER.", { wrong: true });
}

export function endCorrection() {
  $("correction").hidden = true;
  $("translation").hidden = false;
  for (const id of ["learn", "cancel", "into-label"]) $(id).hidden = true;
  $("correct").hidden = false;
  showLegend();
}

const lines = (text) => text.split(/\r\n|\n|\r/).map((line) => line.trim()).filter(Boolean);

// Returns the changed lines, or all lines if the translation was confirmed without a change.
function corrections() {
  const [sources, proposed, given] = [subject.source, subject.translation, $("target").value].map(lines);
  if (sources.length !== given.length) return null;
  const pairs = sources.map((source, number) => ({ source, target: given[number] }));
  const changed = pairs.filter((pair, number) => pair.target !== proposed[number]);
  return changed.length ? changed : pairs;
}

export async function learn() {
  const pairs = corrections();
  if (!pairs?.length) {
    showStatus("The correction must have as many lines as the source.", { wrong: true });
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
      showStatus(added.length === 1 ? "Learnt the correction." : `Learnt ${added.length} lines.`, { undo });
    } else {
      showStatus("The memory already contains this pair.");
    }
    await Promise.all([translate(), listMemories()]);
    focusFirstWord();
  } catch (error) {
    showError(error);
  } finally {
    $("learn").disabled = !canLearn();
  }
}

async function undoLearning(path, ids, replaced) {
  try {
    await send("DELETE", path, { ids });
    const once = new Map(replaced.map((pair) => [JSON.stringify([pair.source, pair.target]), pair]));
    for (const { source, target, origin } of once.values()) await send("POST", path, { pairs: [{ source, target }], origin });
    showStatus("The correction was undone.");
    await Promise.all([translate(), listMemories()]);
  } catch (error) {
    showError(error);
  }
}

function focusFirstWord() {
  document.querySelector('#translation .word[tabindex="0"]')?.focus({ preventScroll: true });
}
