// Deleted memories and glossaries, which can be restored until they expire.

import { send } from "./api.js";
import { $, make, makeButton, showError, showStatus } from "./dom.js";
import { listGlossaries } from "./glossaries.js";
import { listMemories } from "./memories.js";
import { offers } from "./state.js";
import { forget, translate } from "./translation.js";

const path = (item) => `/trash/${item.kind}/${encodeURIComponent(item.id)}`;
const dated = (text) => new Date(text).toLocaleDateString("en", { day: "numeric", month: "long", year: "numeric" });

export async function listTrash() {
  if (!offers("memories") && !offers("glossaries")) return;
  const { items } = await send("GET", "/trash").catch(() => ({ items: [] })); // a key that only reads may not list it
  $("trash-pane").hidden = !items.length;
  $("trash").replaceChildren(...items.map(row));
}

function row(item) {
  const actions = make("div", { class: "row actions" });
  const list = make("li", {},
    make("span", { class: "title" }, make("span", {}, item.name, make("span", { class: "muted" }, ` (${item.kind}, kept until ${dated(item.expires)})`))), actions);
  actions.append(
    makeButton("Restore", () => restore(item), { "aria-label": `Restore ${item.name}` }),
    makeButton("Delete for good", () => confirmRemoval(item, actions), { class: "quiet", "aria-label": `Delete ${item.name} for good` }));
  return list;
}

function confirmRemoval(item, actions) {
  const yes = makeButton("Yes, delete it", async () => {
    try {
      await send("DELETE", path(item));
      showStatus(`${item.name} was deleted for good.`);
    } catch (error) {
      showError(error);
    }
    listTrash();
  });
  actions.replaceChildren(make("span", { class: "muted" }, "This cannot be undone."), yes, makeButton("Keep it", listTrash, { class: "quiet" }));
  yes.focus();
}

export async function restore(item) {
  try {
    const { name } = await send("POST", `${path(item)}/restore`, {});
    forget();
    await Promise.all([listMemories(), listGlossaries()]);
    translate();
    await listTrash();
    showStatus(`Restored ${name}.`);
  } catch (error) {
    showError(error);
    listTrash();
  }
}
