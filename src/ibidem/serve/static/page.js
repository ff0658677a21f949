// The page of `ibidem serve`. Whatever comes from a user, a model or a memory is put in with textContent.
"use strict";

const THEMES = ["auto", "light", "dark"];
const PAUSE = 250; // milliseconds after the last key before a text is translated
const SHOWN = 4; // neighbours of a token before "show all"
const LONGEST_DIFF = 600; // words; comparing takes the product of both lengths
const EXAMPLES = {
  de: [
    "Die Datei konnte nicht geöffnet werden.",
    "Klicken Sie auf die Schaltfläche, um die Einstellungen zu speichern.",
    "Der Mandant wurde gelöscht.",
  ],
};

const stored = (name) => {
  try { return localStorage.getItem(name); } catch { return null; }
};
const setTheme = (theme) => {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
};
setTheme(stored("theme") ?? "auto"); // before anything is drawn

document.addEventListener("DOMContentLoaded", () => {
  const $ = (id) => document.getElementById(id);
  const state = {
    settings: null, // of the server
    memories: [],
    used: new Set(), // names of the memories that are ticked
    source: "", // the text that `answer` is the translation of
    answer: null,
    pinned: null, // the number of the word that is held
    looked: null, // the word whose evidence is shown
    request: null, // aborts the translation under way
    timer: 0,
  };

  // ---------------------------------------------------------------- asking the server

  const key = () => sessionStorage.getItem("key");

  async function ask(method, path, body, options = {}) {
    const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
    if (body !== undefined && !options.raw) headers["Content-Type"] = "application/json";
    const content = body === undefined || options.raw ? body : JSON.stringify(body);
    const answer = await fetch(path, { method, headers, body: content, signal: options.signal });
    const found = await answer.json().catch(() => ({}));
    if (answer.ok) return found;
    const error = new Error(found.error ?? `The server answered ${answer.status}.`);
    error.status = answer.status;
    error.wait = Number(answer.headers.get("Retry-After")) || 0;
    throw error;
  }

  function say(message, { wrong = false, undo = null } = {}) {
    const status = $("status");
    status.classList.toggle("wrong", wrong);
    status.replaceChildren(message);
    if (undo) {
      const button = make("button", { type: "button" }, "Undo");
      button.addEventListener("click", undo);
      status.append(button);
    }
  }

  function fail(error) {
    if (error.name === "AbortError") return;
    if (error.status === 403 && state.settings?.keyRequired) showKey();
    say(error.status ? error.message : "The server cannot be reached.", { wrong: true });
  }

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [attribute, value] of Object.entries(attributes)) {
      if (attribute === "class") element.className = value;
      else if (value === true) element.setAttribute(attribute, "");
      else if (value !== false && value !== null) element.setAttribute(attribute, value);
    }
    element.append(...children);
    return element;
  }

  // ---------------------------------------------------------------- translating as you type

  function chosen() {
    const names = state.memories.map((memory) => memory.name).filter((name) => state.used.has(name));
    return names.length === state.memories.length ? undefined : names;
  }

  function later() {
    clearTimeout(state.timer);
    state.timer = setTimeout(translate, PAUSE);
    count();
  }

  function count() {
    const limit = state.settings?.charLimit ?? 0;
    const length = $("source").value.length;
    $("count").textContent = length ? `${length.toLocaleString("en")} / ${limit.toLocaleString("en")}` : "";
  }

  async function translate() {
    clearTimeout(state.timer);
    state.request?.abort();
    const text = $("source").value;
    if (!text.trim()) {
      showNothing();
      return;
    }
    const request = (state.request = new AbortController());
    busy(true);
    try {
      const same = { q: text, source: "auto", target: state.settings?.language.target.code };
      const [withMemory, alone] = await Promise.all([
        ask("POST", "/translate", { ...same, memories: chosen(), explain: true }, request),
        ask("POST", "/translate", { ...same, memories: [] }, request),
      ]);
      if (request.signal.aborted) return;
      state.source = text;
      state.answer = withMemory;
      show(withMemory, alone.translatedText);
      if ($("status").classList.contains("wrong")) say("");
    } catch (error) {
      fail(error);
      if (error.wait) state.timer = setTimeout(translate, 1000 * error.wait);
    } finally {
      if (state.request === request) busy(false);
    }
  }

  function busy(is) {
    for (const pane of [$("memory-pane"), $("base-pane")]) pane.setAttribute("aria-busy", String(is));
  }

  function showNothing() {
    state.answer = null;
    state.source = "";
    busy(false);
    leaveCorrection();
    for (const id of ["translation", "base"]) $(id).replaceChildren();
    for (const id of ["legend", "base-note"]) $(id).hidden = true;
    for (const id of ["correct", "copy"]) $(id).disabled = true;
    $("examples").hidden = false;
    letGo();
    lookAgain();
  }

  // ---------------------------------------------------------------- showing a translation

  const share = (word) => (word.memory_share >= 0.7 ? 3 : word.memory_share >= 0.4 ? 2 : word.memory_share >= 0.1 ? 1 : 0);

  function show(answer, base) {
    const { translation, words } = answer.explanation;
    const text = Array.from(translation); // offsets count characters, as Python does, and not UTF-16 units
    const parts = [];
    let place = 0;
    words.forEach((word, number) => {
      if (!word.text) return;
      parts.push(text.slice(place, word.start).join(""));
      const label = `${word.text}, ${word.verdict}`;
      const button = make("button", { type: "button", class: `word share-${share(word)}`, "aria-label": label }, word.text);
      button.dataset.number = number;
      button.tabIndex = parts.length === 1 ? 0 : -1;
      parts.push(button);
      place = word.end;
    });
    $("translation").replaceChildren(...parts, text.slice(place).join(""));
    $("legend").hidden = !words.some((word) => share(word) > 0);
    for (const id of ["correct", "copy"]) $(id).disabled = false;
    $("examples").hidden = true;
    letGo();
    lookAgain();
    showBase(base, translation);
  }

  function showBase(base, translation) {
    const runs = base.split(/(\s+)/);
    const same = common(runs.filter((run) => run.trim()), translation.split(/\s+/).filter(Boolean));
    let number = -1;
    $("base").replaceChildren(...runs.map((run) => {
      if (!run.trim()) return run;
      number += 1;
      return same.has(number) ? run : make("span", { class: "changed" }, run);
    }));
    $("base-note").hidden = same.size === number + 1;
  }

  // The numbers of the words of `a` that are in a longest common subsequence with `b`.
  function common(a, b) {
    if (a.length > LONGEST_DIFF || b.length > LONGEST_DIFF) return new Set(a.keys());
    const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
      }
    }
    const same = new Set();
    for (let i = 0, j = 0; i < a.length && j < b.length;) {
      if (a[i] === b[j]) { same.add(i); i += 1; j += 1; }
      else if (best[i + 1][j] >= best[i][j + 1]) i += 1;
      else j += 1;
    }
    return same;
  }

  // ---------------------------------------------------------------- evidence for a word

  const hint = [...$("evidence-body").childNodes];
  const wordAt = (target) => target.closest?.("#translation .word") ?? null;
  const percent = (value) => `${Math.round(100 * value)} %`;
  const figure = (value) => (value >= 0.995 ? "1.00" : value.toFixed(value < 0.01 ? 4 : 2));

  function look(button) {
    if (state.pinned !== null && Number(button.dataset.number) !== state.pinned) return;
    const { words, pairs } = state.answer.explanation;
    const word = (state.looked = words[button.dataset.number]);
    const verdict = make("p", { class: "verdict" }, make("strong", {}, word.text), ` ${word.verdict}`);
    const tokens = word.tokens.map((token) => describe(token, word.tokens.length > 1, pairs));
    $("evidence-body").replaceChildren(verdict, make("div", { class: "tokens" }, ...tokens));
  }

  // After a new translation: the evidence for the same word if it is still there, else none.
  function lookAgain() {
    const looked = state.looked;
    state.looked = null;
    $("evidence-body").replaceChildren(...hint);
    const same = (word) => word.text === looked?.text && word.start === looked.start;
    const number = state.answer?.explanation.words.findIndex(same) ?? -1;
    const button = document.querySelector(`#translation .word[data-number="${number}"]`);
    if (button) look(button);
  }

  function describe(token, several, pairs) {
    const votes = token.neighbours.filter((one) => one.agrees).reduce((sum, one) => sum + one.vote, 0);
    const left = make("div", {});
    if (several) left.append(make("h3", {}, piece(token.text)));
    left.append(
      make("dl", { class: "bars" },
        ...bar("base model", "base", token.base_probability),
        ...bar("memory", "memory", token.memory_probability ?? null),
        ...bar("together", "mix", token.probability)),
      make("p", { class: "sum muted" },
        `${figure(token.base_weight)} × ${figure(token.base_probability)} + ${figure(votes)} = ${figure(token.probability)}`));
    return make("div", { class: "token" }, left, cite(token.neighbours, pairs));
  }

  const piece = (text) => text.replaceAll("▁", "") || "space";

  function bar(name, kind, value) {
    const inner = make("i");
    inner.style.width = `${100 * (value ?? 0)}%`;
    return [
      make("dt", {}, name),
      make("dd", { class: `bar ${kind}`, "aria-hidden": "true" }, inner),
      make("dd", { class: "figure" }, value === null ? "none" : figure(value)),
    ];
  }

  function cite(neighbours, pairs) {
    if (!neighbours.length) return make("p", { class: "muted" }, "No sentence of a memory was asked.");
    const citation = (neighbour) => quote(neighbour, pairs[neighbour.pair]);
    const list = make("ul", { class: "neighbours" }, ...neighbours.slice(0, SHOWN).map(citation));
    const box = make("div", {}, list);
    if (neighbours.length > SHOWN) {
      const more = make("button", { type: "button", class: "quiet more" }, `Show all ${neighbours.length}`);
      more.addEventListener("click", () => {
        list.append(...neighbours.slice(SHOWN).map(citation));
        more.remove();
      });
      box.append(more);
    }
    return box;
  }

  function quote(neighbour, pair) {
    const target = Array.from(pair.target);
    const marked = target.slice(neighbour.start, neighbour.end).join("") || "end";
    const inner = make("i");
    inner.style.width = `${100 * neighbour.vote}%`;
    const where = pair.location ? `${pair.origin}, line ${pair.location}` : pair.origin;
    return make("li", { class: neighbour.agrees ? "neighbour" : "neighbour against" },
      make("div", { class: "vote" }, `${percent(neighbour.vote)} ${neighbour.agrees ? "for" : "against"}`,
        make("div", { class: "bar memory", "aria-hidden": "true" }, inner)),
      make("div", {},
        make("p", { class: "cited" }, target.slice(0, neighbour.start).join(""), make("mark", {}, marked),
          target.slice(neighbour.end).join("")),
        make("p", { class: "cited source" }, pair.source),
        make("p", { class: "origin" }, `${pair.memory}: ${where} · distance ${neighbour.distance.toPrecision(3)}`)));
  }

  function pin(button) {
    const number = Number(button.dataset.number);
    const held = state.pinned === number;
    letGo();
    if (held) return;
    state.pinned = number;
    button.classList.add("pinned");
    button.setAttribute("aria-pressed", "true");
    $("unpin").hidden = false;
    look(button);
  }

  function letGo() {
    state.pinned = null;
    $("unpin").hidden = true;
    for (const word of document.querySelectorAll("#translation .pinned")) {
      word.classList.remove("pinned");
      word.removeAttribute("aria-pressed");
    }
  }

  function walk(event) {
    const button = wordAt(event.target);
    if (!button) return;
    const words = [...document.querySelectorAll("#translation .word")];
    const here = words.indexOf(button);
    const there = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: words.length - 1 }[event.key];
    if (there === undefined || !words[there]) return;
    event.preventDefault();
    button.tabIndex = -1;
    words[there].tabIndex = 0;
    words[there].focus();
  }

  // ---------------------------------------------------------------- correcting and learning

  const canLearn = () => state.memories.some((memory) => memory.learns);

  function correct() {
    if (!state.answer) return;
    $("target").value = state.answer.translatedText;
    $("correction").hidden = false;
    $("translation").hidden = true;
    $("legend").hidden = true;
    for (const id of ["learn", "cancel"]) $(id).hidden = false;
    $("learn").disabled = !canLearn();
    $("into-label").hidden = state.memories.filter((memory) => memory.learns).length < 2;
    $("correct").hidden = true;
    $("target").focus();
    if (!canLearn()) say("No memory here can learn: start the server with one (-m FOLDER).", { wrong: true });
  }

  function leaveCorrection() {
    $("correction").hidden = true;
    $("translation").hidden = false;
    for (const id of ["learn", "cancel", "into-label"]) $(id).hidden = true;
    $("correct").hidden = false;
    $("legend").hidden = !state.answer?.explanation.words.some((word) => share(word) > 0);
  }

  const lines = (text) => text.split(/\r\n|\n|\r/).map((line) => line.trim()).filter(Boolean);

  // The lines that were changed, or all of them where the translation was confirmed as it was.
  function corrections() {
    const [sources, proposed, given] = [state.source, state.answer.translatedText, $("target").value].map(lines);
    if (sources.length !== given.length) return null;
    const pairs = sources.map((source, number) => ({ source, target: given[number] }));
    const changed = pairs.filter((pair, number) => pair.target !== proposed[number]);
    return changed.length ? changed : pairs;
  }

  async function learn() {
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

  // ---------------------------------------------------------------- memories

  async function listMemories() {
    const known = new Set(state.memories.map((memory) => memory.name));
    state.memories = (await ask("GET", "/memories")).memories;
    for (const memory of state.memories) if (!known.has(memory.name)) state.used.add(memory.name);
    showMemories();
    const into = $("into").value || state.settings?.learnsInto;
    $("into").replaceChildren(...state.memories.filter((memory) => memory.learns)
      .map((memory) => make("option", { value: memory.name, selected: memory.name === into }, memory.name)));
  }

  function showMemories() {
    if (!state.memories.length) {
      $("memories").replaceChildren(make("p", { class: "muted" },
        "There is none: this is the base model alone. Start the server with -m FOLDER."));
      return;
    }
    const head = make("tr", {}, make("th", { scope: "col" }, "Name"), make("th", { scope: "col", class: "number" }, "Pairs"),
      make("th", { scope: "col", class: "number" }, "Entries"), make("th", { scope: "col" }, make("span", { class: "visually-hidden" }, "Import")));
    const body = make("tbody", {}, ...state.memories.map(row));
    $("memories").replaceChildren(make("table", {}, make("thead", {}, head), body));
  }

  function row(memory) {
    const tick = make("input", { type: "checkbox", id: `use-${memory.name}` });
    tick.checked = state.used.has(memory.name);
    tick.addEventListener("change", () => {
      if (tick.checked) state.used.add(memory.name);
      else state.used.delete(memory.name);
      translate();
    });
    const name = make("label", { for: tick.id }, tick, ` ${memory.name}`);
    const weight = memory.weight === 1 ? "" : ` (weight ${memory.weight})`;
    const tools = make("div", { class: "row" });
    if (memory.learns) tools.append(importer(memory));
    return make("tr", {},
      make("td", {}, name, make("span", { class: "muted" }, weight)),
      make("td", { class: "number" }, memory.pairs.toLocaleString("en")),
      make("td", { class: "number" }, memory.entries.toLocaleString("en")),
      make("td", {}, tools));
  }

  function importer(memory) {
    const file = make("input", { type: "file", class: "visually-hidden", tabindex: "-1", accept: ".tmx,.xlf,.xliff,.po,.tsv,.jsonl,.gz,.xz",
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
        await follow((await ask("POST", path, file.files[0], { raw: true })).id, bar, note);
      } catch (error) {
        note.textContent = "";
        fail(error);
      } finally {
        bar.hidden = true;
        button.disabled = false;
        file.value = "";
      }
    });
    return make("div", { class: "row" }, note, bar, file, button);
  }

  async function follow(id, bar, note) {
    for (;;) {
      const job = await ask("GET", `/jobs/${encodeURIComponent(id)}`);
      if (job.share !== undefined) bar.value = job.share;
      note.textContent = `${job.added.toLocaleString("en")} pairs`;
      if (job.state === "failed") throw Object.assign(new Error(job.message), { status: 400 });
      if (job.state === "done") {
        say(`${job.file}: ${job.message}`);
        await Promise.all([listMemories(), translate()]);
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
  }

  // ---------------------------------------------------------------- keys, theme, beginning

  function showKey() {
    $("key-form").hidden = false;
    $("key").focus();
  }

  async function begin() {
    try {
      state.settings = await ask("GET", "/frontend/settings");
      const { source, target } = state.settings.language;
      $("pair").textContent = `${source.name} to ${target.name}, with a memory`;
      $("source-title").textContent = source.name;
      $("memory-title").textContent = `${target.name}, with memory`;
      $("base-title").textContent = `${target.name}, base model alone`;
      $("source").lang = source.code;
      for (const id of ["target", "translation", "base"]) $(id).lang = target.code;
      $("source").maxLength = state.settings.charLimit;
      $("key-button").hidden = !state.settings.keyRequired;
      $("examples").replaceChildren(...(EXAMPLES[source.code] ?? []).map((text) => {
        const button = make("button", { type: "button", lang: source.code }, text);
        button.addEventListener("click", () => {
          $("source").value = text;
          $("source").focus();
          count();
          translate();
        });
        return button;
      }));
      if (state.settings.keyRequired && !key()) showKey();
      else await listMemories();
      if ($("source").value) translate();
    } catch (error) {
      fail(error);
    }
  }

  const nextTheme = () => THEMES[(THEMES.indexOf(stored("theme") ?? "auto") + 1) % THEMES.length];
  const nameTheme = () => { $("theme").textContent = `Theme: ${stored("theme") ?? "auto"}`; };

  $("theme").addEventListener("click", () => {
    const theme = nextTheme();
    try { localStorage.setItem("theme", theme); } catch { /* it lasts as long as the page */ }
    setTheme(theme);
    nameTheme();
  });
  $("key-button").addEventListener("click", showKey);
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("key", $("key").value.trim());
    $("key").value = "";
    $("key-form").hidden = true;
    say("");
    begin();
  });
  $("source").addEventListener("input", later);
  $("source").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      correct();
    }
  });
  $("target").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      learn();
    }
  });
  $("correct").addEventListener("click", correct);
  $("learn").addEventListener("click", learn);
  $("cancel").addEventListener("click", leaveCorrection);
  $("copy").addEventListener("click", async () => {
    await navigator.clipboard?.writeText(state.answer.translatedText);
    say("Copied.");
  });
  $("copy").hidden = !navigator.clipboard;
  $("unpin").addEventListener("click", letGo);
  $("translation").addEventListener("mouseover", (event) => wordAt(event.target) && look(wordAt(event.target)));
  $("translation").addEventListener("focusin", (event) => wordAt(event.target) && look(wordAt(event.target)));
  $("translation").addEventListener("click", (event) => wordAt(event.target) && pin(wordAt(event.target)));
  $("translation").addEventListener("dblclick", correct);
  $("translation").addEventListener("keydown", walk);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (!$("correction").hidden) leaveCorrection();
    else letGo();
  });
  nameTheme();
  begin();
});
