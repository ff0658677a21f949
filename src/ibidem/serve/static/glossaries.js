// The choice of a glossary, where the server has one.

import { send } from "./api.js";
import { $, make } from "./dom.js";
import { state } from "./state.js";
import { translate } from "./translation.js";

export async function listGlossaries() {
  const { source, target } = state.settings.language;
  const found = (await send("GET", "/v2/glossaries")).glossaries
    .filter((one) => one.source_lang === source.code && one.target_lang === target.code);
  const chosen = state.glossary ?? "";
  $("glossary").replaceChildren(
    make("option", { value: "" }, "server's choice"),
    make("option", { value: "none" }, "none"),
    ...found.map((one) => make("option", { value: one.glossary_id }, `${one.name} (${one.entry_count.toLocaleString("en")} terms)`)));
  $("glossary").value = chosen;
  $("glossary-label").hidden = !found.length;
}

$("glossary").addEventListener("change", () => {
  state.glossary = $("glossary").value || undefined;
  translate();
});
