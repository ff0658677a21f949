// The list of memories: their selection, their sizes and the import of files.

import { send } from "./api.js";
import { $, make, showError, showStatus } from "./dom.js";
import { state } from "./state.js";
import { translate } from "./translation.js";

const importers = new Map(); // by memory, so that they survive an update of the list

export async function listMemories() {
  const known = new Set(state.memories.map((memory) => memory.name));
  state.memories = (await send("GET", "/memories")).memories;
  for (const memory of state.memories) if (!known.has(memory.name)) state.used.add(memory.name);
  showMemories();
  const into = $("into").value || state.settings?.learnsInto;
  $("into").replaceChildren(...state.memories.filter((memory) => memory.learns)
    .map((memory) => make("option", { value: memory.name, selected: memory.name === into }, memory.name)));
}

function showMemories() {
  if (!state.memories.length) {
    $("memories").replaceChildren(make("p", { class: "muted" },
      "There is no memory: the base model translates alone. Start the server with -m FOLDER."));
    return;
  }
  const head = make("tr", {}, make("th", { scope: "col" }, "Name"), make("th", { scope: "col", class: "number" }, "Pairs"),
    make("th", { scope: "col", class: "number" }, "Entries"), make("th", { scope: "col" }, make("span", { class: "visually-hidden" }, "Import")));
  const body = make("tbody", {}, ...state.memories.map(row));
  $("memories").replaceChildren(make("table", {}, make("thead", {}, head), body));
}

function row(memory) {
  const checkbox = make("input", { type: "checkbox", id: `use-${memory.name}` });
  checkbox.checked = state.used.has(memory.name);
  checkbox.addEventListener("change", () => {
    if (checkbox.checked) state.used.add(memory.name);
    else state.used.delete(memory.name);
    translate();
  });
  const name = make("label", { for: checkbox.id }, checkbox, ` ${memory.name}`);
  const weight = memory.weight === 1 ? "" : ` (weight ${memory.weight})`;
  const actions = make("div", { class: "row" });
  if (memory.learns) {
    if (!importers.has(memory.name)) importers.set(memory.name, importer(memory));
    actions.append(importers.get(memory.name));
  }
  return make("tr", {},
    make("td", {}, name, make("span", { class: "muted" }, weight)),
    make("td", { class: "number" }, memory.pairs.toLocaleString("en")),
    make("td", { class: "number" }, memory.entries.toLocaleString("en")),
    make("td", {}, actions));
}

function importer(memory) {
  const file = make("input", { type: "file", class: "visually-hidden", tabindex: "-1", accept: ".tmx,.xlf,.xliff,.po,.mo,.tsv,.csv,.xlsx,.jsonl,.gz,.xz",
    "aria-label": `Import a file into ${memory.name}` });
  const button = make("button", { type: "button" }, "Import a file");
  const bar = make("progress", { max: "1", "aria-label": `Importing into ${memory.name}`, hidden: true });
  const note = make("span", { class: "muted", role: "status" });
  button.addEventListener("click", () => file.click());
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    button.disabled = true;
    bar.hidden = false;
    bar.removeAttribute("value");
    try {
      const name = file.files[0].name;
      const path = `/memories/${encodeURIComponent(memory.name)}/import?file=${encodeURIComponent(name)}`;
      note.textContent = `Sending ${name}`;
      await waitForJob((await send("POST", path, file.files[0], { raw: true })).id, bar, note);
    } catch (error) {
      note.textContent = "";
      showError(error);
    } finally {
      bar.hidden = true;
      button.disabled = false;
      file.value = "";
    }
  });
  return make("div", { class: "row" }, note, bar, file, button);
}

async function waitForJob(id, bar, note) {
  for (;;) {
    const job = await send("GET", `/jobs/${encodeURIComponent(id)}`);
    if (job.share !== undefined) bar.value = job.share;
    note.textContent = `${job.added.toLocaleString("en")} pairs`;
    if (job.state === "failed") throw Object.assign(new Error(job.message), { status: 400 });
    if (job.state !== "running") {
      showStatus(`${job.file}: ${job.message}`);
      await Promise.all([listMemories(), translate()]);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}
