// What the page knows.

export const state = {
  settings: null, // of the server
  memories: [],
  used: new Set(), // names of the memories that are ticked
  source: "", // the text that `answer` is the translation of
  answer: null,
};
