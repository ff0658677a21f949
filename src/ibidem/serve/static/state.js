// The state that the modules of the page share.

export const state = {
  settings: null, // of the server
  languages: [], // of the server, with their targets
  source: "", // code of the chosen source language
  target: "", // code of the chosen target language
  memories: [],
  creates: false, // whether memories can be created
  used: new Set(), // names of the selected memories
  glossary: undefined, // id of the selected glossary, or "none"; undefined for that of the server
  text: "", // the text that is shown as translated
  segments: [], // its sentences: { start, end, source, translation, words, pairs, base, ... }, see translation.js
  translation: "", // the whole translation
};

export const offers = (feature) => state.settings?.features?.includes(feature) ?? false;

// The memories for the chosen languages.
export const fitting = () => state.memories.filter((memory) =>
  (memory.source ?? state.source) === state.source && (memory.target ?? state.target) === state.target);

// The names of the selected memories; undefined for all.
export function selectedMemories() {
  const known = fitting();
  const names = known.map((memory) => memory.name).filter((name) => state.used.has(name));
  return names.length === state.memories.length ? undefined : names;
}

export const languageName = (code) => state.languages.find((one) => one.code === code)?.name
  ?? new Intl.DisplayNames(["en"], { type: "language", fallback: "code" }).of(code);
