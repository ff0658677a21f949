// The line that says what happened, and the question for a key.

import { $, make } from "./elements.js";
import { state } from "./state.js";

export function say(message, { wrong = false, undo = null } = {}) {
  const status = $("status");
  status.classList.toggle("wrong", wrong);
  status.replaceChildren(message);
  if (undo) {
    const button = make("button", { type: "button" }, "Undo");
    button.addEventListener("click", undo);
    status.append(button);
  }
}

export function fail(error) {
  if (error.name === "AbortError") return;
  if (error.status === 403 && state.settings?.keyRequired) showKey();
  say(error.status ? error.message : "The server cannot be reached.", { wrong: true });
}

export function showKey() {
  $("key-form").hidden = false;
  $("key").focus();
}
