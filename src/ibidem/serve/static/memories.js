// The list of memories: their selection, sizes and rights; creation, names, import, export and deletion.

import { download, send, sendUntilFree } from "./api.js";
import { $, count, make, makeButton, showError, showStatus } from "./dom.js";
import { fillSearch } from "./search.js";
import { fitting, languageName, offers, state } from "./state.js";
import { forget, translate } from "./translation.js";
import { listTrash, restore } from "./trash.js";

const FORMATS = ".tmx,.xlf,.xliff,.po,.mo,.tsv,.csv,.xlsx,.jsonl,.gz,.xz";
const OTHERS = { none: "Only this key", read: "Other keys may read", write: "Other keys may change" };
const imports = new Map(); // the progress of running imports by memory, so that it survives an update of the list

const path = (name) => `/memories/${encodeURIComponent(name)}`;

export async function listMemories() {
  const known = new Set(state.memories.map((memory) => memory.name));
  const found = await send("GET", "/memories");
  state.memories = found.memories;
  state.creates = found.creates;
  for (const memory of state.memories) if (!known.has(memory.name)) state.used.add(memory.name);
  showMemories();
}

// After a change of the list: shows it and translates again.
async function refresh() {
  forget();
  await listMemories();
  translate();
  await listTrash();
}

export function showMemories() {
  $("new-memory").hidden = !state.creates;
  const into = $("into").value || state.settings?.learnsInto;
  const teachable = fitting().filter((memory) => memory.learns);
  $("into").replaceChildren(...teachable.map((memory) => make("option", { value: memory.name, selected: memory.name === into }, memory.name)));
  fillSearch();
  if (!state.memories.length) {
    const remedy = state.creates ? "Create one, or import a file into a new one." : offers("memories") ? "" : "Start the server with -m FOLDER or --memories FOLDER.";
    $("memories").replaceChildren(make("p", { class: "muted" }, `There is no memory: the base model translates alone. ${remedy}`));
    return;
  }
  $("memories").replaceChildren(make("ul", { class: "stored" }, ...state.memories.map(row)));
}

function row(memory) {
  const fits = fitting().includes(memory);
  const checkbox = make("input", { type: "checkbox", id: `use-${memory.name}`, disabled: !fits });
  checkbox.checked = fits && state.used.has(memory.name);
  checkbox.addEventListener("change", () => {
    if (checkbox.checked) state.used.add(memory.name);
    else state.used.delete(memory.name);
    translate();
  });
  const notes = [
    fits ? "" : `${languageName(memory.source)} to ${languageName(memory.target)}`,
    memory.weight === 1 ? "" : `weight ${memory.weight}`,
    memory.learns ? "" : "read only",
  ].filter(Boolean).join(", ");
  const item = make("li", {},
    make("label", { class: "title", for: checkbox.id }, checkbox, make("span", {}, memory.name, notes && make("span", { class: "muted" }, ` (${notes})`))),
    make("span", { class: "number", title: count(memory.entries, "stored word part") }, count(memory.pairs, "pair")));
  const actions = make("div", { class: "row actions" });
  if (state.settings?.keyRequired && memory.rights === "manage" && memory.others) actions.append(sharing(memory));
  if (memory.learns) actions.append(...importer(memory));
  if (memory.pairs) {
    actions.append(makeButton("Export", () => download(`${path(memory.name)}/export?format=tmx`, `${memory.name}.tmx`).catch(showError),
      { class: "quiet", "aria-label": `Export ${memory.name}` }));
  }
  if (memory.rights === "manage") {
    actions.append(
      makeButton("Rename", () => startRename(item, memory), { class: "quiet", "aria-label": `Rename ${memory.name}` }),
      makeButton("Delete", () => remove(memory), { class: "quiet", "aria-label": `Delete ${memory.name}` }));
  }
  item.append(actions);
  const running = imports.get(memory.name);
  if (running) item.append(running);
  return item;
}

function sharing(memory) {
  const select = make("select", { "aria-label": `Rights of other keys for ${memory.name}` },
    ...Object.entries(OTHERS).map(([value, text]) => make("option", { value, selected: value === memory.others }, text)));
  select.addEventListener("change", async () => {
    try {
      await send("PATCH", path(memory.name), { others: select.value });
      showStatus(`${memory.name}: ${OTHERS[select.value].toLowerCase()}.`);
    } catch (error) {
      select.value = memory.others;
      showError(error);
    }
    listMemories().catch(showError);
  });
  return select;
}

function startRename(item, memory) {
  const field = make("input", { value: memory.name, maxlength: "64", "aria-label": `New name of ${memory.name}`, autocomplete: "off" });
  const form = make("form", {}, field, make("button", { type: "submit", class: "primary" }, "Rename"),
    makeButton("Cancel", showMemories, { class: "quiet" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const { name } = await send("PATCH", path(memory.name), { name: field.value });
      if (state.used.has(memory.name)) state.used.add(name);
      else state.memories.push({ ...memory, name }); // known, so that it stays unselected
      await refresh();
    } catch (error) {
      showError(error);
    }
  });
  item.replaceChildren(form);
  field.focus();
  field.select();
}

async function remove(memory) {
  try {
    const deleted = await send("DELETE", path(memory.name));
    await refresh();
    showStatus(`Deleted ${memory.name}.`, { undo: () => restore(deleted) });
  } catch (error) {
    showError(error);
  }
}

function importer(memory) {
  const file = make("input", { type: "file", class: "visually-hidden", tabindex: "-1", accept: FORMATS, "aria-label": `Import a file into ${memory.name}` });
  const button = makeButton("Import", () => file.click(), { class: "quiet", "aria-label": `Import a file into ${memory.name}` });
  button.disabled = imports.has(memory.name);
  file.addEventListener("change", () => file.files.length && runImport(memory, file.files[0]));
  return [file, button];
}

// Imports a file; `badPairs` says what the server does with defects of the file: refuse it, repair it, or learn it as it is.
async function runImport(memory, file, badPairs = "stop") {
  const bar = make("progress", { max: "1", "aria-label": `Importing into ${memory.name}` });
  const note = make("span", { class: "muted", role: "status" }, `Sending ${file.name}`);
  const job = { id: null };
  const cancel = makeButton("Cancel", () => job.id && send("DELETE", `/jobs/${encodeURIComponent(job.id)}`).catch(showError), { class: "quiet" });
  imports.set(memory.name, make("div", { class: "busy" }, bar, note, cancel));
  showMemories();
  try {
    job.id = (await send("POST", `${path(memory.name)}/import?file=${encodeURIComponent(file.name)}&bad_pairs=${badPairs}`, file, { raw: true })).id;
    await waitForJob(job.id, bar, note);
  } catch (error) {
    showError(error);
    if (error.refused) {
      $("status").append(
        makeButton("Leave bad pairs out", () => runImport(memory, file, "fix")),
        makeButton("Learn all pairs", () => runImport(memory, file, "keep")),
      );
    }
  } finally {
    imports.delete(memory.name);
    showMemories();
  }
}

async function waitForJob(id, bar, note) {
  for (;;) {
    const job = await sendUntilFree("GET", `/jobs/${encodeURIComponent(id)}`);
    if (job.share !== undefined) bar.value = job.share;
    note.textContent = count(job.added, "pair");
    if (job.state === "failed") throw Object.assign(new Error(job.message), { status: 400, refused: job.refused });
    if (job.state !== "running") {
      showStatus(`${job.file}: ${job.message}`);
      forget();
      await Promise.all([listMemories(), translate()]);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}

function showForm(shown) {
  $("memory-form").hidden = !shown;
  $("memory-name").value = "";
  if (shown) $("memory-name").focus();
}

$("new-memory").addEventListener("click", () => showForm($("memory-form").hidden));
$("memory-cancel").addEventListener("click", () => showForm(false));
$("memory-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const { name } = await send("POST", "/memories", { name: $("memory-name").value, source: state.source, target: state.target });
    showForm(false);
    await refresh();
    showStatus(`Created ${name}. Corrections and imported files fill it.`);
  } catch (error) {
    showError(error);
  }
});
