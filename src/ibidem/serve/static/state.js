// The state that the modules of the page share.

export const state = {
  settings: null, // of the server
  memories: [],
  used: new Set(), // names of the selected memories
  source: "", // the text that `response` translates
  response: null, // of POST /translate
};
