// Correcting a translation, and letting a memory learn it.

import { ask } from "./asking.js";
import { $ } from "./elements.js";
import { listMemories } from "./memories.js";
import { state } from "./state.js";
import { fail, say } from "./telling.js";
import { showLegend, translate } from "./translation.js";

let subject = null; // the source that is corrected, and its translation; the page may go on to another meanwhile

const canLearn = () => state.memories.some((memory) => memory.learns);

export function correct() {
  if (!state.answer) return;
  subject = { source: state.source, translation: state.answer.translatedText };
  $("target").value = subject.translation;
  $("correction").hidden = false;
  $("translation").hidden = true;
  showLegend();
  for (const id of ["learn", "cancel"]) $(id).hidden = false;
  $("learn").disabled = !canLearn();
  $("into-label").hidden = state.memories.filter((memory) => memory.learns).length < 2;
  $("correct").hidden = true;
  $("target").focus();
  if (!canLearn()) say("No memory here can learn: start the server with one (-m FOLDER).", { wrong: true });
}

export function leaveCorrection() {
  $("correction").hidden = true;
  $("translation").hidden = false;
  for (const id of ["learn", "cancel", "into-label"]) $(id).hidden = true;
  $("correct").hidden = false;
  showLegend();
}

const lines = (text) => text.split(/\r\n|\n|\r/).map((line) => line.trim()).filter(Boolean);

// The lines that were changed, or all of them where the translation was confirmed as it was.
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
    say("The correction needs as many lines as the source.", { wrong: true });
    return;
  }
  const memory = $("into").value;
  const path = `/memories/${encodeURIComponent(memory)}/pairs`;
  $("learn").disabled = true;
  try {
    const { added, replaced } = await ask("POST", path, { pairs, origin: "suggested", replace: true });
    leaveCorrection();
    if (added.length) {
      const undo = () => forget(path, added, replaced);
      say(`Learnt ${added.length === 1 ? "it" : `${added.length} lines`}: the next translation uses it.`, { undo });
    } else {
      say("The memory knew that already.");
    }
    await Promise.all([translate(), listMemories()]);
    focusFirstWord();
  } catch (error) {
    fail(error);
  } finally {
    $("learn").disabled = !canLearn();
  }
}

async function forget(path, ids, replaced) {
  try {
    await ask("DELETE", path, { ids });
    const once = new Map(replaced.map((pair) => [JSON.stringify([pair.source, pair.target]), pair]));
    for (const { source, target, origin } of once.values()) await ask("POST", path, { pairs: [{ source, target }], origin });
    say("Undone.");
    await Promise.all([translate(), listMemories()]);
  } catch (error) {
    fail(error);
  }
}

function focusFirstWord() {
  document.querySelector('#translation .word[tabindex="0"]')?.focus({ preventScroll: true });
}
