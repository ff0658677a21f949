// The state that the modules of the page share.

export const state = {
  settings: null, // of the server
  memories: [],
  used: new Set(), // names of the selected memories
  glossary: undefined, // id of the selected glossary, or "none"; undefined for that of the server
  source: "", // the text that `response` translates
  response: null, // of POST /translate
};
