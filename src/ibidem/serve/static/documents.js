// Translation of files: chosen or dropped, with their progress, their failures and the download.

import { key, send } from "./api.js";
import { $, make, showError, showStatus } from "./dom.js";
import { state } from "./state.js";

const POLL = 400; // milliseconds between two requests for the state of a document
const SHOWN_FAILURES = 10;

function memoriesParameter() {
  const names = state.memories.map((memory) => memory.name).filter((name) => state.used.has(name));
  return names.length === state.memories.length ? "" : `&memories=${encodeURIComponent(names.join(","))}`;
}

export function showFormats() {
  const endings = state.settings?.supportedFilesFormat ?? [];
  $("document-file").accept = endings.map((ending) => (ending.startsWith(".") ? ending : ".xml")).join(",");
  $("document-formats").textContent = endings.map((ending) => ending.replace(/^\./, "")).join(", ");
}

async function translateDocument(file) {
  const bar = make("progress", { max: "1", "aria-label": `Translating ${file.name}` });
  const note = make("span", { class: "muted", role: "status" }, "Sending");
  const cancel = make("button", { type: "button", class: "quiet" }, "Cancel");
  const row = make("li", {}, make("div", { class: "row" }, make("span", { class: "name" }, file.name), bar, note, cancel));
  $("document-list").prepend(row);
  let id = null;
  let stopped = false;
  cancel.addEventListener("click", async () => {
    stopped = true;
    row.remove();
    if (id) await send("DELETE", `/documents/${encodeURIComponent(id)}`).catch(() => {});
  });
  try {
    const path = `/documents?file=${encodeURIComponent(file.name)}${memoriesParameter()}`;
    id = (await send("POST", path, file, { raw: true })).id;
    for (;;) {
      if (stopped) {
        await send("DELETE", `/documents/${encodeURIComponent(id)}`).catch(() => {});
        return;
      }
      const found = await send("GET", `/documents/${encodeURIComponent(id)}`);
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
    note.textContent = error.status ? error.message : "The server cannot be reached.";
    if (error.status === 403) showError(error);
  }
}

function showResult(row, note, bar, cancel, found) {
  const download = make("button", { type: "button", class: "primary" }, "Download");
  download.addEventListener("click", () => save(found).catch(showError));
  bar.hidden = true;
  note.textContent = found.failures.length ? `${found.failures.length} ${found.failures.length === 1 ? "text" : "texts"} without a translation` : "Translated";
  cancel.textContent = "Remove";
  cancel.before(download);
  if (found.failures.length) {
    const items = found.failures.slice(0, SHOWN_FAILURES).map((failure) =>
      make("li", {}, `${failure.place ?? `line ${failure.line}`}: ${failure.reason} — ${failure.source}`));
    row.append(make("details", {}, make("summary", {}, "Texts that stay as they were"), make("ul", {}, ...items)));
  }
  showStatus(`${found.file} is translated.`);
}

// The request needs the key in its header, so a link to the file would not do.
async function save(found) {
  const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
  const response = await fetch(`/documents/${encodeURIComponent(found.id)}/file`, { headers });
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw Object.assign(new Error(body.error ?? "The file was removed."), { status: response.status });
  }
  const url = URL.createObjectURL(await response.blob());
  make("a", { href: url, download: found.file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

export function startDocuments() {
  const pane = $("documents-pane");
  const file = $("document-file");
  $("document-button").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    for (const one of file.files) translateDocument(one);
    file.value = "";
  });
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); // else the browser would open the file
    pane.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) pane.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    pane.classList.remove("dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    for (const one of event.dataTransfer.files) translateDocument(one);
  });
}
