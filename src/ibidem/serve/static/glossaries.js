// The glossaries: the choice of one, and their creation, terms, import, export and deletion.

import { download, send } from "./api.js";
import { $, count, make, makeButton, showError, showStatus } from "./dom.js";
import { state } from "./state.js";
import { forget, translate } from "./translation.js";
import { listTrash, restore } from "./trash.js";

const EXAMPLES = { de: "Mandant = tenant", en: "tenant = Mandant" };

let edited = null; // the glossary whose terms are in the form; null for a new one

const path = (glossary, version = "v3") => `/${version}/glossaries/${encodeURIComponent(glossary.id)}`;

export async function listGlossaries() {
  const { glossaries, creates } = await send("GET", "/glossaries");
  const found = glossaries.filter((one) => one.source === state.source && one.target === state.target);
  if (state.glossary && state.glossary !== "none" && !found.some((one) => one.id === state.glossary)) state.glossary = undefined;
  $("glossary").replaceChildren(
    make("option", { value: "" }, "server's choice"),
    make("option", { value: "none" }, "none"),
    ...found.map((one) => make("option", { value: one.id }, `${one.name} (${count(one.terms, "term")})`)));
  $("glossary").value = state.glossary ?? "";
  $("glossary-label").hidden = !found.length;
  for (const id of ["new-glossary", "import-glossary"]) $(id).hidden = !creates;
  $("glossaries-pane").hidden = !found.length && !creates;
  $("glossaries").replaceChildren(found.length ? make("ul", { class: "stored" }, ...found.map(row))
    : make("p", { class: "muted" }, "There is no glossary. A glossary has terms and the translations that must be used for them."));
}

async function refresh() {
  forget();
  await listGlossaries();
  translate();
  await listTrash();
}

function row(glossary) {
  const item = make("li", {},
    make("span", { class: "title" }, glossary.name),
    make("span", { class: "number" }, count(glossary.terms, "term")));
  const actions = make("div", { class: "row actions" });
  const managed = glossary.rights === "manage";
  if (managed) actions.append(makeButton("Edit", () => startEdit(glossary).catch(showError), { class: "quiet", "aria-label": `Edit ${glossary.name}` }));
  actions.append(makeButton("Export", () => download(`/glossaries/${encodeURIComponent(glossary.id)}/export?format=csv`, `${glossary.name}.csv`).catch(showError),
    { class: "quiet", "aria-label": `Export ${glossary.name}` }));
  if (managed) actions.append(makeButton("Delete", () => remove(glossary), { class: "quiet", "aria-label": `Delete ${glossary.name}` }));
  item.append(actions);
  return item;
}

async function startEdit(glossary) {
  const query = new URLSearchParams({ source_lang: glossary.source, target_lang: glossary.target });
  const { dictionaries } = await send("GET", `${path(glossary)}/entries?${query}`);
  edited = glossary;
  $("terms-name").value = glossary.name;
  $("terms").value = dictionaries[0].entries.replaceAll("\t", " = ");
  showForm(true);
}

function showForm(shown) {
  $("terms-form").hidden = !shown;
  $("terms-example").textContent = EXAMPLES[state.source] ?? "term = translation";
  if (shown) $("terms-name").focus();
}

// Returns the lines of the form with a tab between term and translation; shows the first line that has no translation.
function termLines() {
  const lines = $("terms").value.split("\n").map((line) => line.trim());
  const wrong = lines.findIndex((line) => line && !/[=\t]/.test(line));
  if (wrong >= 0) {
    showStatus(`Terms, line ${wrong + 1}: put = between the term and its translation, as in ${$("terms-example").textContent}.`, { wrong: true });
    return null;
  }
  return lines.filter(Boolean).map((line) => (line.includes("\t") ? line : line.replace(/\s+=\s+|\s*=\s*/, "\t"))).join("\n");
}

async function save(event) {
  event.preventDefault();
  const name = $("terms-name").value.trim();
  const entries = termLines();
  if (entries === null) return;
  const terms = { source_lang: state.source, target_lang: state.target, entries, entries_format: "tsv" };
  try {
    if (edited) {
      await send("PUT", `${path(edited)}/dictionaries`, terms);
      if (name !== edited.name) await send("PATCH", path(edited), { name });
    } else {
      const made = await send("POST", "/v2/glossaries", { name, ...terms });
      state.glossary = made.glossary_id;
    }
    showForm(false);
    await refresh();
    showStatus(edited ? `Saved ${name}.` : `Created ${name}; it is used for translations now.`);
  } catch (error) {
    showError(error);
  }
}

async function remove(glossary) {
  try {
    await send("DELETE", path(glossary, "v2"));
    if (state.glossary === glossary.id) state.glossary = undefined;
    await refresh();
    showStatus(`Deleted ${glossary.name}.`, { undo: () => restore({ ...glossary, kind: "glossary" }) });
  } catch (error) {
    showError(error);
  }
}

async function importFile(file) {
  try {
    const query = new URLSearchParams({ file: file.name, source: state.source, target: state.target });
    const made = await send("POST", `/glossaries/import?${query}`, file, { raw: true });
    state.glossary = made.id;
    await refresh();
    showStatus(`Imported ${made.name}: ${count(made.terms, "term")}; it is used for translations now.`);
  } catch (error) {
    showError(error);
  }
}

$("glossary").addEventListener("change", () => {
  state.glossary = $("glossary").value || undefined;
  translate();
});
$("new-glossary").addEventListener("click", () => {
  edited = null;
  $("terms-name").value = "";
  $("terms").value = "";
  showForm(true);
});
$("terms-form").addEventListener("submit", save);
$("terms-cancel").addEventListener("click", () => showForm(false));
$("import-glossary").addEventListener("click", () => $("glossary-file").click());
$("glossary-file").addEventListener("change", async () => {
  const [file] = $("glossary-file").files;
  if (file) await importFile(file);
  $("glossary-file").value = "";
});
