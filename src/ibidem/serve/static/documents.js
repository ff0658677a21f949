// Translation of files: chosen or dropped, with their progress, their failures and the download.

import { download, explain, send, sendUntilFree } from "./api.js";
import { $, count, make, makeButton, showError, showStatus } from "./dom.js";
import { selectedMemories, state } from "./state.js";

const POLL = 400; // milliseconds between two requests for the state of a document
const SHOWN_FAILURES = 10;

function parameters() {
  const memories = selectedMemories();
  const { source, target } = state;
  const given = { source, target, ...(memories && { memories: memories.join(",") }), ...(state.glossary && { glossary: state.glossary }) };
  return `&${new URLSearchParams(given)}`;
}

export function showFormats() {
  const endings = state.settings?.supportedFilesFormat ?? [];
  $("document-file").accept = endings.map((ending) => (ending.startsWith(".") ? ending : ".xml")).join(",");
  $("document-formats").textContent = endings.map((ending) => ending.replace(/^\./, "")).join(", ");
}

async function translateDocument(file) {
  const bar = make("progress", { max: "1", "aria-label": `Translating ${file.name}` });
  const note = make("span", { class: "muted", role: "status" }, "Sending");
  const cancel = make("button", { type: "button", class: "quiet", "aria-label": `Cancel ${file.name}` }, "Cancel");
  const row = make("li", {}, make("div", { class: "row" }, make("span", { class: "name" }, file.name), bar, note, cancel));
  $("document-list").prepend(row);
  let id = null;
  let stopped = false;
  const isStopped = () => stopped;
  const onWait = (error) => {
    note.textContent = "Waiting";
    note.title = error.message;
  };
  cancel.addEventListener("click", async () => {
    stopped = true;
    row.remove();
    if (id) await send("DELETE", `/documents/${encodeURIComponent(id)}`).catch(() => {});
  });
  try {
    const path = `/documents?file=${encodeURIComponent(file.name)}${parameters()}`;
    id = (await sendUntilFree("POST", path, file, { raw: true, onWait, isStopped })).id;
    for (;;) {
      if (stopped) {
        await send("DELETE", `/documents/${encodeURIComponent(id)}`).catch(() => {});
        return;
      }
      const found = await sendUntilFree("GET", `/documents/${encodeURIComponent(id)}`, undefined, { isStopped });
      bar.value = found.share;
      note.textContent = found.state === "queued" ? "Waiting" : `${Math.floor(100 * found.share)} %`;
      if (found.state === "done") return showResult(row, note, bar, cancel, found);
      if (found.state !== "running" && found.state !== "queued") throw Object.assign(new Error(found.message), { status: 400 });
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
  } catch (error) {
    if (stopped) return;
    bar.hidden = true;
    cancel.textContent = "Remove";
    note.classList.add("wrong");
    note.textContent = explain(error);
    if (error.status === 403) showError(error);
  }
}

function showResult(row, note, bar, cancel, found) {
  const save = () => download(`/documents/${encodeURIComponent(found.id)}/file`, found.file).catch(showError);
  bar.hidden = true;
  note.textContent = found.failures.length ? `${count(found.failures.length, "text")} without a translation` : "Translated";
  cancel.textContent = "Remove";
  cancel.before(makeButton("Download", save, { class: "primary", "aria-label": `Download ${found.file}` }));
  if (found.failures.length) {
    const items = found.failures.slice(0, SHOWN_FAILURES).map((failure) =>
      make("li", {}, `${failure.place ?? `line ${failure.line}`}: ${failure.reason} — ${failure.source}`));
    row.append(make("details", {}, make("summary", {}, "Texts that stay as they were"), make("ul", {}, ...items)));
  }
  showStatus(`${found.file} is translated.`);
}

const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

export function startDocuments() {
  const file = $("document-file");
  $("document-button").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    for (const one of file.files) translateDocument(one);
    file.value = "";
  });
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); // else the browser would open the file
    $("drop").hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) $("drop").hidden = true;
  });
  document.addEventListener("drop", (event) => {
    $("drop").hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    for (const one of event.dataTransfer.files) translateDocument(one);
    $("documents-pane").scrollIntoView({ block: "nearest" });
  });
}
